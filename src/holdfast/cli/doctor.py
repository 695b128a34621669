"""holdfast doctor: what holds here, tried out on the workspace's own file system; and which settings are in force.

unusable, exit 2 ..... the disk cannot keep its promises, a key or a file of the configuration cannot be trusted,
                       the policy fails its own tests: nothing may be decided or changed here
usable, exit 0 ....... everything else. A missing sandbox is told with what it means; nothing pretends
"""

from __future__ import annotations

import os
import platform
import re
from typing import NamedTuple

from holdfast import __version__
from holdfast.checks.tree import read_beneath
from holdfast.cli.isolation_told import isolation_document, isolation_reports
from holdfast.cli.keys_told import Keys, keys, people
from holdfast.cli.reports import Report, tell
from holdfast.cli.settings_told import configuration_document, configuration_report, policy_document, policy_report
from holdfast.cli.verbs import Face, verb
from holdfast.disk.calls import CALLS
from holdfast.disk.mounts import file_system_kind
from holdfast.engine.configured import files_of, judged, policy_values, values_of
from holdfast.engine.host import Finding, probe
from holdfast.engine.isolation import isolation
from holdfast.environment.detect import environment_of, this_shell
from holdfast.errors import HoldfastError, NotAWorkspace, Unsupported
from holdfast.model.configuration import Settings
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.settings import Places, Whose, load, places_of
from holdfast.store.anchor import anchor_path
from holdfast.store.keys import key_path, load_key
from holdfast.store.ledger import Ledger
from holdfast.store.own_settings import whose
from holdfast.store.places import find_workspace
from holdfast.store.private import READ, open_private
from holdfast.store.state import read_identity
from holdfast.workspace.hidden import masked_paths
from holdfast.workspace.ignored import tracked_paths
from holdfast.workspace.site import Site

# At the top of a workspace, and what one of them says where it is more than settings.
_CREDENTIALS = (".npmrc", ".yarnrc.yml", ".pypirc", "pip.conf", ".netrc", ".git-credentials", ".condarc", ".env")
_SECRET = re.compile(rb"(?i)_auth|token|passw|secret|api_?key|://[^/\s:@]+:[^/\s@]+@")
_MOST_READ = 1 << 20


class _Where(NamedTuple):
    """`workspace` and `id` are empty outside a workspace."""

    here: str
    workspace: str
    id: str
    report: Report


class _Rules(NamedTuple):
    """Configuration and policy; without settings the reports say what is wrong with them."""

    settings: Settings | None
    reports: tuple[Report, ...]
    document: dict[str, object]


@verb(name="doctor")
def command(face: Face) -> int:
    """Say what this host enforces, and which settings are in force. Works outside a workspace too."""
    where = _where()
    findings = probe(where.here)
    own = keys()
    rules = _rules(where, own)
    programs, isolated = _programs(where, findings, rules.settings)
    reports = [where.report, *_kernel(where.here, findings), *programs, _python(), _git()]
    reports += [*_hidden(where, rules.settings), *_visible(where, rules.settings)]
    reports += [_environment(where, rules.settings), *_checks(where, rules.settings)] if where.workspace else []
    reports += [*own.reports, *([_anchor(where.id), _ledger(where)] if where.id else []), *rules.reports]
    reports += _agents(rules.settings)
    usable = all(report.ok for report in reports if report.needed)
    face.screen.answer(
        {
            "kind": "doctor",
            "id": where.id,
            "status": "usable" if usable else "unusable",
            "file_system": file_system_kind(where.here),
            "holds": {finding.name: finding.holds for finding in findings},
            **isolated,
            "keys": own.document(rules.settings),
            **rules.document,
            "checks": [report._asdict() for report in reports],
        }
    )
    tell(face.screen, reports)
    face.screen.say("Usable here." if usable else "Not usable here: see the lines marked NO.")
    return 0 if usable else Unsupported.exit_status


