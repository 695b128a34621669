"""Ctrl-C and a full disk tell what this very process did, and nothing of what others do beside it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from guarded import Ground, guard, put
from holdfast.cli.opening import changing
from holdfast.cli.screen import Screen
from holdfast.cli.verbs import Face, Options
from holdfast.errors import HoldfastError, Interrupted
from roadmapped import wait_until


def _slow(guarded: Any) -> subprocess.Popen[bytes]:
    """A change whose check sleeps in its shadow, once the check has begun; nothing is landed or locked meanwhile."""
    begun = Path(guarded.directory) / ".holdfast" / "shadows"
    check = {"run": ["sleep", "31"], "within": "60s"}
    change = {"intent": "slow", "steps": [{"write": "slow", "content": "1"}], "verify": [check]}
    file = Path(guarded.directory).parent / "slow.json"
    file.write_text(json.dumps(change))
    process: subprocess.Popen[bytes] = guarded.start(
        "apply", str(file), "--yes", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    wait_until(lambda: begun.exists() and any(begun.iterdir()))
    return process


def test_ctrl_c_does_not_tell_of_others(guarded: Any) -> None:
    """Somebody else lands something meanwhile: Ctrl-C says that nothing was changed, and offers no undo of theirs."""
    process = _slow(guarded)
    theirs = guarded.apply({"intent": "theirs", "steps": [{"write": "theirs", "content": "1"}]})
    assert theirs.status == 0
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    told = error.decode()
    assert process.returncode == 130
    assert theirs.document["id"] not in told
    assert "undo" not in told.lower()
    assert "Nothing was changed." in told
    assert not (guarded.directory / "slow").exists()


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ground:
    made = guard(tmp_path / "workspace")
    monkeypatch.chdir(made.path)
    return made


def _told(ground: Ground, *, mine: bool, theirs: bool, error: BaseException) -> tuple[HoldfastError | OSError, str]:
    """What a verb says that is stopped by this error, after what it and somebody else have landed."""
    face, id = Face(Options(".", 0.0), Screen("json", colour=False)), ""
    try:
        with changing(face) as hf:
            if mine:
                id = hf.execute(hf.simulate(ground.plan(put("mine", b"1"))), approved_by="me").id
            if theirs:
                (other := Ground(ground.path)).apply(put("theirs", b"1"))
                other.hf.close()
            raise error
    except (HoldfastError, OSError) as told:
        return told, id


def test_ctrl_c_tells_of_its_own(ground: Ground) -> None:
    """What this process landed is told with its undo, also where somebody else landed something after it."""
    told, mine = _told(ground, mine=True, theirs=True, error=KeyboardInterrupt())
    assert isinstance(told, Interrupted)
    assert told.changed
    assert told.message == f"Interrupted, but {mine} had landed already."
    assert told.hint == f"Undo with: holdfast undo {mine}"


def test_a_full_disk_tells_of_its_own(ground: Ground) -> None:
    """Somebody else's landing is none of this process: nothing was changed; its own is: that is not claimed."""
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    told, _ = _told(ground, mine=False, theirs=True, error=full)
    assert "Nothing in the workspace was changed." in getattr(told, "hint", "")
    told, _ = _told(ground, mine=True, theirs=False, error=full)
    assert told is full


def _defective(ground: Ground, screen: Screen, error: Exception, *, mine: bool) -> None:
    with changing(Face(Options(".", 0.0), screen)) as hf:
        if mine:
            hf.execute(hf.simulate(ground.plan(put("mine", b"1"))), approved_by="me")
        raise error


@pytest.mark.parametrize("error", [ZeroDivisionError("by zero"), OSError(errno.EIO, os.strerror(errno.EIO))])
@pytest.mark.parametrize("mine", [False, True])
def test_a_defect_tells_of_its_own(
    ground: Ground, capsys: pytest.CaptureFixture[str], mine: bool, error: Exception
) -> None:
    """What nobody foresaw, after this process landed something: its document does not say that nothing was changed."""
    screen = Screen("json", colour=False)
    with pytest.raises(type(error)):
        _defective(ground, screen, error, mine=mine)
    capsys.readouterr()
    screen.failure(HoldfastError("internal error"))
    assert json.loads(capsys.readouterr().out)["error"]["changed"] is mine
