"""Which directories of programs may be shown.

A repository can hold a forged `.venv`, `pyvenv.cfg`, `.python-version` or link. So whatever says where a program is,
its directory is shown only if all of this holds:

  E1  It has the shape of an installation: the files that each of its kind has.
  E2  The user or root owns it, and nobody else can write to it.
  E3  It holds no home, no workspace, none of our own directories, and it does not lie among secrets.
  E4  Files of credentials that are known to lie in such installations are covered.
  E5  Other environments that a Python keeps inside of it, as conda and pyenv do, are covered.
"""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.disk.homes import config_home, state_home
from holdfast.sandbox.shown import SYSTEM, within

# Below a home; nothing that can be run is kept in these.
_SECRETS = """.ssh .gnupg .aws .azure .kube .docker .config/gcloud .config/gh .config/op .password-store .mozilla .pki
    .local/share/keyrings .config/holdfast .local/state/holdfast""".split()
# E4, relative to an installation.
_CREDENTIALS = """pip.conf pip.ini .condarc condarc .pypirc .netrc .npmrc etc/npmrc conda-meta/state
    etc/conda/activate.d bin/postactivate bin/preactivate
    .env .git .git-credentials .ssh .aws .docker lib/node_modules/npm/npmrc lib/node_modules/npm/.npmrc""".split()
_MOST_LINKS = 16


class Home(NamedTuple):
    """Whose things must not be shown: their home, and the workspace, which has covers of its own."""

    home: str
    workspace: str


def is_system(path: str) -> bool:
    """Is it in every sandbox already?"""
    return any(within(path, place) for place in SYSTEM)


def may_be_shown(prefix: str, home: Home) -> bool:
    """E2 and E3, for a directory that was resolved."""
    if prefix in ("", "/") or not os.path.isabs(prefix) or os.path.realpath(prefix) != prefix:
        return False
    try:
        about = os.stat(prefix)
    except OSError:
        return False
    if not stat.S_ISDIR(about.st_mode) or not _is_ours_alone(about):
        return False
    real_home = os.path.realpath(home.home)
    private = (real_home, os.path.realpath(home.workspace), *map(os.path.realpath, (config_home(), state_home())))
    secrets = [os.path.realpath(os.path.join(real_home, name)) for name in _SECRETS]
    return not any(within(path, prefix) for path in (*private, *secrets)) and not any(
        within(prefix, path) for path in (*secrets, private[2], private[3])
    )


def is_python(prefix: str) -> bool:
    """E1: an installed Python, which is no virtual environment."""
    return bool(glob.glob(f"{glob.escape(prefix)}/lib/python3*/os.py"))


def is_virtual_environment(prefix: str) -> bool:
    """E1: made by venv, virtualenv or uv."""
    return os.path.isfile(f"{prefix}/pyvenv.cfg") and os.path.lexists(f"{prefix}/bin/python")


def is_node(prefix: str) -> bool:
    return os.path.isfile(f"{prefix}/bin/node") and os.path.isdir(f"{prefix}/lib/node_modules")


def is_go(prefix: str) -> bool:
    return os.path.isfile(f"{prefix}/bin/go") and os.path.isdir(f"{prefix}/src/runtime")


def credentials_in(prefix: str) -> Iterator[str]:
    """E4."""
    for name in _CREDENTIALS:
        path = os.path.join(prefix, name)
        if os.path.lexists(path):
            yield path


def covers_of(readable: Sequence[str]) -> Iterator[str]:
    """E4 and E5, for all that is shown."""
    shown = [os.path.realpath(place) for place in readable]
    for place in readable:
        yield from credentials_in(place)
        if is_python(place):
            yield from _other_environments(place, shown)


def _other_environments(place: str, shown: Sequence[str]) -> Iterator[str]:
    for folder in (f"{place}/envs", f"{place}/pkgs"):
        if not os.path.isdir(folder):
            continue
        real = os.path.realpath(folder)
        if not any(within(path, real) for path in shown):
            yield folder
            continue
        for name in sorted(os.listdir(os.fspath(folder))):
            one = os.path.realpath(f"{folder}/{name}")
            if not any(within(path, one) or within(one, path) for path in shown if within(path, real)):
                yield f"{folder}/{name}"


def links_of(program: str) -> tuple[str, ...]:
    """The program, and what its links lead to, one after the other; the last is no link."""
    found = [os.path.normpath(program)]
    while os.path.islink(found[-1]) and len(found) <= _MOST_LINKS:
        target = os.path.join(os.path.dirname(found[-1]), os.readlink(found[-1]))
        found.append(os.path.normpath(target))
    return tuple(found)


def prefix_of(program: str) -> str:
    """The installation of a program in a `bin`; empty for any other."""
    folder, _ = os.path.split(program)
    return os.path.dirname(folder) if os.path.basename(folder) == "bin" else ""


def _is_ours_alone(about: os.stat_result) -> bool:
    """E2. A group that is the user's own is no one else."""
    if about.st_uid not in (0, os.geteuid()) or about.st_mode & stat.S_IWOTH:
        return False
    return not about.st_mode & stat.S_IWGRP or about.st_gid in (0, os.getegid())
