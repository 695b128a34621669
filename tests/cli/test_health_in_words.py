"""Health checks in plain words are health checks: asked afterwards, on the host, counted by the gate, told as such."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servers import Api, listening

Write = Callable[[str], str]
CHANGE = "intent: Number the release\nsteps:\n  - write: VERSION\n    content: '2'\n"


@pytest.fixture
def api() -> Iterator[Api]:
    with listening() as server:
        server.answers["GET /"] = 200
        yield server


def port_of(api: Api) -> str:
    return api.url.rpartition(":")[2]


@pytest.fixture
def strict(guarded: Any) -> Any:
    """A workspace whose policy lets nothing land that nobody watches."""
    (guarded.directory / "holdfast.toml").write_text('[policy]\nwithout_health = "deny"\n')
    return guarded


def words(key: str, text: str) -> str:
    return f"{CHANGE}{key}: '{text}'\n"


@pytest.mark.parametrize("key", ["health", "verify"])
def test_a_health_check_in_words_counts_and_is_asked(strict: Any, write: Write, api: Api, key: str) -> None:
    """Where policy demands a health check, one in words is enough, wherever it stands; it is told as what it is."""
    change = write(words(key, f"{api.url}/ returns 200 within 3 seconds"))
    done = strict("apply", change, "--yes")
    assert done.status == 0, done
    assert f"! GET {api.url}/  asked afterwards" in done.out
    assert "in a shadow" not in done.out
    assert "no health check" not in done.out
    assert f"Healthy: GET {api.url}/" in done.out
    assert strict("audit", "replay").status == 0


def test_words_of_both_kinds_are_told_as_both(guarded: Any, write: Write) -> None:
    """What runs in the shadow and what is asked of the host afterwards are told apart."""
    told = guarded("apply", write(words("verify", "run `true`; port 9 is open")), "--preview").out
    assert "“run `true`; port 9 is open”  first, in a shadow; its health checks afterwards" in told
    assert "! TCP 127.0.0.1:9" in told


def test_a_health_command_in_words_runs_on_the_host(guarded: Any, write: Write, tmp_path: Path) -> None:
    """Under health a command is run after the change, outside the sandbox, and whoever says yes is told so."""
    sign = tmp_path / "sign"
    done = guarded("apply", write(words("health", f"run `touch {sign}`")), "--yes")
    assert "runs outside the sandbox, with your rights: touch" in done.out
    assert (done.status, sign.exists()) == (0, True)


@pytest.mark.parametrize("more", [(), ("--preview",), ("--yes",)])
@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("health", "frob the thing", "the health check 'frob the thing' is not understood"),
        ("health", "run the tests", "the health check 'run the tests' is not understood"),
        ("verify", "frob the thing", "the verification 'frob the thing' is not understood"),
    ],
)
def test_words_that_nobody_understands_are_refused_at_once(
    guarded: Any, write: Write, more: tuple[str, ...], key: str, text: str, said: str
) -> None:
    """Also by a preview; the refusal names what the words stand under, and nothing is told as if it would happen."""
    refused = guarded("apply", write(words(key, text)), *more)
    assert refused.status == 2
    assert said in refused.err
    assert "Nothing was changed." in refused.err
    assert "VERSION" not in refused.out
    assert not (guarded.directory / "VERSION").exists()


def test_a_reason_to_skip_verification_drops_no_health_check(guarded: Any, write: Write, api: Api) -> None:
    """Skipped are the checks before the change: words about health are asked or refused all the same."""
    skipped = CHANGE + "verify: {skip: only a number}\n"
    assert guarded("apply", write(skipped + "health: frob the thing\n"), "--yes").status == 2
    done = guarded("apply", write(f"{skipped}health: port {port_of(api)} is open\n"), "--yes")
    assert f"Healthy: TCP 127.0.0.1:{port_of(api)}" in done.out


def test_a_change_that_is_watched_is_never_done_already(guarded: Any, write: Write, api: Api) -> None:
    """Applied again, its health is asked again."""
    change = write(words("health", f"port {port_of(api)} is open"))
    for _ in range(2):
        done = guarded("apply", change, "--yes")
        assert f"Healthy: TCP 127.0.0.1:{port_of(api)}" in done.out
