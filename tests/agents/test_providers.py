"""Providers and their keys: found where the user put them, refused where others could read them, never told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from delegated import configured
from guarded import USER
from holdfast.agents.providers import BUILT_IN, key_of, provider_for, require_price
from holdfast.agents.readiness import readiness
from holdfast.errors import InvalidInput
from holdfast.model.agent_settings import AgentSettings, Price, ProviderSettings
from holdfast.model.configuration import Settings
from holdfast.settings import load, places_of
from holdfast.testing import ScriptedAgent

KEY = "a-key-that-opens-nothing"
LOCAL = ProviderSettings("local", "http://127.0.0.1:1", ("openai",))


def in_file(path: Path) -> ProviderSettings:
    return LOCAL._replace(key_file=str(path))


def why_not(provider: ProviderSettings, **environment: str) -> str:
    """Why there is no key; and the reason never holds one."""
    with pytest.raises(InvalidInput) as stopped:
        key_of(provider, environment)
    told = stopped.value.message + stopped.value.hint
    assert KEY not in told
    return told


# ── keys ──


def test_a_key_comes_from_a_variable() -> None:
    """Blanks around it are no part of it."""
    assert key_of(LOCAL._replace(key_env="X"), {"X": f" {KEY}\n"}) == KEY


@pytest.mark.parametrize("value", [{}, {"X": ""}, {"X": "  \n"}])
def test_a_variable_that_is_not_set_is_named(value: dict[str, str]) -> None:
    """The reason names the variable."""
    assert "X is not set" in why_not(LOCAL._replace(key_env="X"), **value)


def test_a_key_comes_from_a_file(tmp_path: Path) -> None:
    """One line, of this user, closed to others."""
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    path.chmod(0o600)
    assert key_of(in_file(path)) == KEY
    path.chmod(0o400)
    assert key_of(in_file(path)) == KEY


def test_a_file_in_the_home_is_found(home: Path) -> None:
    """A tilde is this user's home."""
    (home / "key").write_text(KEY)
    (home / "key").chmod(0o600)
    assert key_of(LOCAL._replace(key_file="~/key")) == KEY


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o660, 0o777, 0o601])
def test_a_key_that_others_could_read_or_write_is_refused(mode: int, tmp_path: Path) -> None:
    """Also one that a group can only write: whoever writes it chooses who sees the code."""
    path = tmp_path / "key"
    path.write_text(KEY)
    path.chmod(mode)
    assert "open to others" in why_not(in_file(path))


@pytest.mark.root
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    """Somebody else's file is somebody else's choice."""
    path = tmp_path / "key"
    path.write_text(KEY)
    path.chmod(0o600)
    os.chown(path, USER, USER)
    assert "open to others" in why_not(in_file(path))


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "device", "dangling", "nul"])
def test_what_is_no_file_is_no_key(kind: str, tmp_path: Path) -> None:
    """Nothing is waited for, and the reason names the path."""
    path = tmp_path / "key"
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "device":
            path = Path("/dev/zero")
        case "dangling":
            path.symlink_to("nowhere")
        case "nul":
            path = tmp_path / "k\0ey"
    told = why_not(in_file(path))
    assert "cannot be read" in told or "is not a file" in told


@pytest.mark.parametrize(
    "data",
    [b"", b"\n \n", b"one\ntwo", b"one two", b"one\r\nx: y", "schlüssel".encode(), b"\xff\xfe", b"k" * 5000, b"a\0b"],
)
def test_what_could_not_be_a_header_is_no_key(data: bytes, tmp_path: Path) -> None:
    """Two lines would be two headers; a cut key would be a wrong one."""
    path = tmp_path / "key"
    path.write_bytes(data)
    path.chmod(0o600)
    assert "the key of local" in why_not(in_file(path))


def test_a_variable_that_could_not_be_a_header_is_no_key() -> None:
    """The same from the environment."""
    assert "is no key" in why_not(LOCAL._replace(key_env="X"), X=f"{KEY}\nx-other: 1")


def test_a_model_on_this_machine_may_need_none() -> None:
    """Neither variable nor file: a word that stands for no key."""
    assert key_of(LOCAL) == "none"


# ── which provider ──


def test_the_first_that_speaks_the_wire_is_taken() -> None:
    """The user's own come before those built in, and replace one of the same name."""
    own = LOCAL._replace(name="mine")
    assert provider_for(Settings(providers=(own,)), "", "openai") == own
    assert provider_for(Settings(), "", "openai").name == "openai"
    assert provider_for(Settings(), "", "anthropic").name == "anthropic"
    other = ProviderSettings("openai", "http://127.0.0.1:2", ("openai",))
    assert provider_for(Settings(providers=(other,)), "openai", "openai") == other


