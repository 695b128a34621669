"""holdfast agents, and tasks given to agents with apply: as a user types it, with the documented exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegated import FILES, FIXED, configured
from guarded import fill

Tree = Callable[[], dict[str, Any]]
WRITES = 'printf "def answer():\\n    return 42\\n" > app.py; echo "I made it."'
TASK = "Make answer() in app.py return 42"


def shell(name: str, text: str, more: str = "") -> str:
    return f"[agents.{name}]\ncommand = {json.dumps(['/bin/sh', '-c', text])}\n{more}\n"


@pytest.fixture
def here(guarded: Any) -> Any:
    """A guarded project whose one test fails until the task is done."""
    fill(guarded.directory, FILES)
    return guarded


def items(program: Any) -> dict[str, dict[str, Any]]:
    done = program("agents", "--json")
    assert done.status == 0, done.err
    assert done.document["kind"] == "list"
    return {item["name"]: item for item in done.document["items"]}


# ── agents ──


def test_every_agent_is_listed_with_why_not(here: Any) -> None:
    """Those that come with Holdfast and the user's own; who cannot be used has a reason and a way out."""
    configured(shell("mine", "true") + '[agents.gone]\ncommand = ["no-such-program-here"]\n')
    found = items(here)
    assert {"claude", "codex", "manual", "mine", "gone"} <= set(found)
    assert found["mine"]["usable"] is True and found["mine"]["why_not"] == ""
    assert found["gone"]["usable"] is False and "no-such-program-here" in found["gone"]["why_not"]
    for item in found.values():
        assert item["usable"] or (item["why_not"] and isinstance(item["hint"], str)), item
    done = here.fresh("agents")
    assert done.status == 0, done.err
    lines = {line.split()[0]: line for line in done.out.splitlines()}
    assert "usable" in lines["mine"] and "no-such-program-here" in lines["gone"]


def test_a_table_without_a_command_hides_nobody(here: Any) -> None:
    """It is listed with what it lacks, like any agent that cannot be used; naming it says the same."""
    configured('[agents.mine]\ntransport = "acp"\n')
    found = items(here)["mine"]
    assert (found["usable"], found["why_not"]) == (False, "it has no command")
    done = here("apply", "Do it", "--agent", "mine", "--yes")
    assert done.status == 2 and "Set command under [agents.mine]." in done.err
    (here.directory / "R.md").write_text("- [ ] Make a.txt\n")
    for name in ("nobody", "mine"):
        done = here("run", "R.md", "--agent", name, "--yes")
        assert done.status == 2
    done = here("run", "R.md", "--agent", "nobody", "--yes")
    assert "there is no agent nobody" in done.err and "nobody," not in done.err.partition("Known: ")[2]


def test_an_agent_whose_model_has_no_key_is_not_usable(here: Any) -> None:
    """The list says what apply would say."""
    provider = '[providers.p]\nurl = "http://127.0.0.1:9"\napi = ["openai"]\nkey_env = "NOT_SET_HERE"\n'
    configured(shell("mine", "true", 'network = "proxy"\nprovider = "p"') + provider)
    assert "NOT_SET_HERE is not set" in items(here)["mine"]["why_not"]
    done = here("apply", "Do it", "--agent", "mine", "--yes")
    assert (done.status, "NOT_SET_HERE is not set" in done.err) == (2, True)


def test_a_choice_is_explained(here: Any) -> None:
    """--why ranks who could do a task, each with its reasons, and says why the others cannot."""
    configured(shell("mine", "true") + '[agents.gone]\ncommand = ["no-such-program-here"]\n')
    done = here("agents", "--why", "Add a test", "--json")
    assert done.status == 0, done.err
    assert done.document["kind"] == "choice"
    assert "mine" in [each["agent"] for each in done.document["ranking"]]
    words = here("agents", "--why", "Add a test").out
    assert "mine" in words and "gone  cannot: " in words


# ── apply --agent ──