def _where() -> _Where:
    try:
        path = find_workspace(os.curdir)
        with Site(path) as site:
            id = read_identity(site.state).id
        return _Where(path, path, id, Report("Workspace", f"{printable(path)} ({id})", True, needed=True))
    except NotAWorkspace:
        here = os.getcwd()
        detail = f"none in {printable(here)}; start one with: holdfast init"
        return _Where(here, "", "", Report("Workspace", detail, None))
    except HoldfastError as error:
        return _Where(os.getcwd(), "", "", Report("Workspace", error.message, False, needed=True))


def _kernel(here: str, findings: tuple[Finding, ...]) -> list[Report]:
    kind = file_system_kind(here) or "an unknown file system"
    if len(findings) == 1:
        return [Report("Atomic", f"{findings[0].name} on {kind}: {findings[0].reason}", False, needed=True)]
    return [
        _kept("Atomic", ("exchange", "no-replace"), findings, f"on {kind}"),
        _kept("Confined", ("openat2",), findings, "keeps every path inside the workspace"),
        _kept("Durable", ("syncfs",), findings, "and fsync"),
        _kept("Lock", ("lock",), findings, "held; a second process is kept out"),
        _kept("Attributes", ("xattrs",), findings, "are kept and restored"),
    ]


def _kept(name: str, wanted: tuple[str, ...], findings: tuple[Finding, ...], rest: str) -> Report:
    chosen = [finding for finding in findings if finding.name in wanted]
    broken = [finding for finding in chosen if not finding.holds]
    if broken:
        detail = ", ".join(f"{finding.name}: {finding.reason}" for finding in broken)
        return Report(name, detail, False, needed=any(finding.needed for finding in broken))
    return Report(name, f"{', '.join(wanted)} {rest}", True)


def _programs(
    where: _Where, findings: tuple[Finding, ...], settings: Settings | None
) -> tuple[list[Report], dict[str, object]]:
    """Shadows and sandbox, tried where the layers will be; where nothing can be written, in any temporary place."""
    writable = all(finding.name != "writable" for finding in findings)
    place = os.path.join(where.workspace, STATE_DIRECTORY) if where.workspace else where.here
    held = settings if settings is not None else Settings()
    found = isolation(place if writable else "", where.workspace, held.limits)
    return isolation_reports(found, held.unsandboxed), isolation_document(found)


def _rules(where: _Where, own: Keys) -> _Rules:
    places = places_of(where.here)
    if not where.workspace:
        places = places._replace(project="")
    this = whose(where.workspace or where.here)
    try:
        settings = load(places, this)
    except HoldfastError as error:
        broken = Report("Configuration", error.message, False, needed=True, more=(error.hint,) if error.hint else ())
        unknown = Report("Policy", "not known: the configuration cannot be read", False, needed=True)
        return _Rules(None, (unknown, broken), {"configuration": {"error": error.message}})
    return _judged_rules(places, this, settings, own)


def _judged_rules(places: Places, this: Whose, settings: Settings, own: Keys) -> _Rules:
    files, values = files_of(places, settings), values_of(places, settings, this)
    try:
        found = judged(settings)
    except HoldfastError as error:
        broken = Report("Policy", error.message, False, needed=True)
        told = {"policy": {"error": error.message}, "configuration": configuration_document(files, values)}
        return _Rules(settings, (broken, configuration_report(files, values)), told)
    values = (*values, *policy_values(found.policy))
    reports = (
        people(settings, found.policy, own.public),
        policy_report(found, settings.policy),
        configuration_report(files, values),
    )
    document: dict[str, object] = {
        "policy": policy_document(found),
        "configuration": configuration_document(files, values),
    }
    return _Rules(settings, reports, document)


def _anchor(id: str) -> Report:
    path = anchor_path(id)
    try:
        CALLS.close(open_private(path, READ, CALLS))
    except FileNotFoundError:
        return Report("Anchor", f"missing: {printable(path)}", False, needed=True)
    except HoldfastError as error:
        return Report("Anchor", error.message, False, needed=True)
    return Report("Anchor", f"{printable(path)}, yours alone", True)


def _ledger(where: _Where) -> Report:
    state = os.path.join(where.workspace, STATE_DIRECTORY)
    try:
        Ledger(state, load_key(key_path()), where.id, anchor_path(where.id)).require_whole()
    except HoldfastError as error:
        return Report("Ledger", error.message, False, needed=True, more=(error.hint,) if error.hint else ())
    return Report("Ledger", "every record is what was written", True)