@pytest.mark.parametrize(("name", "words"), [("nobody", "there is no provider nobody"), ("gemini", "needs openai")])
def test_a_provider_that_does_not_fit_is_refused(name: str, words: str) -> None:
    """One that is not there, and one that speaks another wire."""
    with pytest.raises(InvalidInput, match=words):
        provider_for(Settings(), name, "openai")


def test_those_built_in_have_no_prices_and_no_plain_http() -> None:
    """Prices change; whoever limits money states them."""
    assert all(each.prices == () and each.url.startswith("https://") for each in BUILT_IN)


@pytest.mark.parametrize(
    ("model", "prices", "fits"),
    [
        ("", (), False),
        ("", ("m",), True),
        ("m-large", ("m",), True),
        ("m-large", ("n", "m-l"), True),
        ("m-large", ("n",), False),
        ("m-large", ("m-large-2",), False),
    ],
)
def test_money_needs_a_price(model: str, prices: tuple[str, ...], fits: bool) -> None:
    """For the model that is asked; for any, where the agent chooses one itself."""
    provider = LOCAL._replace(prices=tuple(Price(name, 1, 1) for name in prices))
    require_price(provider, AgentSettings("x", model=model))
    if fits:
        require_price(provider, AgentSettings("x", model=model, micro_usd=5))
    else:
        with pytest.raises(InvalidInput, match="states no price"):
            require_price(provider, AgentSettings("x", model=model, micro_usd=5))


# ── as configured ──


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com/v1",
        "http://127.0.0.1@example.com",
        "http://user:word@127.0.0.1",
        "https://",
        "https://example.com/?x=1",
        "ftp://127.0.0.1",
        "http://127.0.0.1:port",
        "http://[::1",
        "",
    ],
)
def test_an_address_that_would_carry_a_key_in_the_open_is_refused(url: str, tmp_path: Path) -> None:
    """Plain http is for this machine, told by the host itself and not by how the address begins."""
    configured(f'[providers.x]\nurl = "{url}"\napi = ["openai"]\n')
    with pytest.raises(InvalidInput, match="url"):
        load(places_of(str(tmp_path)))


@pytest.mark.parametrize(
    "url", ["https://api.example.com", "http://127.0.0.1:8080/v1/", "http://[::1]:1", "http://localhost"]
)
def test_addresses_that_are_good(url: str, tmp_path: Path) -> None:
    """TLS anywhere, plain http on the loopback."""
    configured(f'[providers.x]\nurl = "{url}"\napi = ["openai"]\n')
    assert load(places_of(str(tmp_path))).providers[0].url == url.rstrip("/")


@pytest.mark.parametrize(
    "lines",
    ["", "api = []", 'api = ["smtp"]', 'api = ["openai"]\nkey_env = "A"\nkey_file = "b"', 'api = ["openai"]\nx = 1'],
)
def test_a_table_with_a_mistake_is_refused(lines: str, tmp_path: Path) -> None:
    """No wire, an unknown one, two places for a key, an unknown field."""
    configured(f'[providers.x]\nurl = "https://example.com"\n{lines}\n')
    with pytest.raises(InvalidInput):
        load(places_of(str(tmp_path)))


@pytest.mark.parametrize(
    "table", ["[providers.x]\nurl = 'https://a.b'\napi = ['openai']", "[agents.x]\ncommand = ['true']"]
)
def test_a_repository_names_neither_agents_nor_providers(table: str, tmp_path: Path) -> None:
    """Both start programs or name keys, so only the user's own file may have them."""
    (tmp_path / "holdfast.toml").write_text(table)
    with pytest.raises(InvalidInput):
        load(places_of(str(tmp_path)))


def test_an_agent_without_the_key_of_its_provider_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program is there, and still it cannot be given work; with the key it can."""
    agent = ScriptedAgent(name="x")
    agent.api = "openai"
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = readiness(agent, Settings())
    assert (found.health.installed, found.health.usable, found.provider) == (True, False, "")
    assert "OPENAI_API_KEY" in found.health.why_not
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    assert readiness(agent, Settings()) == (agent.health(), "openai")
    agent.api = None
    monkeypatch.delenv("OPENAI_API_KEY")
    assert readiness(agent, Settings()).health.usable