def test_good_work_is_applied(here: Any) -> None:
    """Exit 0: what the agent made is there, checked, and can be undone."""
    configured(shell("mine", WRITES))
    done = here.fresh("apply", TASK, "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    assert (here.directory / "app.py").read_bytes() == FIXED
    assert "mine begins attempt 1" in done.err
    assert "unittest" in done.out and done.out.splitlines()[-1].startswith("Undo with: holdfast undo e-")


def test_without_consent_it_waits(here: Any, tree: Tree) -> None:
    """Exit 3 where a person must say yes; the simulation is kept for them."""
    configured(shell("mine", WRITES) + '[policy]\nlow_risk = "ask"\n')
    before = tree()
    done = here("apply", TASK, "--agent", "mine")
    assert done.status == 3
    assert "holdfast approve s-" in done.err
    assert tree() == before


def test_a_preview_of_agents_work_says_that_it_was_checked(here: Any, tree: Tree) -> None:
    """Its checks ran while it worked; nothing of it is there."""
    configured(shell("mine", WRITES))
    before = tree()
    done = here("apply", TASK, "--agent", "mine", "--preview")
    assert done.status == 0 and tree() == before
    assert "no check was run" not in done.out and "What the agent did was checked" in done.out


def test_bad_work_changes_nothing(here: Any, tree: Tree) -> None:
    """Exit 11, with what was measured and beside it what the agent says."""
    configured(shell("mine", "echo x >> app.py; echo All tests pass."))
    before = tree()
    done = here("apply", TASK, "--agent", "mine", "--attempts", "2", "--yes")
    assert done.status == 11
    assert "did not do the task in 2 rounds" in done.err
    assert "All tests pass." in done.err and "Nothing was changed." in done.err
    assert tree() == before
    told = here("apply", TASK, "--agent", "mine", "--attempts", "1", "--yes", "--json").document["error"]
    assert (told["code"], told["changed"]) == ("agent_failed", False)


def test_time_that_is_over_changes_nothing(here: Any, tree: Tree) -> None:
    """Exit 10."""
    configured(shell("mine", f"{WRITES}; sleep 600"))
    before = tree()
    done = here("apply", TASK, "--agent", "mine", "--within", "1s", "--yes")
    assert (done.status, "reached its limit: time" in done.err) == (10, True)
    assert "Give it more with --within." in done.err
    assert tree() == before


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ('[agents.mine]\ncommand = {}\nlimits = {{ time = "1s" }}\n', "limits.time under [agents.mine]"),
        ('[agents.mine]\ncommand = {}\n[limits]\ntime = "1s"\n', "time under [limits]"),
    ],
)
def test_the_limit_that_holds_is_the_one_to_raise(here: Any, settings: str, where: str) -> None:
    """A longer --within does nothing where the configuration gives the agent less time."""
    configured(settings.format('["sh", "-c", "sleep 600"]'))
    done = here("apply", TASK, "--agent", "mine", "--within", "5m", "--yes")
    assert (done.status, f"Give it more with {where}." in done.err) == (10, True), done.err


def test_a_path_that_is_not_its_own_is_denied(here: Any, tree: Tree) -> None:
    """Exit 4, whatever the user says."""
    configured(shell("mine", WRITES) + '[policy.agents.mine]\nmay_change = ["docs/**"]\n')
    before = tree()
    assert here("apply", TASK, "--agent", "mine", "--yes").status == 4
    assert tree() == before


def test_an_expected_file_must_be_there(here: Any) -> None:
    """--expect adds to what the words ask for; when it is made, all is well."""
    configured(shell("mine", WRITES))
    done = here("apply", TASK, "--agent", "mine", "--expect", "docs/why.md", "--attempts", "1", "--yes")
    assert (done.status, "docs/why.md" in done.err) == (11, True)
    configured(shell("other", f"{WRITES}; mkdir -p docs; echo because > docs/why.md"))
    assert here("apply", TASK, "--agent", "other", "--expect", "docs/why.md", "--yes").status == 0


@pytest.mark.parametrize(
    "words",
    [
        ("apply", "Do it", "--expect", "a.py"),
        ("apply", "Do it", "--attempts", "2"),
        ("apply", "Do it", "--within", "5m"),
        ("apply", "Do it", "--agent", "mine", "--attempts", "0"),
        ("apply", "Do it", "--agent", "mine", "--within", "soon"),
        ("apply", "Do it", "--agent", "mine", "--expect", "../a.py"),
        ("apply", "Do it", "--agent", "nobody"),
        ("apply", "  ", "--agent", "mine"),
        ("apply", "-", "--agent", "mine"),
        ("apply", "old.txt", "--agent", "mine"),
    ],
)
def test_what_makes_no_sense_is_refused(here: Any, tree: Tree, words: tuple[str, ...]) -> None:
    """Exit 2 before anything is started."""
    configured(shell("mine", WRITES))
    before = tree()
    done = here(*words)
    assert done.status == 2, (done.out, done.err)
    assert tree() == before


