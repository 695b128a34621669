"""What of the host a program in the sandbox sees, and where: one sorted list of mounts.

Invariants
  V1  An allow-list. What is not named here, in the profile or in the view is not there.
  V2  Parents are mounted before what stands in them, so nothing named is hidden by something else that is named.
  V3  Nothing is mounted inside the view but covers: a mount point made there would be a change in the layer.
  V4  The interpreter that runs `inside.py` comes from outside the view; a program cannot replace it for the next run.
  V5  The place of a Python is shown only if nothing else lives there: no home, no key of ours, no workspace.
  V6  A cover lies on what a hidden link leads to, under every name by which that is shown; one that leads nowhere, or
      to what is not shown, needs none.
"""

from __future__ import annotations

import glob
import os
import pwd
import sys
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.disk.homes import config_home, state_home
from holdfast.errors import SandboxUnavailable, Unsupported
from holdfast.model.path import printable
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.view import View
from holdfast.sandbox.wire import Row

# Our own corner inside; the only place whose name a program must not need for itself.
CORNER = "/run/holdfast"
HOME = f"{CORNER}/home"
PROXY = f"{CORNER}/proxy.sock"
INSIDE = f"{CORNER}/inside.py"
FORWARD = f"{CORNER}/forward.py"
# Shared memory once more. Here no view, profile or home stands in its place, so all scratch space is measured here.
SCRATCH = f"{CORNER}/scratch"
# The repository of a view whose `.git` is a file.
REPOSITORY = f"{CORNER}/git"
OBJECTS = f"{CORNER}/git-objects"
_OUR_PYTHON = f"{CORNER}/python"
_NEEDED = ("/proc", "/dev", CORNER)

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_ETC_PLACE = "/etc"
# No keys, no credentials, no host-wide settings of package managers, which may hold tokens.
_ETC = """alternatives bash.bashrc ca-certificates ca-certificates.conf crypto-policies/back-ends debian_version fonts
    group host.conf hosts inputrc java-* ld.so.cache ld.so.conf ld.so.conf.d locale.alias locale.conf localtime magic
    maven/logging maven/m2.conf mime.types nsswitch.conf os-release passwd perl pki/ca-trust/extracted pki/tls/certs
    profile protocols python3* services ssl/certs ssl/openssl.cnf terminfo timezone""".split()
_OF_THE_HOST = ("ro", "own-ro", "rw", "own-rw", "over")
_SYSTEM_PYTHONS = ("/usr/bin/python3", "/usr/local/bin/python3", "/bin/python3")


class Interpreter(NamedTuple):
    """A Python for the helpers: where it is here, where it is inside, and what must be shown for it."""

    here: str
    inside: str
    prefix: str


def interpreter(view: str) -> Interpreter:
    """Ours, or the system's when ours is part of the view, cannot be shown (V5) or not be executed by this user."""
    for candidate in (sys.executable, *_SYSTEM_PYTHONS):
        real = os.path.realpath(candidate) if candidate else ""
        if not real or within(real, view) or not os.access(real, os.X_OK):
            continue
        prefix = os.path.dirname(os.path.dirname(real))
        if prefix in ("/usr", "/"):
            return Interpreter(real, real, "")
        if _holds_more(prefix, view):
            continue
        return Interpreter(real, f"{_OUR_PYTHON}{real[len(prefix) :]}", prefix)
    raise SandboxUnavailable(
        "no Python outside the workspace can start the sandbox",
        hint="One in the bin directory of a home does not count, since the whole home would be shown with it.",
    )


def rows(view: View, profile: Profile, python: Interpreter) -> tuple[Row, ...]:
    """Every mount, parents first (V2)."""
    wanted: dict[str, Row] = {}
    for row in (*_system(profile), *_pythons(view.path)):
        wanted.setdefault(row[2], row)
    wanted.update({row[2]: row for row in _named(profile)})
    kept = {place: row for place, row in wanted.items() if not within(place, view.path)}
    kept.update({row[2]: row for row in (*_corner(profile, python), *_repository_rows(view))})
    kept[view.path] = _view_row(view)
    hidden = _hidden(view, profile, kept.values())
    named = (*_named(profile), *_pythons(view.path), *hidden, kept[view.path])
    if not any(within(place, _ETC_PLACE) or within(_ETC_PLACE, place) for _, _, place in named):
        kept = {place: ("config", *row[1:]) if within(place, _ETC_PLACE) else row for place, row in kept.items()}
        kept[_ETC_PLACE] = ("etc", "etc", _ETC_PLACE)
    return tuple(sorted(kept.values(), key=lambda row: row[2].count("/"))) + tuple(hidden)


def hidden_in_view(view: View, profile: Profile) -> tuple[str, ...]:
    """The view's own covers, and those of the profile that lie in it; relative to it."""
    named = (os.path.relpath(path, view.path) for path in profile.hidden if within(path, view.path))
    return tuple(dict.fromkeys((*view.masked, *named)))


