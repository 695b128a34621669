"""Plans and simulations kept between two commands, and read back only as what they were.

    plans/p-…        document, and the bytes of each content by SHA-256
    simulations/s-…  plan, report, changes, and the new bytes of each change by its number

Whatever is read back is computed anew: the plan's digest, the report's, the change set's.
The bytes are checked as well, and once more when they are staged, as always.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from holdfast.disk.holes import pieces
from holdfast.errors import Blocked, Conflict, HoldfastError, Tampering, UnknownId
from holdfast.model.changeset import ChangeSet
from holdfast.model.image import Seen
from holdfast.model.path import parent_of, printable
from holdfast.model.plan import Content, FromFile, Inline, Plan, Step, Update, Write, described
from holdfast.model.saved_plan import digested, plan_from
from holdfast.model.saved_simulation import change_set_from, change_set_rows, kept_report, kept_report_from
from holdfast.model.simulation import Simulation
from holdfast.store.dossier import SHELVES, Dossiers, InUse
from holdfast.workspace.flip import DISPLACED
from holdfast.workspace.observe import content_digest, observe
from holdfast.workspace.site import Site
from holdfast.workspace.staging import CopyOf, Held, Source, source_pieces

_HINT = "Nothing was changed. Simulate again."
# A plan that was edited where it is kept cannot be simulated again from there.
_PLAN_HINT = "Nothing was changed. Make the plan again from its change file or words: holdfast plan"
_SMALL = 1 << 20
_Found = TypeVar("_Found")


class Kept(NamedTuple):
    """A simulation read back; `sources` read from its dossier."""

    plan: Plan
    report: Simulation
    change_set: ChangeSet
    sources: dict[str, Source]


def save_plan(site: Site, plan: Plan) -> None:
    """With every byte it brings, so that it can be rehearsed later and elsewhere."""
    files = {hashlib.sha256(data).hexdigest(): [data] for data in _inline(plan.steps)}
    document = json.dumps({**plan.document(), "steps": [described(step) for step in plan.steps]}).encode("ascii")
    named = ((content.sha256, _file_pieces(site, content)) for content in _from_files(plan.steps))
    dossiers = Dossiers(site.state, "plans")
    if not _can_stay(site, plan.id):
        dossiers.remove(plan.id)
    dossiers.write(plan.id, [("document", [document]), *files.items(), *dict(named).items()])


def _can_stay(site: Site, id: str) -> bool:
    """Whatever is kept under this id already; an edited one is in the way of the plan that is made again."""
    try:
        load_plan(site, id)
    except UnknownId:
        return id not in Dossiers(site.state, "plans").ids()
    except Tampering:
        return False
    return True


def load_plan(site: Site, id: str) -> Plan:
    dossiers = Dossiers(site.state, "plans")

    def find(sha256: str, size: int) -> Content:
        path = os.path.join(site.state.path, "plans", id, sha256)
        return FromFile(path, size, sha256) if size > _SMALL else Inline(dossiers.read(id, sha256))

    plan = _sound(lambda: plan_from(json.loads(dossiers.read(id, "document")), find), _PLAN_HINT)
    if plan.id != id:
        raise Tampering(f"what is kept as {id} is another plan", hint=_PLAN_HINT)
    return plan


def save_simulation(
    site: Site, plan: Plan, report: Simulation, change_set: ChangeSet, sources: Mapping[str, Source]
) -> dict[str, Source]:
    """Keep it under its id; the sources that read from the dossier are returned."""
    document = {**plan.document(), "steps": [described(step) for step in plan.steps]}
    texts = {
        "plan": document,
        "report": kept_report(report),
        "changes": change_set_rows(change_set),
    }
    files: list[tuple[str, Iterable[bytes]]] = [(name, [json.dumps(value).encode()]) for name, value in texts.items()]
    for number, change in enumerate(change_set.changes):
        if change.path in sources and change.post is not None and change.post.kind == "file":
            files.append((str(number), _source_pieces(site, sources[change.path])))
    held = Dossiers(site.state, "simulations").write(report.id, files)
    return _sources(site, report.id, change_set, held)


def load_simulation(site: Site, id: str, *, gated: bool = False) -> Kept:
    """Read back; Tampering where anything was edited.

    `gated`: whether the parts belong together is left to the hard gates, which say it and record it.
    """
    dossiers = Dossiers(site.state, "simulations")
    held = dossiers.hold(id)
    report = _sound(lambda: kept_report_from(json.loads(dossiers.read(id, "report"))))
    if report.id != id:
        raise Tampering(f"the report of {id} is another one", hint=_HINT)
    plan = _sound(lambda: plan_from(json.loads(dossiers.read(id, "plan")), digested))
    change_set = _sound(lambda: change_set_from(json.loads(dossiers.read(id, "changes"))))
    kept = Kept(plan, report, change_set, _sources(site, id, change_set, held))
    if not gated:
        require_together(kept)
    _require_bytes(site, id, change_set)
    return kept


def seen_now(site: Site, change_set: ChangeSet) -> dict[str, Seen]:
    """Every path of the base as it stands now; Conflict naming all that are not what was simulated."""
    site.workspace.forget()
    wanted = {change.path: change.pre for change in change_set.changes}
    wanted.update({read.path: read.image for read in change_set.reads})
    found: dict[str, Seen] = {}
    moved = []
    for path, image in wanted.items():
        seen = _observed(site, path)
        if (seen.image if seen is not None else None) != image:
            moved.append(path)
        elif seen is not None:
            found[path] = seen
    if moved:
        lines = "\n".join(f"  {printable(path)} changed since the simulation" for path in sorted(moved))
        raise Conflict(f"the workspace is not what was simulated:\n{lines}", hint=_HINT)
    return found


def sweep_dossiers(site: Site) -> None:
    """Remove what somebody who died had begun to keep."""
    for shelf in SHELVES:
        Dossiers(site.state, shelf).sweep()


class Fates(NamedTuple):
    """Simulations that landed, from which nobody works any more, and those that could still land."""

    landed: frozenset[str]
    waiting: frozenset[str]


def forget_dossiers(site: Site, before_ns: int, wanted: frozenset[str], fates: Fates) -> tuple[int, int]:
    """Remove plans and simulations kept before this moment, but for those wanted; how many, and the bytes freed.

    A simulation that waits for nobody goes at any age. What somebody works from stays. The ledger knows them.
    """
    freed: list[int] = []
    for shelf in SHELVES:
        dossiers = Dossiers(site.state, shelf)
        for id in dossiers.ids():
            if id in fates.landed:
                freed.append(dossiers.remove(id))
            elif id not in wanted and (
                dossiers.made_ns(id) < before_ns or (shelf != "plans" and id not in fates.waiting)
            ):
                size = dossiers.collect(id)
                freed += [size] if size is not None else []
    return len(freed), sum(freed)


def kept_logs(site: Site) -> set[str]:
    """The digests of the logs that kept simulations name: what lands later still shows them."""
    dossiers = Dossiers(site.state, "simulations")
    found: set[str] = set()
    for id in dossiers.ids():
        try:
            report = kept_report_from(json.loads(dossiers.read(id, "report")))
        except (HoldfastError, ValueError, KeyError, TypeError):
            continue  # damaged: nothing can land from it
        found |= {receipt.log_digest for receipt in report.receipts}
        found |= {step.receipt.log_digest for step in report.steps if step.receipt is not None}
    return found


def _observed(site: Site, path: str) -> Seen | None:
    try:
        return observe(site.calls, site.workspace.directory(parent_of(path)), path.rpartition("/")[2])
    except OSError as error:
        if error.errno in DISPLACED:
            return None
        raise


def _sources(site: Site, id: str, change_set: ChangeSet, held: InUse) -> dict[str, Source]:
    """They hold the dossier as long as anybody holds them."""
    dossiers = Dossiers(site.state, "simulations")
    kept = set(dossiers.names(id))
    found: dict[str, Source] = {}
    for number, change in enumerate(change_set.changes):
        if str(number) in kept:
            found[change.path] = CopyOf(lambda name=str(number), held=held: dossiers.opened(id, name))  # type: ignore[misc]
    return found


def require_together(kept: Kept) -> None:
    """The report has its digest in its id; plan and change set must be those that it names. Otherwise Tampering."""
    plan, report, change_set = kept.plan, kept.report, kept.change_set
    hint = f"Nothing was changed. Simulate again: holdfast simulate {report.plan_id}"
    if (change_set.digest, change_set.base) != (report.change_set, report.base):
        raise Tampering(
            f"the kept change set of {report.id} was edited: it is not the one that was simulated", hint=hint
        )
    if plan.digest != report.plan_digest:
        raise Tampering(f"the plan kept with {report.id} is not the one that was simulated", hint=hint)


def _require_bytes(site: Site, id: str, change_set: ChangeSet) -> None:
    """Tampering where kept bytes are not those that were simulated; missing ones are missed when they are staged."""
    dossiers = Dossiers(site.state, "simulations")
    kept = set(dossiers.names(id))
    for number, change in enumerate(change_set.changes):
        if str(number) not in kept:
            continue
        fd = dossiers.opened(id, str(number))
        try:
            digest = content_digest(site.calls, fd)
        finally:
            site.calls.close(fd)
        if change.post is None or digest != change.post.digest:
            raise Tampering(f"the kept content of {printable(change.path)} was edited", hint=_HINT)


def _source_pieces(site: Site, source: Source) -> Iterator[bytes]:
    if isinstance(source, Held):
        raise Blocked("an undo is carried out at once; it is not kept as a simulation")
    return source_pieces(site.calls, source)


def _inline(steps: Iterable[Step]) -> Iterator[bytes]:
    for step in steps:
        if isinstance(step, (Write, Update)) and isinstance(step.content, Inline):
            yield step.content.data
        if isinstance(step, Update) and isinstance(step.old, bytes):
            yield step.old


def _from_files(steps: Iterable[Step]) -> Iterator[FromFile]:
    for step in steps:
        if isinstance(step, (Write, Update)) and isinstance(step.content, FromFile):
            yield step.content


def _file_pieces(site: Site, content: FromFile) -> Iterator[bytes]:
    fd = site.calls.open(content.origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield from pieces(site.calls, fd)
    finally:
        site.calls.close(fd)


def _sound(read: Callable[[], _Found], hint: str = _HINT) -> _Found:
    """Damage is told as tampering, never as a traceback."""
    try:
        return read()
    except (ValueError, RecursionError) as error:
        raise Tampering(f"what was kept is damaged or was edited: {error}", hint=hint) from error
