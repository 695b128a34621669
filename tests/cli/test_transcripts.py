"""What agents were told, said and did: `show --transcript`, live lines, failed work in `log`, and ids that lead on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.cli.transcript import plain_lines
from roadmapped import mapped, script, states

TOKEN = "ghp_" + "a1B2" * 9
# Says a secret and what a terminal would obey, then does what its task says.
SPEAKING = f"""
import re, sys
words = open(sys.argv[1]).read()
name, how = re.search(r"Create (\\w+)\\.py([^\\n]*)", words).groups()
print("I begin with " + name, flush=True)
print("\\x1b[31mred\\x1b[0m \\x1b]52;c;ZXZpbA==\\x07\\x1b]0;owned\\x07and the key {TOKEN}", flush=True)
print('{{"type": "text", "message": {{"content": [{{"text": "a machine says so"}}]}}}}', flush=True)
for number in range(int((re.search(r"lines=(\\d+)", how) or [0, 0])[1])):
    print("line", number, flush=True)
if "nothing" not in how:
    open(name + ".py", "w").write("x = (" if "badly" in how else "x = 1\\n")
"""
WHEN = r"\d\d:\d\d:\d\d"


def spoken(program: Any, *titles: str) -> Any:
    here = mapped(program, *titles)
    script(here).write_text(SPEAKING)
    return here


def test_a_transcript_is_what_it_was_told_said_and_did_with_times(guarded: Any) -> None:
    """By the task's number: the prompt, the words and what was measured, round by round; secrets and escapes gone."""
    here = spoken(guarded, "Create a.py badly")
    assert here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1").status == 11
    done = here("show", "1.1", "--transcript")
    assert done.status == 0, done.err
    assert re.search(rf"Round 1, begun .*\n  {WHEN}  told     Task:\n +1.1: Create a.py badly\n", done.out)
    assert re.search(rf"  {WHEN}  said     I begin with a\n +red and the key \[GitHub token masked\]\n", done.out)
    assert "a machine says so\n" in done.out and '{"type"' not in done.out
    assert "Round 2, begun" in done.out and "What was measured after your last attempt" in done.out
    assert "  Measured  finished after " in done.out and "; changed a.py\n" in done.out
    assert "  Wrong     A check failed: syntax of 1 touched Python file" in done.out
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", done.out), repr(done.out)
    assert TOKEN not in done.out and "owned" not in done.out and "ZXZpbA" not in done.out


@pytest.mark.long
def test_a_transcript_is_bounded_unless_all_of_it_is_asked_for(guarded: Any) -> None:
    """Beginning and end of a long round, how much is between them, and the command that prints all of it."""
    here = spoken(guarded, "Create a.py lines=500")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    short = here("show", "1.1", "--transcript").out
    assert "line 0\n" in short and "line 499\n" in short and "line 200\n" not in short
    assert re.search(r"… \d+ lines left out; all of it: holdfast show 1.1 --transcript --all", short)
    whole = here("show", "1.1", "--transcript", "--all").out
    assert all(f"line {number}\n" in whole for number in range(500)) and "left out" not in whole
    assert here("show", "1.1", "--all").status == 2


