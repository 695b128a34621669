"""Rules about the change set itself: what objects become, beyond what their paths say.

They see images and added text only. Who made the change, and how, does not matter here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast.gates.aliases import inside
from holdfast.gates.case import OTHERS_WRITE, SET_ID, Case, Deed, FactRule, Said, asking, denying
from holdfast.gates.evidence import new_bytes
from holdfast.gates.operations import loses_content, removed_files
from holdfast.gates.policy import VERDICT_OF, Limits
from holdfast.gates.secrets import Finding, every_finding
from holdfast.model.changeset import Change
from holdfast.model.image import Image
from holdfast.model.path import is_protected, printable
from holdfast.model.patterns import covers
from holdfast.model.words import counted

_STICKY = 0o1000
_CAPABILITY = frozenset({"security.capability"})
_ACLS = frozenset({"system.posix_acl_access", "system.posix_acl_default"})


def _where(case: Case, holds: Callable[[Deed], bool]) -> tuple[str, ...]:
    """Asked of odd deeds alone: what `_is_plain` leaves out must be what no caller could hold against a deed."""
    return tuple([deed.change.path for deed in case.odd if holds(deed)])


def _rights_gained(case: Case) -> Iterator[Said]:
    if paths := _where(case, _gains_set_id):
        yield asking("high", "set-user-id or set-group-id is gained or carried to new content", paths)
    if paths := _where(case, lambda deed: _gains_attribute(deed, _CAPABILITY)):
        yield asking("high", "a file capability is gained", paths)
    if paths := _where(case, lambda deed: _gains_attribute(deed, _ACLS)):
        yield asking("high", "an access control list is gained or changed", paths)


def _gains_set_id(deed: Deed) -> bool:
    """Also when the bit stays and what it runs becomes something else. On directories it only hands the group down."""
    post = deed.change.post
    if post is None or post.kind != "file" or not post.mode & SET_ID:
        return False
    pre = deed.change.pre
    return pre is None or (pre.mode & SET_ID) != (post.mode & SET_ID) or pre.digest != post.digest


def _gains_attribute(deed: Deed, names: frozenset[str]) -> bool:
    before = _attributes(deed.change.pre, names)
    after = _attributes(deed.change.post, names)
    return bool(after) and after != before


def _attributes(image: Image | None, names: frozenset[str]) -> tuple[tuple[str, str], ...]:
    return tuple(pair for pair in image.xattrs if pair[0] in names) if image is not None and image.xattrs else ()


def _owners(case: Case) -> Iterator[Said]:
    if paths := _where(case, lambda deed: "owner" in deed.operations):
        yield asking("high", "the owner or group of something existing changes", paths)


def _open_to_all(case: Case) -> Iterator[Said]:
    if paths := _where(case, _opens_to_all):
        yield asking("medium", "every user of this host may write to it", paths)


def _opens_to_all(deed: Deed) -> bool:
    pre, post = deed.change.pre, deed.change.post
    if post is None or post.kind == "symlink" or not post.mode & OTHERS_WRITE:
        return False
    if post.kind == "directory" and post.mode & _STICKY:
        return False
    return pre is None or pre.kind == "symlink" or not pre.mode & OTHERS_WRITE


def _links(case: Case) -> Iterator[Said]:
    if paths := _where(case, lambda deed: _leads_out(deed, case.evidence.root)):
        yield asking("high", "the link leads out of the workspace, or into protected state", paths)
    if paths := _where(case, lambda deed: deed.in_a_maze):
        yield asking("high", "more links lead here than were followed", paths)


def _leads_out(deed: Deed, root: str) -> bool:
    post = deed.change.post
    if post is None or post.kind != "symlink":
        return False
    place = inside(deed.change.path, post.target, root.rstrip("/"))
    return place is None or is_protected(place)


def _binaries(case: Case) -> Iterator[Said]:
    changed = {deed.change.path for deed in case.deeds if deed.change.post is not None}
    if paths := sorted({text.path for text in case.evidence.texts if text.binary} & changed):
        yield asking("medium", "nobody can read what this says", paths)
        yield from _unsearched(case, paths, "a binary can hold a secret in any form")


def _unread(case: Case) -> Iterator[Said]:
    if paths := sorted({text.path for text in case.evidence.texts if text.unread} | set(_unseen(case))):
        detail = "not searched for secrets: too long, or never shown to the gate"
        yield asking("medium", detail, paths)
        yield from _unsearched(case, paths, detail)


def _unseen(case: Case) -> Iterator[str]:
    """Files whose new content nobody gave us to read."""
    seen = {text.path for text in case.evidence.texts}
    return (change.path for change in case.new_content if change.path not in seen)


def _unsearched(case: Case, paths: list[str], why: str) -> Iterator[Said]:
    """Where secrets are denied, so is what cannot be searched for them; paths that need not be searched are not."""
    passed_over = covers(case.policy.known.paths)
    denied = [path for path in paths if not passed_over.owners_of(path)]
    if denied and case.policy.scalars.secrets == "deny":
        yield denying(f"secrets are denied, and {why}", denied, case.policy.layer_of("secrets"))


def _secrets(case: Case) -> Iterator[Said]:
    scalars, findings = case.policy.scalars, _unknown_secrets(case)
    if findings and scalars.secrets != "allow":
        shown = "; ".join(_sentence(finding) for finding in findings[:3])
        more = f"; and {len(findings) - 3} more" if len(findings) > 3 else ""
        paths = sorted({finding.path for finding in findings})
        yield Said(VERDICT_OF[scalars.secrets], "high", shown + more, tuple(paths), case.policy.layer_of("secrets"))


def _unknown_secrets(case: Case) -> list[Finding]:
    known, passed_over = case.policy.known, covers(case.policy.known.paths)
    found = {*every_finding(case.evidence.texts), *case.evidence.findings}
    return sorted(item for item in found if item.digest not in known.digests and not passed_over.owners_of(item.path))


def _sentence(finding: Finding) -> str:
    return f"{finding.shape} in {printable(finding.path)} ({finding.masked})"


def _names(case: Case) -> Iterator[Said]:
    if paths := _where(case, lambda deed: _hides(deed.change.path) or _hides(_target(deed))):
        yield asking("medium", "the name holds characters that do not show", paths)


def _hides(text: str) -> bool:
    return not (text.isascii() and text.isprintable()) and printable(text) != text


def _target(deed: Deed) -> str:
    return deed.change.post.target if deed.change.post is not None else ""


def _losses(case: Case) -> Iterator[Said]:
    most = case.policy.scalars.limits.deletions
    paths = _where(case, lambda deed: loses_content(deed.change) and "move" not in deed.operations)
    if len(paths) > most:
        layer = case.policy.layer_of("limits.deletions")
        yield asking(
            "high", f"{counted(len(paths), 'file')} deleted or emptied, {most:,} pass as ordinary", paths, layer
        )


def _mass_removal(case: Case) -> Iterator[Said]:
    files = case.evidence.tree_files
    if files is None:
        return
    paths = removed_files([deed.change for deed in case.deeds])
    if is_mass_removal(len(paths), files, case.policy.scalars.limits):
        layer = case.policy.layer_of("limits.deletions_percent")
        yield asking("high", f"removes {len(paths):,} of {counted(files, 'file')}", paths, layer)


def is_mass_removal(removed: int, files: int, limits: Limits) -> bool:
    """Whether so many of a tree's files are removed that a mistake is likely."""
    return removed > limits.deletions_few and removed * 100 > files * limits.deletions_percent