def _environment(where: _Where, settings: Settings | None) -> Report:
    """What programs inside get of the user's own tools, and what they have and do not get."""
    readable = settings.environment.readable if settings is not None else ()
    found = environment_of(this_shell(), where.workspace, readable=readable)
    detail = "; ".join(map(printable, found.tools)) or "nothing but the system's own tools"
    return Report("Environment", f"{detail} (shown read-only)" if found.tools else detail, None, more=found.remarks)


def _checks(where: _Where, settings: Settings | None) -> list[Report]:
    """What the work of an agent would be checked by, and whether that can run: tried, within half a minute."""
    from holdfast.engine.checking import Checking

    if settings is None or not where.id:
        return []
    try:
        with Site(where.workspace) as site:
            tried = Checking(site, lambda: settings, lambda text, done, total: None).trial()
    except (HoldfastError, OSError) as error:
        return [Report("Checks", f"not tried: {printable(str(error))}", None)]
    if not tried:
        return [Report("Checks", "none were found: what agents do stays unverified", None)]
    first, *others = tried
    more = tuple(printable(one.detail) for one in others)
    return [Report("Checks", printable(first.detail), all(one.ready for one in tried), more=more)]


def _hidden(where: _Where, settings: Settings | None) -> list[Report]:
    """A cover hides a file, not the commits that hold it."""
    if not where.workspace or settings is None or not settings.hidden:
        return []
    try:
        with Site(where.workspace) as site:
            tracked = tracked_paths(site, masked_paths(site.workspace, settings.hidden))
    except HoldfastError as error:
        return [Report("Hidden", f"not known whether git tracks hidden paths: {error.message}", None)]
    if not tracked:
        return [Report("Hidden", f"{', '.join(map(printable, settings.hidden))}: empty for programs", True)]
    names = ", ".join(map(printable, tracked[:3])) + (f" and {len(tracked) - 3} more" if len(tracked) > 3 else "")
    more = ("Programs see .git: take the files out of the repository and its history, and change the secrets.",)
    return [Report("Hidden", f"git tracks {names}: what was committed is not hidden", False, more=more)]


def _visible(where: _Where, settings: Settings | None) -> list[Report]:
    """Credentials at the top of the workspace are part of the tree: programs see them, unless they are hidden."""
    if not where.workspace or settings is None:
        return []
    try:
        with Site(where.workspace) as site:
            hidden = masked_paths(site.workspace, settings.hidden)
            found = [name for name in _CREDENTIALS if name not in hidden and _holds_secret(site, name)]
    except (HoldfastError, OSError):
        return []  # what keeps the workspace from being looked at is told by other lines
    if not found:
        return []
    names, are = ", ".join(f'"{name}"' for name in found), "is" if len(found) == 1 else "are"
    words = f"{', '.join(found)} may hold a secret, and {are} visible to programs and agents"
    return [Report("Secrets", words, False, more=(f"Hide it in holdfast.toml: [workspace] hidden = [{names}]",))]


def _holds_secret(site: Site, name: str) -> bool:
    try:
        return _SECRET.search(read_beneath(site.workspace.fd, name, _MOST_READ)) is not None
    except OSError:
        return False


def _agents(settings: Settings | None) -> list[Report]:
    """Who could be asked, by program and key; a person always can."""
    from holdfast.engine.roster import roster

    if settings is None:
        return []
    usable = [entry for entry in roster(settings, (), 0) if entry.health.usable]
    names = ", ".join(printable(f"{entry.agent.name} {entry.health.version}".strip()) for entry in usable)
    return [Report("Agents", f"usable: {names}; the others and why: holdfast agents", None)]


def _python() -> Report:
    return Report("Python", f"{platform.python_version()}, holdfast {__version__}", True)


def _git() -> Report:
    from shutil import which

    found = which("git")
    if found is None:
        return Report("Git", "not installed; needed only for run steps inside a repository", None)
    return Report("Git", printable(found), True)
