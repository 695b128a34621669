"""The one question: what of the user's environment do programs inside get?

    what the shell says ────┐
    files of the project ───┼─▶ Python, Node, Rust, Go, Maven ─▶ Environment: PATH, variables, what is shown or covered
    [environment] readable ─┘

Invariants
  N1  Only the user's shell and their own configuration are believed. What files of a repository say is a name that is
      looked up among what the user has installed; it never makes a place visible (see `prefixes`).
  N2  Nothing is started: tools that could answer would run code of the repository.
  N3  No variable is handed on but those made here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from holdfast.environment.found import Environment, Shell, plain, together
from holdfast.environment.prefixes import covers_of
from holdfast.environment.python import python_of
from holdfast.environment.tools import tools_of


def environment_of(
    shell: Shell, workspace: str, projects: Iterable[str] = ("",), readable: Sequence[str] = ()
) -> Environment:
    """For a workspace by its real place. `readable` is the user's own word, and needs no other proof."""
    roots = tuple(dict.fromkeys(("", *projects)))
    found = together((python_of(shell, workspace, roots), tools_of(shell, workspace, roots)))
    covers = Environment(hidden=tuple(covers_of(found.readable)))
    return together((found, covers, Environment(readable=tuple(readable))))


def this_shell() -> Shell:
    return Shell(dict(os.environ), plain(os.path.expanduser("~")))
