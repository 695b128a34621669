"""What an agent asks its model, taped and played again without one: through the whole product, by configuration."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from delegated import asking_agent, configured
from holdfast.testing import ScriptedModel
from holdfast.testing.script import Say

NOBODY = "http://127.0.0.1:9"
TASK = "Write down what the model says."
APPLY = ("apply", TASK, "--agent", "mine", "--attempts", "1", "--yes", "--json")
# Has the shape of a key, and opens nothing.
SHAPED = "sk-ant-" + "x9" * 20


@pytest.fixture
def here(guarded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.delenv("LOCAL_MODEL_KEY", raising=False)
    return guarded


def recorded(here: Any, tapes: Path, monkeypatch: pytest.MonkeyPatch, *said: str, times: int = 1) -> ScriptedModel:
    """A task done with a model that says so, and taken back again."""
    with ScriptedModel(*map(Say, said)) as model:
        monkeypatch.setenv("LOCAL_MODEL_KEY", model.key)
        configured(asking_agent(model.url, times=times, more=f'record = "{tapes}"'))
        done = here(*APPLY)
        assert done.status == 0, done.err
    assert here("undo", done.document["id"], "--yes").status == 0
    monkeypatch.delenv("LOCAL_MODEL_KEY")
    return model


def replaying(tape: Path, *, times: int = 1, model: str = "scripted") -> None:
    configured(asking_agent(NOBODY, times=times, model=model, more=f'replay = "{tape}"'))


def delegations(here: Any) -> list[dict[str, Any]]:
    lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
    entries = (json.loads(line) for line in lines)
    return [entry["body"] for entry in entries if entry["kind"] == "delegation"]


def test_a_run_is_recorded_and_played_again_without_a_model(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same work lands, counted alike, with nobody to ask and no key; the transcript says where it came from."""
    tapes = tmp_path / "tapes"
    model = recorded(here, tapes, monkeypatch, "forty-two")
    (tape,) = tapes.iterdir()
    assert (tapes.stat().st_mode & 0o777, tape.stat().st_mode & 0o777) == (0o700, 0o600)
    for place in (tapes, tape):
        replaying(place)
        assert not (here.directory / "answer.txt").exists()
        done = here(*APPLY)
        assert done.status == 0, done.err
        assert (here.directory / "answer.txt").read_text() == "forty-two"
        assert here("undo", done.document["id"], "--yes").status == 0
    assert len(model.seen) == 1
    first, *later = delegations(here)
    assert len(later) == 2
    for entry in later:
        assert entry["usage"] == first["usage"]
        digest = entry["asked"]
        transcript = (here.directory / ".holdfast/objects" / digest[:2] / digest[2:]).read_text()
        assert "from a tape" in transcript