def test_auto_asks_the_next_one_when_the_first_is_ill(here: Any) -> None:
    """Who ends with an error before doing anything is passed over, and that is said."""
    broken = "".join(shell(name, "exit 1") for name in ("aa", "bb"))
    configured(broken + shell("zz", WRITES))
    done = here("apply", TASK, "--agent", "auto", "--attempts", "1", "--yes")
    assert done.status == 0, done.err
    assert (here.directory / "app.py").read_bytes() == FIXED
    assert "aa is ill, bb is asked instead: " in done.err
    assert "bb is ill, zz is asked instead: " in done.err


def test_auto_does_not_pass_bad_work_on(here: Any) -> None:
    """An agent that worked and failed is no reason to let another one try: the task may be the trouble."""
    configured(shell("aa", "echo x >> app.py") + shell("bb", "echo x >> app.py"))
    done = here("apply", TASK, "--agent", "auto", "--attempts", "1", "--yes")
    assert done.status == 11
    assert "is asked instead" not in done.err


def test_events_of_an_agent_are_in_the_stream(here: Any) -> None:
    """One object a line, of kind agent; what is said is data, and the last line is the document."""
    configured(shell("mine", f"{WRITES}; printf '\\033[31mred\\n'"))
    done = here("apply", TASK, "--agent", "mine", "--yes", "--stream-json")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in done.out.splitlines()]
    events = [row for row in rows if row.get("event") == "agent"]
    assert events[0]["kind"] == "began"
    assert {"I made it.", "\x1b[31mred"} <= {row["text"] for row in events if row["kind"] == "said"}
    assert "\x1b" not in done.out
    assert rows[-1]["kind"] == "execution"


def test_the_ledger_tells_of_it_and_is_whole(here: Any) -> None:
    """Good or bad, the work is in the chain."""
    configured(shell("mine", "exit 1") + shell("good", WRITES))
    here("apply", TASK, "--agent", "mine", "--attempts", "1", "--yes")
    here("apply", TASK, "--agent", "good", "--yes")
    assert here("audit", "verify").status == 0
    kept = (here.directory / ".holdfast/ledger.jsonl").read_text()
    assert kept.count('"delegation"') >= 2


# ── who is left alone, safe mode, and what a person is told ──


def ill(here: Any, name: str, times: int = 3) -> list[str]:
    """Ended with an error so often; what was told on the way."""
    told = []
    for _ in range(times):
        done = here("apply", TASK, "--agent", name, "--attempts", "1", "--yes")
        assert done.status == 11
        told.append(done.err)
    return told


def test_who_fails_again_and_again_is_left_alone_until_a_person_vouches(here: Any) -> None:
    """The list says for how long and how to try at once; --again lets one attempt through, and it decides."""
    configured(shell("mine", "exit 1") + shell("other", "true"))
    told = ill(here, "mine")
    assert "mine failed 3 times in a row and is left alone" in told[2] and "left alone" not in told[1]
    assert "is not asked at the moment" in here("apply", TASK, "--agent", "mine", "--yes").err
    found = items(here)
    assert (found["mine"]["breaker"], found["mine"]["ready"]) == ("OPEN", False)
    assert 0 < found["mine"]["waits_ms"] <= 30_000
    assert (found["other"]["breaker"], found["other"]["ready"]) == ("CLOSED", True)
    (line,) = (line for line in here("agents").out.splitlines() if line.startswith("mine"))
    assert "left alone" in line and line.endswith("at once with: holdfast agents --again mine")
    configured(shell("mine", WRITES) + shell("other", "true"))
    assert "may be tried again now" in here("agents", "--again", "mine").out
    assert here("apply", TASK, "--agent", "mine", "--yes").status == 0
    assert items(here)["mine"]["breaker"] == "CLOSED"
    assert here("agents", "--again", "mine", "--json").document["status"] == "UNCHANGED"
    log = (here.directory / ".holdfast/logs/resilience.jsonl").read_text()
    assert '"breaker_opened"' in log and '"vouched"' in log


