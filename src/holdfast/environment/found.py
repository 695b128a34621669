"""What was found of the user's environment, and how parts of it are put together."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Environment(NamedTuple):
    """Paths are absolute.

    `path` are folders that come first on PATH. `readable` are shown at their own places, never writable.
    `overlaid` are caches that programs may write to; what they wrote is gone when they end.
    `hidden` are files of credentials that lie in what is shown; they look empty.
    `tools` says what was chosen and why, `remarks` what was found and is not shown, a sentence each.
    """

    path: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    overlaid: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def python(self) -> str:
        """Which one it is, and which others were found and are not shown, with the reasons."""
        chosen = next((tool for tool in self.tools if tool.startswith("Python")), "the Python that is there")
        return "; ".join((chosen, *(remark for remark in self.remarks if " is not shown: " in remark)))

    def around(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The variables of a program: its own count, and its PATH comes after ours."""
        return {**dict(self.variables), **variables, "PATH": self.before(variables.get("PATH", ""))}

    def before(self, path: str) -> str:
        """A PATH that begins with ours; relative entries name whatever stands in the current directory."""
        return ":".join(_once((*self.path, *(entry for entry in path.split(":") if entry.startswith("/")))))


NOTHING_FOUND = Environment()


def together(parts: Iterable[Environment]) -> Environment:
    """All of them; where two name the same variable, the first one counts."""
    found = tuple(parts)
    variables: dict[str, str] = {}
    for part in found:
        for name, value in part.variables:
            variables.setdefault(name, value)
    return Environment(
        path=_once(entry for part in found for entry in part.path),
        variables=tuple(variables.items()),
        readable=_once(entry for part in found for entry in part.readable),
        hidden=_once(entry for part in found for entry in part.hidden),
        overlaid=_once(entry for part in found for entry in part.overlaid),
        tools=_once(entry for part in found for entry in part.tools),
        remarks=_once(entry for part in found for entry in part.remarks),
    )


class Shell(NamedTuple):
    """What the user's own shell says: the only voice that is believed. `home` is theirs, whatever runs inside."""

    variables: Mapping[str, str]
    home: str

    def absolute(self, name: str) -> str:
        """A variable that names a place, normalised; empty where it names none."""
        value = self.variables.get(name, "")
        return plain(value) if value.startswith("/") else ""

    @property
    def search_path(self) -> tuple[str, ...]:
        """Relative and empty entries name whatever stands in the current directory."""
        entries = self.variables.get("PATH", "").split(":")
        return _once(plain(entry) for entry in entries if entry.startswith("/"))


def plain(path: str) -> str:
    """An absolute path, normalised as the sandbox wants it: also two slashes at its beginning become one."""
    return "/" + os.path.normpath(path).lstrip("/")


def _once(entries: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(entries))
