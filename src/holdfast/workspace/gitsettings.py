"""What the user and the repository have configured, as far as a checkpoint needs it: read, never obeyed blindly.

Invariants
  S1  Reading starts no program: git lists its settings, and nothing in them is a command to `git config`.
  S2  Whether a stranger's repository is to be trusted stands in the user's and the host's settings only.
  S3  Names and addresses are one line without the signs that would end them in a commit.
  S4  Of files that settings name, only the attributes of the user and the host are shown to git: a regular file of
      a sensible size. A repository's own is not followed; it is told, as a filter may stand there.
  S5  How objects are named and references are kept is known, or the repository is left alone.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.disk.calls import Calls
from holdfast.errors import Blocked
from holdfast.model.path import printable
from holdfast.workspace.plumbing import around
from holdfast.workspace.trailers import one_line

_TRUE = frozenset({"", "true", "yes", "on", "1"})
_HASHES = {"sha1": "sha1", "sha256": "sha256"}
# Newer gits can be told a place as well, which could be anywhere.
_REFERENCES = frozenset({"files", "reftable"})
_ATTRIBUTES = "core.attributesfile"
_MOST_ATTRIBUTES = 1 << 24
# How line ends are turned, who may read what is written, and how a file is compared with its entry in the index:
# git decides by the last ones which entries it must look at again, and would lose sight of an edit otherwise.
_CARRIED = (
    "core.autocrlf",
    "core.eol",
    "core.sharedrepository",
    "core.filemode",
    "core.symlinks",
    "core.trustctime",
    "core.checkstat",
)
_OURS = frozenset({"system", "global"})


class Person(NamedTuple):
    name: str = "Holdfast"
    email: str = "holdfast@localhost"


class GitSettings(NamedTuple):
    """`carried` are settings under which git works for us too; none of them can name a program.

    `own_attributes` is the file of attributes that the repository itself names; it is not carried.
    """

    hashing: str
    bare: bool
    work_tree: str
    file_modes: bool
    author: Person
    committer: Person
    carried: tuple[tuple[str, str], ...]
    hooks: tuple[str, ...] = ()
    safe: tuple[str, ...] = ()
    own_attributes: str = ""

    def is_safe(self, top: str) -> bool:
        return any(named == "*" or os.path.realpath(os.path.expanduser(named)) == top for named in self.safe)


def read_settings(git_dir: str, top: str, calls: Calls) -> GitSettings:
    """All layers, the repository's last, as git would see them."""
    rows = around(git_dir, top, calls, _layers()).listed("config", "--list", "-z", "--show-scope", "--includes")
    scopes, items = rows[::2], rows[1::2]
    if len(scopes) != len(items):
        raise Blocked("git's settings cannot be understood")
    values: dict[str, str] = {}
    safe: list[str] = []
    hooks: list[str] = []
    own_attributes = ""
    for scope, item in zip(scopes, items, strict=True):
        key, found, value = os.fsdecode(item).partition("\n")
        ours = scope.decode() in _OURS
        if key == _ATTRIBUTES and not ours:
            own_attributes = value
            continue  # S4
        values[key] = value if found else "true"
        if key == "safe.directory" and ours:
            safe = [*safe, value] if value else []  # S2; an empty one takes back those before
        if key.startswith("hook.") and not ours:
            hooks.append(printable(key))
    return _settings(values, top)._replace(hooks=tuple(hooks), safe=tuple(safe), own_attributes=own_attributes)


def _settings(values: Mapping[str, str], top: str) -> GitSettings:
    hashing = _HASHES.get(values.get("extensions.objectformat", "sha1"))
    if hashing is None:
        raise Blocked(f"objects are named by {printable(values['extensions.objectformat'])}, which is not known")
    references = values.get("extensions.refstorage", "files")
    if references not in _REFERENCES:
        raise Blocked(f"references are kept in {printable(references)}, which is not known")  # S5
    attributes = _attributes_file(values, top)
    named = [(_ATTRIBUTES, attributes)] if attributes else []
    carried = [(name, values[name]) for name in _CARRIED if name in values]
    return GitSettings(
        hashing=hashing,
        bare=values.get("core.bare", "false").lower() in _TRUE,
        work_tree=values.get("core.worktree", ""),
        file_modes=values.get("core.filemode", "true").lower() in _TRUE,
        author=_person(values, "author"),
        committer=_person(values, "committer"),
        carried=(*carried, *named),
    )


def _person(values: Mapping[str, str], role: str) -> Person:
    name = _plain(values.get(f"{role}.name", values.get("user.name", "")))
    email = _plain(values.get(f"{role}.email", values.get("user.email", "")))
    return Person(name or Person().name, email or Person().email) if name or email else Person()


def _plain(text: str) -> str:
    # Git refuses these signs in a name, and drops dots and such at its ends.
    return one_line(text.replace("<", "").replace(">", "")).strip(" .,:;\"'\\")


def _attributes_file(values: Mapping[str, str], top: str) -> str:
    """S4; empty where there is none. One that cannot be used is an error: a filter may stand in it."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    named = values.get(_ATTRIBUTES, "") or os.path.join(base, "git/attributes")
    path = os.path.join(top, os.path.expanduser(named))
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        raise Blocked(f"git's attributes in {printable(path)} cannot be read: {error.strerror}") from error
    if path == os.devnull:
        return ""
    if not stat.S_ISREG(found.st_mode) or found.st_size > _MOST_ATTRIBUTES:
        raise Blocked(f"{printable(path)} is no file of attributes, but git's settings name it")
    return path


def _layers() -> dict[str, str]:
    """Where the user's and the host's settings are: the only time that git is shown them. Empty means git's default."""
    names = ("XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL")
    shown = {name: os.environ.get(name, "") for name in names}
    return {**shown, "HOME": os.path.expanduser("~"), "GIT_CONFIG_NOSYSTEM": ""}