def test_a_replaying_agent_needs_no_key_and_says_so(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`holdfast agents` calls it usable, and by a tape."""
    recorded(here, tmp_path / "tapes", monkeypatch, "x")
    replaying(tmp_path / "tapes")
    found = {item["name"]: item for item in here("agents", "--json").document["items"]}["mine"]
    assert (found["usable"], found["replayed"]) == (True, True)
    assert "a tape answers" in here("agents").out


def test_neither_key_nor_token_nor_secret_is_on_a_tape(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer with what looks like a secret is left out; played again its question is refused, with that reason."""
    tapes = tmp_path / "tapes"
    with ScriptedModel(Say(f"the key is {SHAPED}")) as model:
        monkeypatch.setenv("LOCAL_MODEL_KEY", model.key)
        configured(asking_agent(model.url, more=f'record = "{tapes}"'))
        assert here(*APPLY).status == 3  # the gate asks about secrets too
    text = next(tapes.iterdir()).read_text()
    assert SHAPED not in text and model.key not in text and "hf-" not in text
    assert json.loads(text.splitlines()[1])["left_out"]
    replaying(tapes)
    done = here(*APPLY)
    assert done.status == 11
    assert "not on tape: its answer held what looks like a secret" in done.document["error"]["message"]
    assert not (here.directory / "answer.txt").exists()


def test_what_was_not_asked_before_is_refused(here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 11 with the reason, nothing changed, and nobody was asked although there is somebody."""
    recorded(here, tmp_path / "tapes", monkeypatch, "x")
    with ScriptedModel(Say("no")) as model:
        monkeypatch.setenv("LOCAL_MODEL_KEY", model.key)
        configured(asking_agent(model.url, model="another", more=f'replay = "{tmp_path / "tapes"}"'))
        done = here(*APPLY)
    assert (done.status, done.document["error"]["changed"]) == (11, False)
    assert "not on tape: this request was not recorded" in done.document["error"]["message"]
    assert model.seen == []


def test_a_question_refused_after_others_were_answered_fails_the_task(
    here: Any, tmp_path: Path, tree: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that goes on without that answer, and ends well, did not do what was recorded: exit 11, with why."""
    recorded(here, tmp_path / "tapes", monkeypatch, "x")
    configured(asking_agent(NOBODY, times=2, on_error=0, more=f'replay = "{tmp_path / "tapes"}"'))
    program = Path(os.environ["HOME"]) / "asking.py"
    program.write_text(program.read_text().replace('"x" * 400', '"x" * (400 + number)'))
    before = tree()
    done = here(*APPLY)
    assert done.status == 11, done.document
    assert "not on tape: this request was not recorded" in done.document["error"]["message"]
    assert tree() == before


def test_tapes_of_several_tasks_are_played_in_their_order(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same question, answered otherwise by the second task: two requests get both answers, the first one first."""
    for said in ("one", "two"):
        recorded(here, tmp_path / "tapes", monkeypatch, said)
    assert len(list((tmp_path / "tapes").iterdir())) == 2
    for times, said in ((1, "one"), (2, "two")):
        replaying(tmp_path / "tapes", times=times)
        done = here(*APPLY)
        assert (here.directory / "answer.txt").read_text() == said
        assert here("undo", done.document["id"], "--yes").status == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ('record = "/x"\nreplay = "/y"', "and record cannot both be given"),
        ('record = "tapes"', "must be an absolute path"),
        ('replay = "/no/such/tape"', "there is no tape at /no/such/tape"),
        ('replay = "{tmp}/empty"', "there is no tape in"),
        ('replay = "{tmp}/damaged"', "line 2 of the tape cannot be read"),
        ('replay = "{tmp}/other"', "not a tape of version"),
        ('replay = "{tmp}/links"', "it is a link"),
        ('record = "{tmp}/no/such/folder"', "nothing can be recorded in"),
    ],
)
def test_what_is_no_tape_is_refused_before_anything_is_started(
    here: Any, tmp_path: Path, tree: Any, monkeypatch: pytest.MonkeyPatch, more: str, told: str
) -> None:
    """Exit 2, with the reason."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "links").mkdir()
    (tmp_path / "damaged").write_text('{"tape": "holdfast/1"}\nnot JSON\n')
    (tmp_path / "other").write_text('{"tape": "holdfast/9"}\n')
    (tmp_path / "links" / "a.jsonl").symlink_to(tmp_path / "other")
    monkeypatch.setenv("LOCAL_MODEL_KEY", "any")
    configured(asking_agent(NOBODY, more=more.replace("{tmp}", str(tmp_path))))
    before = tree()
    done = here(*APPLY)
    assert (done.status, told in done.document["error"]["message"]) == (2, True), done.document
    assert tree() == before


def test_a_project_cannot_have_anything_recorded(here: Any, tmp_path: Path) -> None:
    """Tapes are for the user's own configuration to name, like everything about agents."""
    (here.directory / "holdfast.toml").write_text(f'[agents.mine]\nrecord = "{tmp_path}/tapes"\n')
    assert here(*APPLY).status == 2
    assert not (tmp_path / "tapes").exists()