def _limits(case: Case) -> Iterator[Said]:
    limits, changes = case.policy.scalars.limits, case.evidence.change_set.changes
    lines = sum(text.lines_added + text.lines_removed for text in case.evidence.texts)
    size = new_bytes(case.new_content)
    for name, value, most, unit in (
        ("files", len([change for change in changes if not _is_directory(change)]), limits.files, "files changed"),
        ("lines", lines, limits.lines, "lines changed"),
        ("bytes", size, limits.bytes, "bytes of new content"),
        ("time_ms", _time_ms(case), limits.time_ms, "ms of programs run"),
    ):
        if value > most:
            layer = case.policy.layer_of(f"limits.{name}")
            yield denying(f"{value:,} {unit}, {most:,} are allowed", layer=layer)


def _is_directory(change: Change) -> bool:
    pre, post = change.pre, change.post
    return (pre is None or pre.kind == "directory") and (post is None or post.kind == "directory")


def _time_ms(case: Case) -> int:
    simulated = [step.receipt for step in case.evidence.simulation.steps if step.receipt is not None]
    return sum(receipt.duration_ms for receipt in (*simulated, *case.evidence.receipts))


def _reach(case: Case) -> Iterator[Said]:
    for reach in case.policy.reaches:
        if reach.agent != case.evidence.author or not case.evidence.by_agent:
            continue
        forbidden = covers(reach.must_not_change)
        allowed = covers(reach.may_change) if reach.may_change is not None else None
        paths = [
            deed.change.path
            for deed in case.deeds
            if forbidden.owners_of(deed.change.path) or (allowed and not allowed.owners_of(deed.change.path))
        ]
        if paths:
            yield denying(f"{printable(reach.agent)} may not change this", paths, reach.layer)


CHANGE_RULES: tuple[FactRule, ...] = (
    FactRule("Keeps agents to the paths they may change", _reach),
    FactRule("Keeps changes within their limits", _limits),
    FactRule("Asks about secrets in what is added", _secrets),
    FactRule("Asks about set-id bits, capabilities and access lists", _rights_gained),
    FactRule("Asks about new owners", _owners),
    FactRule("Asks about links that lead out of the workspace", _links),
    FactRule("Asks about the loss of many files", _losses),
    FactRule("Asks about the removal of a large share of the tree", _mass_removal),
    FactRule("Asks about files that everybody may write", _open_to_all),
    FactRule("Asks about binaries", _binaries),
    FactRule("Asks about content that was not searched", _unread),
    FactRule("Asks about names that do not show what they are", _names),
)
