"""What is interrupted: a tree with every oddity, and changes that together use every action, as data.

A scenario is steps and a manner:

    manner      arranged beforehand (not interrupted)       interrupted                      ends as
    ─────────────────────────────────────────────────────────────────────────────────────────────────
    apply       nothing                                     the steps                        new tree
    unhealthy   nothing                                     the steps, then a failing check  old tree
    undo        the steps                                   their undo                       new tree
    redo        the steps and their undo                    the undo of the undo             new tree
    merge       the steps, then an edit by a person         their undo, keeping the edit     new tree
    restore     the steps in two executions                 going back over both at once     new tree

"New" is what one uninterrupted run leaves; for an undo that is the tree before the steps.
"""

from __future__ import annotations

import os
from typing import Literal, NamedTuple

from holdfast import Holdfast
from holdfast.engine.checking import ShadowKind
from holdfast.errors import VerificationFailed
from holdfast.model.plan import (
    Agent,
    Chmod,
    CommandCheck,
    Create,
    Delete,
    Inline,
    Move,
    Plan,
    Read,
    Run,
    Step,
    Symlink,
    Update,
    Write,
)
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import EditFile, Shell, WriteFile

Manner = Literal["apply", "unhealthy", "undo", "redo", "merge", "restore"]
_DATED_NS = 1_000_000_000 * 10**9  # a day in 2001; see walker.RECENT_NS
_FOREIGN = (1234, 2345)
ODD_NAME = "caf\udce9 \u2603.txt"  # the first letter after "caf" is one byte that is not UTF-8
SITE = b"host = here\nport = 80\n\n# tuning\nthreads = 4\ndebug = no\n"
SITE_NEW = SITE.replace(b"port = 80", b"port = 8080")
BIG = bytes(range(256)) * 600


class Scenario(NamedTuple):
    name: str
    manner: Manner
    steps: tuple[Step, ...]
    shadow: ShadowKind = "auto"

    @property
    def has_program(self) -> bool:
        return any(isinstance(step, Run | Agent) for step in self.steps)

    @property
    def ends_new(self) -> bool:
        return self.manner != "unhealthy"


FILES: dict[str, tuple[bytes, int]] = {
    "a.txt": (b"alpha\n", 0o644),
    "b.txt": (b"beta\n", 0o600),
    "big.bin": (BIG, 0o444),
    "run.sh": (b"#!/bin/sh\n", 0o644),
    "conf/site.conf": (SITE, 0o640),
    "conf/old.conf": (b"old\n", 0o604),
    "conf/limits.conf": (b"max = 10\n", 0o664),
    "deep/one/two/leaf.txt": (b"leaf\n", 0o660),
    "deep/one/side.txt": (b"side\n", 0o644),
    "pile/x": (b"x\n", 0o644),
    "pile/y": (b"y\n", 0o644),
    "turn": (b"a file that becomes a directory\n", 0o644),
    "locked/inside.txt": (b"in a directory nobody may write\n", 0o400),
    "bystander.txt": (b"not touched by any scenario\n", 0o644),
    ODD_NAME: (b"odd name\n", 0o644),
}
DIRECTORIES = {"empty": 0o711, "pile/hollow": 0o755, "sticky": 0o1777, "deep/one": 0o750, "locked": 0o500}
LINKS = {"link": "conf/site.conf", "dangling": "nowhere", "deep/up": "../a.txt"}
XATTRS = {"b.txt": ("user.note", b"keep me"), "empty": ("user.dir", b"\x00\xff"), "conf/site.conf": ("user.a", b"")}

_ONE: tuple[Step, ...] = (Update("a.txt", b"alpha\n", Inline(b"ALPHA\n")),)
_FEW: tuple[Step, ...] = (
    Write("new.txt", Inline(b"new\n"), 0o600),
    Write("b.txt", Inline(b"BETA\n")),
    Update("conf/site.conf", SITE, Inline(SITE_NEW)),
    Delete("conf/old.conf"),
    Move("big.bin", "conf/moved.bin"),
    Chmod("run.sh", 0o755),
    Symlink("current", "conf"),
    Read("conf/limits.conf"),
)
_FOLDERS: tuple[Step, ...] = (
    Create("fresh", True, 0o500),
    Write("fresh/inside.txt", Inline(b"inside\n")),
    Chmod("empty", 0o700),
    Delete("pile", recursive=True),
    Chmod("sticky", 0o555),
)
_TYPES: tuple[Step, ...] = (
    Delete("turn"),
    Write("turn/over.txt", Inline(b"a directory now\n")),
    Delete("pile", recursive=True),
    Write("pile", Inline(b"a file now\n")),
    Symlink("link", "a.txt"),
)
_MODES: tuple[Step, ...] = (
    Chmod("run.sh", 0o711),
    Chmod("empty", 0o500),
    Chmod("b.txt", 0o640),
    Chmod("deep/one", 0o700),
)
_MANY: tuple[Step, ...] = (
    *_FEW,
    *_FOLDERS,
    Delete("turn"),
    Write("turn/over/it.txt", Inline(b"deeper\n")),
    Move("deep", "shallow/deep"),
    Delete("dangling"),
    Symlink("link", ODD_NAME),
    Create("blank", False, 0o640),
    Move(ODD_NAME, "odd/\udcff"),
    Chmod("a.txt", 0o400),
)
# What a program does to the tree: edits, makes, moves, removes, at the top and below.
_SCRIPT = """\
echo more >> a.txt
mkdir -p made/deep
cp a.txt made/deep/copy
mv conf/old.conf made/moved.conf
rm -r pile
rm turn; mkdir turn; echo inside > turn/file
ln -s a.txt made/link
chmod 755 run.sh
"""
_RUN: tuple[Step, ...] = (
    Write("new.txt", Inline(b"new\n"), 0o600),
    Run(("/bin/sh", "-e", "-c", _SCRIPT)),
    Write("made/deep/later", Inline(b"later\n")),
    Run(("/bin/sh", "-e", "-c", "cat new.txt made/deep/later > made/both; rm made/link")),
)
_AGENT: tuple[Step, ...] = (
    Write("new.txt", Inline(b"new\n"), 0o600),
    Agent("scripted", "Tidy up.", expected=("made/deep/copy",), attempts=1, within_ms=60_000),
)
_WORKER = ScriptedAgent(
    EditFile("a.txt", "alpha", "ALPHA"),
    WriteFile("made/by-agent.txt", "made\n"),
    Shell(("/bin/sh", "-e", "-c", _SCRIPT)),
)

