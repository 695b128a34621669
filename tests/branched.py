"""What is the person's own while something goes on on a branch, and what stands on the branch."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from roadmapped import git

CHANGE = 'intent: Add b\nsteps:\n  - write: b.py\n    content: "y = 2\\n"\n'


class Person(NamedTuple):
    """Their files but the state, their index, and what is checked out."""

    files: dict[str, bytes]
    index: bytes
    head: str
    stash: str


def person(program: Any) -> Person:
    top: Path = program.directory
    found = (path for path in sorted(top.rglob("*")) if path.is_file())
    files = {
        str(name): path.read_bytes()
        for path in found
        if (name := path.relative_to(top)).parts[0] not in (".git", ".holdfast")
    }
    index = (top / ".git" / "index").read_bytes()
    return Person(files, index, git(program, "rev-parse", "HEAD"), git(program, "stash", "list"))


def kept(program: Any) -> Path:
    """The only work tree that is kept."""
    (tree,) = (path for path in (program.directory / ".holdfast" / "branches").iterdir() if path.is_dir())
    return Path(tree)


def titles(program: Any, branch: str) -> list[str]:
    return git(program, "log", "--format=%s", "--reverse", branch).splitlines()


def change(program: Any, text: str = CHANGE) -> str:
    path = Path(program.directory).parent / "change.yaml"
    path.write_text(text)
    return str(path)