def fences(mounts: tuple[Row, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The same list for Landlock: what may be read, and what may be written too."""
    readable = tuple(place for kind, _, place in mounts if kind in ("ro", "own-ro", "config"))
    writable = tuple(place for kind, _, place in mounts if kind in ("rw", "own-rw", "view", "scratch", "over"))
    return readable, writable


def check(view: View) -> None:
    """Unsupported when the view would replace what the sandbox itself stands on."""
    taken = next((place for place in _NEEDED if within(place, view.path)), None)
    if taken is not None:
        raise Unsupported(f"{printable(view.path)} cannot be shown in a sandbox: it contains {taken}")
    if within(view.path, "/proc") or within(view.path, "/dev"):
        raise Unsupported(f"{printable(view.path)} cannot be shown in a sandbox")


def _system(profile: Profile) -> list[Row]:
    found: list[Row] = [("proc", "", "/proc"), ("dev", "", "/dev"), ("scratch", "tmp", "/tmp")]
    found += [("scratch", "shm", "/dev/shm"), ("scratch", "tmp", "/var/tmp")]
    for place in SYSTEM:
        if os.path.islink(place):
            found.append(("symlink", os.readlink(place), place))
        elif os.path.isdir(place):
            found.append(("ro", place, place))
    # Names are looked up by the host's resolver only where the host's network is there.
    names = [*_ETC, "resolv.conf"] if profile.network == "full" else _ETC
    for name in names:
        # To search for what is no pattern takes twice as long as to look.
        places = glob.glob(f"/etc/{name}") if "*" in name else (f"/etc/{name}",)
        found += [("ro", os.path.realpath(place), place) for place in places if os.path.exists(place)]
    return found


def _holds_more(prefix: str, view: str) -> bool:
    """Whether showing an installation would show a home, Holdfast's own keys, or the view past its covers (V5)."""
    private = (os.path.expanduser("~"), _login_home(), config_home(), state_home(), view)
    return os.path.dirname(prefix) == "/home" or any(within(os.path.realpath(path), prefix) for path in private if path)


def _login_home() -> str:
    """The home that the system has for this user, whatever the environment says; empty where it knows none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _pythons(view: str) -> list[Row]:
    """The Python in use, at its own place: checks of a project are mostly run by the one Holdfast runs on."""
    prefixes = {os.path.realpath(prefix) for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix)}
    # A user may run from a Python whose directory he cannot enter again, after a change of user.
    seen = [prefix for prefix in sorted(prefixes) if os.path.isdir(f"{prefix}/bin") and prefix != "/"]
    return [("ro", prefix, prefix) for prefix in seen if not within(prefix, "/usr") and not _holds_more(prefix, view)]


def _named(profile: Profile) -> list[Row]:
    readable = [path for path in profile.readable if os.path.exists(path)]
    found: list[Row] = [("own-ro", os.path.realpath(path), os.path.normpath(path)) for path in readable]
    found += [
        ("over", os.path.realpath(path), os.path.normpath(path)) for path in profile.overlaid if os.path.isdir(path)
    ]
    return found + [("rw", os.path.realpath(path), os.path.normpath(path)) for path in profile.writable]


def _corner(profile: Profile, python: Interpreter) -> list[Row]:
    here = os.path.dirname(os.path.abspath(__file__))
    found: list[Row] = [
        ("ro", f"{here}/inside.py", INSIDE),
        ("rw", os.path.realpath(profile.home), HOME) if profile.home else ("scratch", "home", HOME),
        ("scratch", "shm", SCRATCH),
    ]
    if python.prefix:
        found.append(("ro", python.prefix, _OUR_PYTHON))
    if profile.network == "proxy":
        found.append(("own-rw", os.path.realpath(profile.proxy_socket), PROXY))
    if profile.forward_port:
        found.append(("ro", f"{here}/forward.py", FORWARD))
    return found


def _repository_rows(view: View) -> list[Row]:
    """What git writes goes into a layer in memory, where layers can be had; objects are only read."""
    if view.repository is None:
        return []
    # Beside a copy, owners may be such that cannot be mapped; then ours are given to who runs the program.
    kind = "ro" if view.shift and not view.layers else "own-ro"
    own = "over" if view.layers else kind
    return [(own, view.repository.own, REPOSITORY), (kind, view.repository.objects, OBJECTS)]


def _view_row(view: View) -> Row:
    if view.layers:
        return "view", "", view.path
    return "rw" if view.shift else "own-rw", view.base, view.path


def _hidden(view: View, profile: Profile, mounts: Iterable[Row]) -> list[Row]:
    """Covers outside of the view (V6)."""
    shown = [(source, place) for kind, source, place in mounts if kind in _OF_THE_HOST and place != view.path]
    covers: dict[str, str] = {}
    for path in profile.hidden:
        real = os.path.realpath(path)
        if within(path, view.path) or not os.path.lexists(real):
            continue
        places = [f"{place}{real[len(source) :]}" for source, place in shown if within(real, source)]
        for place in (*places, *((real,) if real == os.path.normpath(path) else ())):
            covers[place] = "empty" if os.path.isdir(real) else "void"
    outermost = [place for place in covers if not any(within(place, more) and place != more for more in covers)]
    return [("hide", covers[place], place) for place in outermost if not within(place, view.path)]


def within(path: str, directory: str) -> bool:
    """Whether a plain absolute path is a directory or lies below it."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")
