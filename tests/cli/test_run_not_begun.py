"""A run that cannot begin: refused before it is written down, so that nothing is left that would want to be resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delegated import configured
from roadmapped import mapped, states

ENGINE = ".holdfast/engine.db"
GARBAGE = bytes(range(1, 251)) * 20
POLICIES = {
    "a verdict nobody knows": ('[policy]\nlow_risk = "never"\n', "low_risk"),
    "a field nobody knows": ("[policy]\nfoo = 1\n", "foo"),
    "a rule that loosens": (
        '[[policy.rules]]\nname = "x"\nverdict = "allow"\npaths = ["**"]\n', "may only tighten",
    ),
    "a hidden path outside": ('[workspace]\nhidden = ["../x"]\n', "../x"),
}  # fmt: skip


def nothing_begun(here: Any) -> None:
    """No run is in the tables, and `tasks` has none to go on with."""
    told = here("tasks")
    assert "No run yet" in told.out and "resume" not in told.out, told
    assert here("log", "--json").document["items"] == []


@pytest.mark.parametrize("words", [("--yes",), ("--dry-run",)])
@pytest.mark.parametrize("case", POLICIES)
def test_a_configuration_that_cannot_be_understood_is_found_at_once(
    guarded: Any, case: str, words: tuple[str, ...]
) -> None:
    """Exit 2 with the word that is wrong, also from a dry run; no run is begun, and none is left behind."""
    here = mapped(guarded, "Create a.py")
    text, word = POLICIES[case]
    (here.directory / "holdfast.toml").write_text(text)
    refused = here("run", "--agent", "mine", *words)
    assert refused.status == 2 and word in refused.err and "Nothing was changed" in refused.err, refused
    (here.directory / "holdfast.toml").unlink()
    nothing_begun(here)


def test_a_person_is_not_waited_for_where_there_is_none(guarded: Any) -> None:
    """`manual` without a terminal: exit 5 with that reason, for a run and for one task; no attempt is made, and nothing
    is held against it."""
    here = mapped(guarded, "Create a.py")
    for words in (("run", "--agent", "manual", "--yes"), ("apply", "Create a.py", "--agent", "manual", "--yes")):
        refused = here(*words)
        assert refused.status == 5 and "works at a terminal, and nobody can be asked here" in refused.err, refused
    nothing_begun(here)
    (row,) = (row for row in here("agents", "--json").document["items"] if row["name"] == "manual")
    assert row["breaker"] == "CLOSED" and row["ready"], row


def test_where_no_agent_can_be_used_no_run_is_begun(guarded: Any) -> None:
    """Exit 5 with each reason and the way out, for a run as for its preview; a run with nothing to do needs nobody."""
    here = mapped(guarded, "Create a.py")
    configured("")
    for words in (("--yes",), ("--dry-run",)):
        refused = here("run", *words)
        assert refused.status == 5 and "safe mode: no agent can be used" in refused.err, refused
        assert "Nothing was begun" in refused.err and "holdfast agents" in refused.err, refused
    nothing_begun(here)
    roadmap: Path = here.directory / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text().replace("[ ]", "[x]"))
    assert here.fresh("run", "--yes").status == 0


def test_a_run_does_not_go_on_where_no_agent_can_be_used(guarded: Any) -> None:
    """What is left to do waits for no person's yes: exit 5 and the same words. What only has to land needs no agent."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh("run", "--max-tasks", "1", "--ask", "after").status == 3
    configured("")
    assert here("review", "1.1", "--yes").status == 0
    assert here.fresh("resume", "--yes").status in (0, 3)
    assert states(here)[0] == "COMPLETED"
    assert here("reset", "1.2").status == 0
    refused = here("resume", "--yes")
    assert refused.status == 5 and "safe mode: no agent can be used" in refused.err, refused


def test_without_the_engine_no_run_is_begun(guarded: Any, tmp_path: Path) -> None:
    """Exit 2, with what to install; `tasks` does not claim that something was interrupted."""
    here = mapped(guarded, "Create a.py")
    missing = tmp_path / "missing"
    (missing / "dbos").mkdir(parents=True)
    (missing / "dbos/__init__.py").write_text("raise ImportError('not installed')\n")
    code = f"import sys; sys.path.insert(0, {str(missing)!r}); from holdfast.__main__ import main; main()"
    refused = here.python(code, "run", "--agent", "mine", "--yes")
    assert refused.status == 2 and "pip install 'holdfast[run]'" in refused.err, refused
    nothing_begun(here)


@pytest.mark.long
def test_a_spoilt_engine_database_is_named_and_may_go(guarded: Any) -> None:
    """`run` and `resume` end with exit 5, name the file and what is lost with it; without it they go on, and what
    landed stays landed."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    (here.directory / ENGINE).write_bytes(GARBAGE)
    (here.directory / ENGINE).chmod(0o600)
    refused = here.fresh("run", "--agent", "mine", "--yes")
    assert refused.status == 5 and f"Delete {ENGINE}" in refused.err and "ledger" in refused.err, refused
    nothing_begun(here)
    (here.directory / ENGINE).unlink()
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    assert here.fresh("undo", "1.2", "--yes").status == 0
    spoilt = list(here.directory.glob(f"{ENGINE}*"))
    for path in spoilt:
        path.unlink()
    (here.directory / ENGINE).write_bytes(GARBAGE)
    (here.directory / ENGINE).chmod(0o600)
    refused = here.fresh("resume", "--yes")
    assert refused.status == 5 and f"Delete {ENGINE}" in refused.err, refused
    (here.directory / ENGINE).unlink()
    assert here.fresh("resume", "--yes").status == 0
    assert states(here) == ["COMPLETED", "COMPLETED"] and (here.directory / "b.py").exists()