@pytest.mark.long
def test_safe_mode_is_told_with_its_reason_and_the_way_out(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no program can be started; it ends with its reason. A person, who is always there, is no way out of it."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    configured(shell("mine", "exit 1"))
    assert here("agents", "--json").document["safe_mode"] is None
    assert "Safe mode" not in here("agents").out
    ill(here, "mine")
    safe = here("agents", "--json").document["safe_mode"]
    (reason,), (way,) = safe["reasons"], safe["ways_out"]
    assert "mine: its breaker is open" in reason and "claude: " in reason and "manual" not in reason
    assert "holdfast agents --again mine" in way
    out = here("agents").out
    assert "Safe mode: no agent is started." in out and "holdfast agents --again mine" in out
    assert here("apply", TASK, "--agent", "auto", "--yes").status == 5
    assert (here("log").status, here("status").status) == (0, 0)
    here("agents", "--again", "mine")
    assert "Safe mode" not in here("agents").out


def test_agents_are_listed_outside_a_workspace_too(program: Any) -> None:
    """Breakers belong to a workspace; programs and keys do not."""
    configured(shell("mine", "true"))
    found = items(program)
    assert (found["mine"]["usable"], found["mine"]["breaker"]) == (True, "CLOSED")


def test_work_that_never_passes_is_escalated(here: Any) -> None:
    """Three finished attempts in a row that did not pass: a person is told, and the log has it."""
    configured(shell("mine", "echo x >> app.py"))
    done = here("apply", TASK, "--agent", "mine", "--attempts", "3", "--yes", "--stream-json")
    assert done.status == 11
    rows = [json.loads(line) for line in done.out.splitlines()]
    (told,) = (row["text"] for row in rows if row.get("kind") == "escalated")
    assert told.startswith("mine finished p-") and told.endswith("3 times, and its work passed never")
    log = (here.directory / ".holdfast/logs/resilience.jsonl").read_text()
    assert '"acceptance_failed"' in log
    assert items(here)["mine"]["breaker"] == "CLOSED", "bad work is no illness"


def test_a_task_that_runs_out_of_time_is_escalated(here: Any) -> None:
    """On standard error also where nobody looks on."""
    configured(shell("mine", "sleep 60"))
    done = here("apply", TASK, "--agent", "mine", "--within", "1s", "--yes")
    assert (done.status, "! mine ran out of time on p-" in done.err) == (10, True)


@pytest.mark.parametrize("words", [("--again", "nobody"), ("--again", "manual", "--why", "x")])
def test_only_an_agent_that_is_there_can_be_tried_again(here: Any, words: tuple[str, ...]) -> None:
    """Exit 2, with a sentence."""
    done = here("agents", *words)
    assert (done.status, bool(done.err)) == (2, True)


def test_words_of_an_agent_cannot_pose_as_ours(here: Any) -> None:
    """What it prints stands on lines that are marked as its own, or between quotes, and moves no cursor."""
    configured(shell("mine", "printf '\\033[2J\\033[1;1HApplied 3 changes.\\nUndo with: nothing\\n'; exit 1"))
    done = here("apply", TASK, "--agent", "mine", "--attempts", "1", "--yes")
    assert done.status == 11
    assert "\x1b" not in done.err + done.out
    *live, line = (line for line in done.err.splitlines() if "Applied 3 changes" in line or "Undo with" in line)
    assert live == ["  | Applied 3 changes.", "  | Undo with: nothing"]
    assert line.strip().startswith('it says: "') and "Undo with: nothing" in line


# ── patterns ──


def test_patterns_are_listed_shown_and_planned(here: Any, tree: Tree) -> None:
    """A list, one with its inputs, and a plan of its own example that changes nothing yet."""
    listed = here.fresh("patterns", "--json").document
    assert listed["kind"] == "list" and listed["items"]
    before = tree()
    shown = here("patterns", listed["items"][0]["id"], "--json").document
    assert shown["kind"] == "pattern"
    inputs = Path(here.directory).parent / "inputs.json"
    inputs.write_text(json.dumps(shown["example"]))
    done = here("patterns", shown["id"], "--plan", "--inputs", str(inputs), "--json")
    assert done.status == 0, done.err
    assert done.document["kind"] == "plan" and done.document["id"].startswith("p-")
    assert tree() == before


@pytest.mark.parametrize("words", [("no-such-pattern",), ("no-such-pattern", "--plan"), ("x", "--input", "a=b")])
def test_patterns_that_are_not_there_are_refused(here: Any, words: tuple[str, ...]) -> None:
    """Exit 2, with a sentence."""
    done = here("patterns", *words)
    assert (done.status, bool(done.err)) == (2, True)
