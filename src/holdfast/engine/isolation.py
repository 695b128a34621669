"""What programs are kept to on this host: the shadow they get, the sandbox around it, and the words for both.

Tried out, like everything that `doctor` tells: a program runs in a shadow of a throw-away workspace,
with the limits of the configuration, and the kernel's answers are what is told.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import NamedTuple

from holdfast.engine.checking import profile_of
from holdfast.errors import HoldfastError, Unsupported
from holdfast.model.configuration import ProgramLimits
from holdfast.sandbox.confined import bubblewrap, is_real_root, run_confined
from holdfast.sandbox.probe import Guarantee, probe
from holdfast.sandbox.process import Command, clean_environment, run
from holdfast.store.state import create_state
from holdfast.workspace.shadow import Kind, open_shadow
from holdfast.workspace.site import Site

_TIME_MS = 10_000


class Isolation(NamedTuple):
    """`sandboxed`: programs run confined here; otherwise `why_not` says what is missing.

    `words` are what a policy may demand under `sandbox`, exactly as they stand in a simulation's report.
    """

    sandboxed: bool
    why_not: str
    bubblewrap: str
    guarantees: tuple[Guarantee, ...]
    words: tuple[str, ...]
    shadow: Kind
    # Why a shadow is a copy; empty for an overlay.
    why_copy: str
    # As root, the workspace is shown through an id-mapped mount; otherwise the program is the user.
    as_root: bool


def isolation(directory: str, workspace: str, limits: ProgramLimits) -> Isolation:
    """Try it out in `directory`, where layers will be (empty: any temporary place), for a workspace if there is one."""
    found = probe(directory)
    layers = next(row for row in found.guarantees if row.what == "layers")
    refused = next((row.how for row in found.guarantees if row.what == "files" and not row.enforced), "")
    why_copy = _why_not_over(workspace) if layers.enforced else layers.how
    words: tuple[str, ...] = ()
    if found.sandboxed:
        words, refused = _words(directory, limits, "" if layers.enforced else layers.how)
    return Isolation(
        sandboxed=found.sandboxed and not refused,
        why_not=refused,
        bubblewrap=_version(),
        guarantees=tuple(row for row in found.guarantees if row is not layers),
        words=words,
        shadow="copy" if why_copy else "overlay",
        why_copy=why_copy,
        as_root=is_real_root(),
    )


def _words(directory: str, limits: ProgramLimits, trouble: str) -> tuple[tuple[str, ...], str]:
    """What was enforced around a program in a real shadow, and why it could not be run, if so."""
    try:
        with TemporaryDirectory(prefix=".holdfast-probe-", dir=directory or None, ignore_cleanup_errors=True) as place:
            create_state(place)
            command = Command(("true",), place, clean_environment("/nonexistent"), _TIME_MS)
            with Site(place) as site, open_shadow(site, "auto", trouble=trouble) as shadow:
                return run_confined(command, shadow.view, profile_of(limits)).enforced, ""
    except HoldfastError as error:
        return (), error.message


def _why_not_over(workspace: str) -> str:
    """Why this very workspace cannot be the ground of an overlay: whose files it holds decides too."""
    if not workspace:
        return ""
    try:
        with Site(workspace) as site, open_shadow(site, "overlay"):
            return ""
    except Unsupported as error:
        return error.message.removeprefix("a shadow cannot be an overlay here: ")
    except OSError as error:
        return f"none could be made: {error.strerror}"


def _version() -> str:
    """What bubblewrap calls itself; empty where there is none."""
    try:
        done = run(Command((bubblewrap(), "--version"), "/", clean_environment("/"), _TIME_MS))
    except HoldfastError:
        return ""
    return done.output.decode("utf-8", "replace").strip().removeprefix("bubblewrap ")
