"""holdfast doctor: what holds here, tried out on the workspace's own file system."""

from __future__ import annotations

import os
import platform
from typing import NamedTuple

from holdfast import __version__
from holdfast.cli.screen import Screen
from holdfast.cli.verbs import Face, verb
from holdfast.disk.calls import CALLS
from holdfast.engine.host import Finding, file_system_type, probe
from holdfast.errors import HoldfastError, NotAWorkspace, Unsupported
from holdfast.model.path import printable
from holdfast.store.anchor import anchor_path
from holdfast.store.keys import key_path, load_key
from holdfast.store.private import READ, open_private
from holdfast.store.state import find_workspace, read_identity
from holdfast.workspace.site import Site

_NOT_YET = ("Shadows", "Sandbox", "Agents")


class Report(NamedTuple):
    """One line: a subject, what was found, and the verdict (None: neither good nor bad)."""

    name: str
    detail: str
    ok: bool | None
    needed: bool = False


@verb(name="doctor")
def command(face: Face) -> int:
    """Say what this host and file system can keep. Works outside a workspace too."""
    here, id, workspace = _workspace()
    findings = probe(here)
    reports = [workspace, *_kernel(here, findings), *_user(id), _git()]
    reports += [Report(name, "not in this release", None) for name in _NOT_YET]
    usable = all(report.ok for report in reports if report.needed)
    face.screen.answer(
        {
            "kind": "doctor",
            "id": id,
            "status": "usable" if usable else "unusable",
            "file_system": file_system_type(here),
            "holds": {finding.name: finding.holds for finding in findings},
            "checks": [report._asdict() for report in reports],
        }
    )
    _tell(face.screen, reports, usable)
    return 0 if usable else Unsupported.exit_status


def _workspace() -> tuple[str, str, Report]:
    try:
        path = find_workspace(os.curdir)
        with Site(path) as site:
            id = read_identity(site.state).id
        return path, id, Report("Workspace", f"{printable(path)} ({id})", True, needed=True)
    except NotAWorkspace:
        here = os.getcwd()
        return here, "", Report("Workspace", f"none in {printable(here)}; start one with: holdfast init", None)
    except HoldfastError as error:
        return os.getcwd(), "", Report("Workspace", error.message, False, needed=True)


def _kernel(here: str, findings: tuple[Finding, ...]) -> list[Report]:
    kind = file_system_type(here)
    if len(findings) == 1:
        return [Report("Atomic", f"{findings[0].name} on {kind}: {findings[0].reason}", False, needed=True)]
    return [
        _report("Atomic", ("exchange", "no-replace"), findings, f"on {kind}"),
        _report("Confined", ("openat2",), findings, "keeps every path inside the workspace"),
        _report("Durable", ("syncfs",), findings, "and fsync"),
        _report("Lock", ("lock",), findings, "held; a second process is kept out"),
        _report("Attributes", ("xattrs",), findings, "are kept and restored"),
    ]


def _report(name: str, wanted: tuple[str, ...], findings: tuple[Finding, ...], rest: str) -> Report:
    chosen = [finding for finding in findings if finding.name in wanted]
    broken = [finding for finding in chosen if not finding.holds]
    if broken:
        detail = ", ".join(f"{finding.name}: {finding.reason}" for finding in broken)
        return Report(name, detail, False, needed=any(finding.needed for finding in broken))
    return Report(name, f"{', '.join(wanted)} {rest}", True)


def _user(id: str) -> list[Report]:
    python = Report("Python", f"{platform.python_version()}, holdfast {__version__}", True)
    try:
        exists = os.path.lexists(key_path())
        if exists:
            load_key(key_path())
        detail = f"{printable(key_path())}, yours alone" if exists else "none yet; made by: holdfast init"
        key = Report("Key", detail, True if exists else None)
    except HoldfastError as error:
        key = Report("Key", error.message, False, needed=True)
    return [python, key, *([_anchor(id)] if id else [])]


def _anchor(id: str) -> Report:
    path = anchor_path(id)
    try:
        CALLS.close(open_private(path, READ, CALLS))
    except FileNotFoundError:
        return Report("Anchor", f"missing: {printable(path)}", False, needed=True)
    except HoldfastError as error:
        return Report("Anchor", error.message, False, needed=True)
    return Report("Anchor", f"{printable(path)}, yours alone", True)


def _git() -> Report:
    from shutil import which

    found = which("git")
    if found is None:
        return Report("Git", "not installed; not needed in this release", None)
    return Report("Git", printable(found), True)


def _tell(screen: Screen, reports: list[Report], usable: bool) -> None:
    for report in reports:
        mark = "" if report.ok is None else "ok" if report.ok else "NO" if report.needed else "no"
        colour = "green" if report.ok else "red"
        verdict = "  " + screen.style(mark, colour) if mark else ""
        screen.say(f"{report.name:<11}{report.detail}{verdict}")
    screen.say("Usable here." if usable else "Not usable here: see the lines marked NO.")