@pytest.mark.long
def test_a_transcript_as_a_document(guarded: Any) -> None:
    """--json: every delegation with its rounds, each row with its moment and kind; found from the execution too."""
    here = spoken(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    task = here("tasks", "--json").document["tasks"][0]
    for id in (task["id"], task["execution"]):
        (work,) = here("show", id, "--transcript", "--json").document["works"]
        assert (work["kind"], work["status"], work["task_id"]) == ("delegation", "GOOD", task["id"])
        (one,) = work["rounds"]
        assert [row["kind"] for row in one["rows"]] == ["told", "said", "said", "said"]
        assert all(row["at"] for row in one["rows"]) and one["rows"][1]["text"] == "I begin with a"


@pytest.mark.long
def test_a_transcript_that_is_gone_is_said_to_be_gone(guarded: Any) -> None:
    """What the ledger holds is told; of what is no longer kept it says so, and no other words stand in for it."""
    here = spoken(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    for blob in (here.directory / ".holdfast" / "objects").glob("*/*"):
        blob.unlink()
    done = here("show", "1.1", "--transcript")
    assert done.status == 0 and "No transcript: " in done.out and "I begin" not in done.out.split("Measured")[0]


@pytest.mark.long
def test_an_altered_transcript_is_not_shown(guarded: Any) -> None:
    """A blob that does not hold what its name says is named as such, and nothing of it is shown."""
    here = spoken(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    for blob in (here.directory / ".holdfast" / "objects").glob("*/*"):
        blob.chmod(0o600)
        blob.write_bytes(blob.read_bytes().replace(b"I begin with", b"I lied about"))
    done = here("show", "1.1", "--transcript")
    assert done.status == 0 and "does not hold what its name says" in done.out and "I lied about" not in done.out


@pytest.mark.long
def test_agents_are_heard_while_they_work_where_nobody_looks_on(guarded: Any) -> None:
    """Each line of an agent comes on standard error as it is said, named by its task; escapes and secrets gone."""
    here = spoken(guarded, "Create a.py lines=400")
    done = here.fresh("run", "--agent", "mine", "--yes")
    lines = done.err.splitlines()
    mine = [line for line in lines if line.startswith("    1.1 Create a.py lines=400 | ")]
    assert mine[0].endswith("| I begin with a") and mine[1].endswith("| red and the key [GitHub token masked]")
    assert mine[2].endswith("| a machine says so") and "\x1b" not in done.err
    assert len(mine) == 201 and re.search(r"… and more, which is kept: holdfast show \S+ --transcript$", mine[-1])
    assert lines.index(mine[0]) < next(place for place, line in enumerate(lines) if line.startswith("✓ 1.1"))


def test_work_that_led_to_nothing_is_in_the_log(guarded: Any) -> None:
    """`log` lists what an agent tried and did not do, with who, what and why, and an id that can be shown."""
    here = spoken(guarded, "Create a.py", "Create b.py nothing")
    assert here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1").status == 11
    assert states(here) == ["COMPLETED", "FAILED"]
    items = here("log", "--json").document["items"]
    (failed,) = (item for item in items if item["kind"] == "delegation")
    assert (failed["status"], failed["agent"]) == ("NOT_GOOD", "mine")
    assert "expected and are not there: b.py" in failed["because"]
    assert items[0] == failed, "newest first"
    line = here("log").out.splitlines()[0]
    assert line.startswith(f"{failed['id']}  ") and "not done" in line and "Create b.py nothing (mine: " in line
    assert "by mine" in here("show", failed["id"]).out
    assert [item["id"] for item in here("log", "--json", "--search", "b.py").document["items"]] == [failed["id"]]
    assert here("log", "--limit", "1").out.count("\n") == 1
    kinds = [item["kind"] for item in here("trace", "1.2", "--json").document["items"]]
    assert kinds == ["task", "delegation", "task"]


ID = re.compile(r"\b[a-z]-[a-z2-7]{8,16}\b")
PATCH = "--- a/old.py\n+++ b/old.py\n@@ -1 +1 @@\n-x = 0\n+x = 5\n"


@pytest.fixture
def busy(guarded: Any, write: Callable[[str], str]) -> tuple[Any, str]:
    """A workspace in which everything that has an id came about, and the simulation that was refused."""
    here = spoken(guarded, "Create a.py", "Create b.py nothing")
    assert here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1").status == 11
    simulation = here("simulate", write("intent: One\nsteps:\n  - write: n.txt\n    content: n\n"), "--json").document[
        "id"
    ]
    change = write("intent: Two\nsteps:\n  - write: m.txt\n    content: m\n")
    refused = here("simulate", change, "--json").document["id"]
    (here.directory / "m.txt").write_text("somebody's")
    assert here("execute", refused).status == 8
    (here.directory / "m.txt").unlink()
    assert here("approve", simulation).status == 0
    execution = here("execute", simulation, "--json").document["id"]
    assert here("undo", execution, "--yes").status == 0
    (here.directory / "change.patch").write_text(PATCH)
    assert here("apply", "change.patch", "--yes").status == 0
    (here.directory / "old.py").write_text("x = (\n")
    assert here.fresh("fix", "--agent", "mine", "--attempts", "1", "--yes").status != 0
    return here, refused


@pytest.mark.long
def test_every_id_that_is_printed_can_be_shown_and_traced(busy: tuple[Any, str]) -> None:
    """Whatever any command prints as an id, `show` and `trace` know: nobody is sent away with one."""
    here, refused = busy
    looks = [
        ("trace", refused),
        ("log",),
        ("tasks",),
        ("status",),
        ("patches",),
        ("audit",),
        ("doctor",),
        ("fix", "--past"),
        ("agents",),
    ]
    found: set[str] = {task["id"] for task in here("tasks", "--json").document["tasks"]}
    asked: set[tuple[str, ...]] = set()
    while looks:
        words = looks.pop()
        asked.add(words)
        for form in ((), ("--json",)):
            done = here(*words, *form)
            assert done.status == 0 or words[0] not in ("show", "trace"), (words, done.err)
            found |= set(ID.findall(done.out + done.err))
        for id in found:
            looks += [words for words in (("show", id), ("trace", id)) if {words}.isdisjoint({*asked, *looks})]
        found -= {id for id in found if id.startswith("w-")}
        looks = [words for words in looks if not words[-1].startswith("w-")]
    kinds = {id[:2] for id in found if ID.fullmatch(id)}
    assert kinds >= {"e-", "s-", "p-", "d-", "a-", "g-", "u-", "x-", "i-", "r-", "f-"}, kinds
    workspace = json.loads(here("gc", "--json").out)["id"]
    assert workspace.startswith("w-") and "is this workspace" in here("show", workspace).err


def test_nothing_in_a_line_moves_the_cursor_or_hides() -> None:
    """Colours, titles, links and clipboards are gone, an unended one takes no other line, the rest is spelled out."""
    assert plain_lines("\x1b[1;31mred\x1b[0m\x1b[2K") == ["red"]
    assert plain_lines("\x1b]8;;http://evil\x1b\\text\x1b]8;;\x1b\\") == ["text"]
    assert plain_lines("a\x1b]0;never ended\nb") == ["a", "b"]
    assert plain_lines("one\rtwo\r\nthree\u2028four") == ["one", "two", "three", "four"]
    assert plain_lines("\x9b31mc1\x9dtitle\x9c!") == ["c1!"]
    assert plain_lines("back\x08\x08space \u202eabc") == ["back\\x08\\x08space \\u202eabc"]


def test_what_an_agent_made_and_does_not_land_is_told(guarded: Any) -> None:
    """The first names, how many more, and the key that keeps one: in `show` of task and simulation, in `review` and in
    the transcript; the ledger has all of them."""
    here = spoken(guarded, "Create a.py")
    (here.directory / ".gitignore").write_text("*.tmp\nbuild/\n")
    script(here).write_text(SPEAKING + "import os\nos.mkdir('build')\nopen('build/out', 'w').write('x')\n"
                            "for n in range(4): open(f'{n}.tmp', 'w').write('x')\n")  # fmt: skip
    assert here.fresh("run", "--agent", "mine", "--ask", "after").status == 3
    line = "caches and ignored files are not landed: 0.tmp, 1.tmp, 2.tmp and 2 more  (to land one: [workspace] keep)"
    simulation = here("tasks", "--json").document["tasks"][0]["simulation"]
    for words in (["show", "1.1"], ["show", simulation], ["review"], ["show", "1.1", "--transcript"]):
        assert line in here(*words).out, words
    assert here("show", "1.1", "--json").document["left_out"] == ["0.tmp", "1.tmp", "2.tmp", "3.tmp", "build"]


def test_work_that_lacks_what_its_task_names_is_not_just_good(guarded: Any) -> None:
    """Transcript, `trace` and the delegation say what it lacks; what lacks nothing is good without a word more."""
    here = spoken(guarded, "Create a.py with a function `spam_eggs`", "Create b.py")
    assert here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1").status == 3
    lacks = "the task asks for `spam_eggs`, and nothing in the change defines it"
    told = here("show", "1.1", "--transcript").out
    assert f"mine: good, but {lacks}" in told and f"  Lacks     {lacks}" in told
    traced = here("trace", "1.1").out
    assert f"good, but {lacks}, by mine in 2 rounds" in traced
    (work,) = (line.split()[3] for line in traced.splitlines() if " delegation " in line)
    assert f"{work}  good, but {lacks}" in here("show", work).out
    assert "good, but" not in here("trace", "1.2").out + here("show", "1.2", "--transcript").out
