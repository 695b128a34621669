"""A repository to make checkpoints in: real git, real files, and landings described by what is really on the disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.disk.calls import CALLS, Calls
from holdfast.model.changeset import Change, change_set
from holdfast.model.image import Image
from holdfast.workspace.checkpoint import Commit, Landing, Trailers, checkpoint
from holdfast.workspace.gitcontent import Kept, nothing_kept
from holdfast.workspace.observe import observe
from holdfast.workspace.repository import Repository

AT = 1_700_000_000
FILES = {"a.txt": b"one\n", "src/b.py": b"b = 1\n", "src/c.py": b"c = 1\n", "run.sh": b"#!/bin/sh\n"}


class Link(NamedTuple):
    target: str


class Program(NamedTuple):
    data: bytes


Thing = bytes | Link | Program | None


def users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str = "Ann") -> None:
    """A home of the user's with settings for git; there are no others."""
    (tmp_path / "home").mkdir()
    for variable in ("GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home/.gitconfig").write_text(f"[user]\nname = {name}\nemail = ann@example.org\n")


def git(place: Path, *words: str) -> str:
    """The user's own git, with the user's settings."""
    command = ["git", "-C", str(place), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, errors="surrogateescape").stdout


def repository(place: Path, files: Mapping[str, Thing] = FILES, *options: str) -> Path:
    """A new repository with one commit."""
    place.mkdir(parents=True, exist_ok=True)
    git(place, "init", "-q", "-b", "main", *options)
    for path, thing in files.items():
        put(place, path, thing)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "first")
    return place


def put(place: Path, path: str, thing: Thing) -> None:
    target = place / path
    if target.is_symlink() or target.is_file():
        target.unlink()
    if thing is None:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(thing, Link):
        target.symlink_to(thing.target)
        return
    target.write_bytes(thing.data if isinstance(thing, Program) else thing)
    target.chmod(0o755 if isinstance(thing, Program) else 0o644)


def image(place: Path, path: str) -> Image | None:
    directory = (place / path).parent
    if not directory.is_dir():
        return None
    fd = os.open(directory, os.O_RDONLY)
    try:
        seen = observe(CALLS, fd, os.path.basename(path), wait=False)
    finally:
        os.close(fd)
    return seen.image if seen else None


def landed(
    place: Path, edits: Mapping[str, Thing], execution: str = "x-1", message: str = "Do it", kept: Kept = nothing_kept
) -> Landing:
    """Make the edits in the work tree, and say what landed."""
    before = {path: image(place, path) for path in edits}
    for path, thing in edits.items():
        put(place, path, thing)
    changes = change_set(Change(path, before[path], image(place, path)) for path in edits)
    trailers = Trailers(execution, changes.digest, "t-1", "r-1", "claude")
    return Landing(changes.changes, message, trailers, AT, kept)


def at(place: Path, calls: Calls = CALLS, *, wait: float = 5.0) -> Repository:
    found = Repository.at(str(place), calls, wait=wait)
    assert found is not None
    return found


def committed(place: Path, edits: Mapping[str, Thing], execution: str = "x-1") -> Commit:
    commit = checkpoint(at(place), landed(place, edits, execution))
    assert commit is not None
    return commit


def commits(place: Path, execution: str = "x-1") -> int:
    """How many commits of what is checked out carry this execution."""
    return git(place, "log", "--format=%(trailers:key=Holdfast-Execution,valueonly)").split().count(execution)


def leftovers(place: Path) -> list[str]:
    """What a checkpoint must never leave in the git directory."""
    found = [path for path in (place / ".git").rglob("*") if path.name.endswith(".lock") or "holdfast" in path.name]
    return [str(path) for path in found]
