"""Plans of file steps and real commands, of which a dictionary says what they come to.

A command is made of acts, each with the meaning of a file step, said in the words of a shell or of Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from hypothesis import strategies as st

from guarded import Tree, put, swap
from holdfast.model.plan import Chmod, Create, Delete, FileStep, Inline, Move, Read, Run, Step, Symlink, Update, Write
from properties.dictionary_model import Impossible, Node, World, outcome

PYTHON = next(path for path in ("/usr/bin/python3", sys.executable) if os.access(path, os.X_OK))
PATHS = ("a", "b", "d", "d/a", "d/b", "d/deep/c", "e", "e/x", "new", "with space")
START: World = {
    "a": Node("file", 0o644, b"old a\n"),
    "b": Node("file", 0o755, b"#!/bin/sh\n"),
    "d": Node("directory", 0o755),
    "d/a": Node("file", 0o600, b"old d/a\n" * 40),
    "d/b": Node("symlink", content=b"a"),
    "d/deep": Node("directory", 0o750),
    "d/deep/c": Node("file", 0o640, b""),
    "link": Node("symlink", content=b"d/deep"),
}
# Directories stay open to their owner: a command in the sandbox has no rights beyond them.
_DIRECTORY_MODES, _FILE_MODES = (0o700, 0o755, 0o770), (0o600, 0o644, 0o755)

_path = st.sampled_from(PATHS)
_data = st.sampled_from([b"", b"one\n", b"two\n" * 500, b"\0\xff binary", b"old a\n"])
_acts: st.SearchStrategy[FileStep] = st.one_of(
    st.builds(put, _path, _data, st.sampled_from([None, *_FILE_MODES])),
    st.builds(Delete, _path, st.just(True)),
    st.builds(Move, _path, _path),
    st.builds(Chmod, _path, st.sampled_from(_FILE_MODES)),
    st.builds(Symlink, _path, st.sampled_from(["a", "nowhere", "../up"])),
    st.builds(Create, _path, st.booleans(), st.none()),
)
_file_steps = st.one_of(_acts, _acts, st.builds(swap, _path, _data, _data), st.builds(Read, _path))


@st.composite
def file_plans(draw: st.DrawFn) -> tuple[tuple[Step, ...], World]:
    """Steps that can all be done on START, and the world after them."""
    wanted = draw(st.lists(_file_steps, min_size=1, max_size=8))
    world, steps = dict(START), list[Step]()
    for step in wanted:
        world = _tried(world, [step], steps, None)
    return tuple(steps), world


@st.composite
def mixed_plans(draw: st.DrawFn) -> tuple[tuple[Step, ...], World]:
    """The same with commands between the file steps: at least one."""
    world, steps = dict(START), list[Step]()
    for before, inside in draw(st.lists(st.tuples(_parts(0), _parts(2)), min_size=1, max_size=2)):
        for step in before:
            world = _tried(world, [step], steps, None)
        world = _tried(world, inside, steps, draw(st.sampled_from(["sh", "python"])))
    for step in draw(_parts(0)):
        world = _tried(world, [step], steps, None)
    return tuple(steps), world


def _parts(least: int) -> st.SearchStrategy[list[FileStep]]:
    return st.lists(_acts, min_size=least, max_size=4)


def _tried(world: World, wanted: Sequence[FileStep], steps: list[Step], program: str | None) -> World:
    """Add what is possible of it to `steps`, in a command where a program is named; the world after it."""
    done: list[FileStep] = []
    for step in (_fitting(world, step) for step in wanted):
        try:
            world = outcome(world, (step,))
        except Impossible:
            continue
        done.append(step)
    if program is None:
        steps += done
    elif program == "sh":
        steps.append(Run(("/bin/sh", "-e", "-c", "\n".join(["umask 022", *map(_in_shell, done)]))))
    else:
        steps.append(Run((PYTHON, "-I", "-S", "-c", "\n".join([_PRELUDE, *map(_in_python, done)]))))
    return world


def _fitting(world: World, step: FileStep) -> FileStep:
    """A directory gets a directory's mode; an update names what is there."""
    there = world.get(step.path)
    if isinstance(step, Chmod) and there is not None and there.kind == "directory":
        return step._replace(mode=_DIRECTORY_MODES[_FILE_MODES.index(step.mode)])
    if isinstance(step, Update) and there is not None and there.kind == "file":
        return step._replace(old=there.content)
    return step


def _in_shell(step: FileStep) -> str:
    path = _quoted(step.path)
    match step:
        case Write(_, Inline(data), mode):
            octal = "".join(f"\\{byte:03o}" for byte in data)
            change = f"\nchmod {mode:o} {path}" if mode is not None else ""
            return f"{_parent(step.path)}\nprintf '{octal}' > {path}{change}"
        case Delete():
            return f"rm -rf {path}"
        case Move(_, to):
            return f"{_parent(to)}\nmv -T {path} {_quoted(to)}"
        case Chmod(_, mode):
            return f"chmod {mode:o} {path}"
        case Symlink(_, target):
            return f"{_parent(step.path)}\nln -sfn {_quoted(target)} {path}"
        case Create(_, directory):
            return f"{_parent(step.path)}\n{'mkdir' if directory else 'touch'} {path}"
    raise AssertionError(step)


_PRELUDE = """
import os, shutil
os.umask(0o022)
def above(path):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
def write(path, data, mode):
    # A file of its own that takes the place of the old one, as editors do it.
    above(path)
    kept = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else 0o644
    with open("beside.tmp", "wb") as file:
        file.write(data)
    os.chmod("beside.tmp", kept if mode is None else mode)
    os.replace("beside.tmp", path)
def delete(path):
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
def move(path, to):
    above(to)
    shutil.move(path, to)
def symlink(path, target):
    above(path)
    if os.path.islink(path):
        os.unlink(path)
    os.symlink(target, path)
def create(path, directory):
    above(path)
    os.mkdir(path) if directory else open(path, "x").close()
"""


def _in_python(step: FileStep) -> str:
    match step:
        case Write(path, Inline(data), mode):
            return f"write({path!r}, {data!r}, {mode})"
        case Delete(path):
            return f"delete({path!r})"
        case Move(path, to):
            return f"move({path!r}, {to!r})"
        case Chmod(path, mode):
            return f"os.chmod({path!r}, {mode})"
        case Symlink(path, target):
            return f"symlink({path!r}, {target!r})"
        case Create(path, directory):
            return f"create({path!r}, {directory})"
    raise AssertionError(step)


def _parent(path: str) -> str:
    return f"mkdir -p {_quoted(os.path.dirname(path) or '.')}"


def _quoted(path: str) -> str:
    return f"'{path}'"


def world_of(tree: Tree) -> World:
    """A workspace as the dictionary tells it."""
    return {
        path: Node(thing.kind, 0o777 if thing.kind == "symlink" else thing.mode, thing.content)
        for path, thing in tree.items()
    }