SCENARIOS = (
    Scenario("one", "apply", _ONE),
    Scenario("few", "apply", _FEW),
    Scenario("folders", "apply", _FOLDERS),
    Scenario("types", "apply", _TYPES),
    Scenario("modes", "apply", _MODES),
    Scenario("many", "apply", _MANY),
    Scenario("few-unhealthy", "unhealthy", _FEW),
    Scenario("many-unhealthy", "unhealthy", _MANY),
    Scenario("few-undo", "undo", _FEW),
    Scenario("types-undo", "undo", _TYPES),
    Scenario("many-undo", "undo", _MANY),
    Scenario("few-redo", "redo", _FEW),
    Scenario("many-redo", "redo", _MANY),
    Scenario("few-merge", "merge", _FEW),
    Scenario("many-restore", "restore", _MANY),
    Scenario("run", "apply", _RUN),
    Scenario("run-copy", "apply", _RUN, "copy"),
    Scenario("run-unhealthy", "unhealthy", _RUN),
    Scenario("run-undo", "undo", _RUN),
    Scenario("agent", "apply", _AGENT),
)
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


def make_tree(root: str) -> None:
    """The fixture, dated in 2001."""
    os.mkdir(root, 0o755)
    for path, (data, mode) in FILES.items():
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "xb") as file:
            file.write(data)
            os.fchmod(file.fileno(), mode)
    for path, target in LINKS.items():
        os.symlink(target, os.path.join(root, path))
    for path in DIRECTORIES:
        os.makedirs(os.path.join(root, path), exist_ok=True)
    for path, (name, value) in XATTRS.items():
        os.setxattr(os.path.join(root, path), name, value)
    if os.geteuid() == 0:
        for path in ("b.txt", "conf/limits.conf", "deep/one", "link"):
            os.chown(os.path.join(root, path), *_FOREIGN, follow_symlinks=False)
    for path, mode in DIRECTORIES.items():
        os.chmod(os.path.join(root, path), mode)
    _date_everything(root)


def arrange(scenario: Scenario, hf: Holdfast) -> None:
    """What comes before the interruption."""
    if scenario.manner in ("apply", "unhealthy"):
        return
    halves = (scenario.steps[:3], scenario.steps[3:]) if scenario.manner == "restore" else (scenario.steps,)
    for steps in halves:
        _carry_out(hf, Plan("arranged", steps), scenario.shadow)
    if scenario.manner == "redo":
        hf.undo(hf.log(limit=1)[0].id, approved_by="me")
    if scenario.manner == "merge":
        with open(os.path.join(hf.path, "conf/site.conf"), "ab") as file:
            file.write(b"# a person was here\n")


def act(scenario: Scenario, hf: Holdfast) -> None:
    """What is interrupted. Returns when the change is acknowledged; raises when it failed, except as planned."""
    if scenario.manner == "apply":
        _carry_out(hf, Plan("under test", scenario.steps), scenario.shadow)
    elif scenario.manner == "unhealthy":
        try:
            plan = Plan("under test", scenario.steps, health=(CommandCheck(("false",), 1),))
            _carry_out(hf, plan, scenario.shadow)
        except VerificationFailed:
            return
        raise AssertionError("a failing health check let the change pass")
    elif scenario.manner == "restore":
        hf.restore(hf.log()[-1].at_ns - 1, approved_by="crash")
    else:
        taken_back(hf, hf.log(limit=1)[0].id)


def taken_back(hf: Holdfast, id: str) -> None:
    """Undone, with the consent that a redo needs where its risk is high."""
    way = hf.preview_undo(id)
    hf.go_back(way, approved_by="crash", consent=hf.again(way).plan.id if way.job.revives else "")


def _carry_out(hf: Holdfast, plan: Plan, shadow: ShadowKind) -> None:
    simulated = hf.simulate(plan, shadow=shadow, agents={_WORKER.name: _WORKER})
    hf.execute(simulated, approved_by="crash", consent=plan.id)


def _date_everything(root: str) -> None:
    """Distinct times for everything, children before parents, so that setting one does not disturb another."""
    number = 0
    for directory, _, files in os.walk(root, topdown=False):
        links = [name for name in os.listdir(directory) if os.path.islink(os.path.join(directory, name))]
        for path in (*(os.path.join(directory, name) for name in {*files, *links}), directory):
            number += 1
            stamp = _DATED_NS + number * 1_000_000_007
            os.utime(path, ns=(stamp, stamp), follow_symlinks=False)
