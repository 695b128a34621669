"""Recovery: after a crash, finish what was committed and take back what was not.

What the head says, and what is done:

    nothing, or a transaction that is fully settled ... sweep stages that were never prepared
    PREPARED   ...................................... roll back from the log, decided by the disk
    COMMITTED, ABORTED, LEFT, folder still in journal . write the sector once more, report it to be settled

First `recover`, then the caller settles, then `sweep`: a stage may refer to slots that settling puts in place.

Invariants
  R1  Recovery re-does or un-does; it never decides anew, and it can be killed at any point and run again.
  R2  A stage is deleted only when nothing of it ever moved: it carries the mark of a stage that was not prepared,
      or its log, which is whole then, finds every operation on its old side. What cannot be judged is damage (R4).
  R3  What the head says is made durable again before anything is settled on it:
      after a failed sync the page in memory says more than the disk.
  R4  Damage (head or log) is refused with nothing changed and nothing cleaned away.
  R5  A state that was copied, or restored from a backup, has the same objects in other inodes. An object in a slot
      that is none of those in the log, and has the very image of one of them, is taken for that one; but only while
      the ledger, which ends where its anchor says, knows no end of the transaction. An old copy steers nothing.
      A recovery that was killed may have moved the copy to its path already; its mode and time are set back there too.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias

from holdfast.disk.calls import Calls
from holdfast.errors import NeedsHuman, Tampering
from holdfast.model.canonical import Json
from holdfast.model.execution import Divergence
from holdfast.model.image import Image, Seen, Stamp
from holdfast.model.path import printable
from holdfast.store.contents import NAME as CONTENTS
from holdfast.store.effects import NAME as EFFECTS
from holdfast.store.journal import LOG_LIMIT, Head, Log, Op, parse_log, read_head, write_head
from holdfast.workspace.flip import Flipper
from holdfast.workspace.folder import is_marked, remove_stage
from holdfast.workspace.observe import is_same, kind_of, look, observe, stamp_of
from holdfast.workspace.rollback import roll_back, why_not_restorable
from holdfast.workspace.site import JOURNAL, Site, is_txn

_FILES = ("log", CONTENTS, EFFECTS)
_NAMED = 5  # paths that are told one by one, and whose old content is named
# Is the ledger whole up to its anchor, and without an entry that says how this transaction ended?
IsUnsettled: TypeAlias = Callable[[str], bool]


class Unsettled(NamedTuple):
    """A finished transaction that the ledger may not know yet."""

    txn: str
    outcome: Literal["COMMITTED", "ABORTED", "LEFT", "OPEN"]  # OPEN: a person has to decide
    header: dict[str, Json]
    root: str
    operations: int
    rolled_back_now: bool
    left: tuple[Divergence, ...] = ()
    # How many paths were looked at afterwards and are what they should be.
    proven: int = 0
    # What was taken back outside the files by whoever finished it, in words.
    taken_back: tuple[str, ...] = ()
    # Did recovery meet something that had moved?
    had_moved: bool = False


class Waiting(NeedsHuman):
    """Somebody else's change is in the way of a rollback; `found` is what is known of it so far."""

    def __init__(self, message: str, hint: str, found: Unsettled) -> None:
        super().__init__(message, hint=hint, changed=True)
        self.found = found


def recover(site: Site, is_unsettled: IsUnsettled) -> Unsettled | None:
    """Bring the workspace to exactly the old or exactly the new tree; raises NeedsHuman or Tampering."""
    head = read_head(site.calls, site.journal())
    return _finish(site, head, is_unsettled) if head is not None else None


def is_being_taken_back(site: Site) -> bool:
    """Is a transaction open that was not committed? Then a recovery that was stopped may have moved some of it."""
    head = read_head(site.calls, site.journal())
    if head is None or head.state == "COMMITTED":
        return False
    return look(site.calls, site.journal(), head.txn) is not None


def open_divergence(site: Site) -> tuple[Divergence, ...]:
    """What a rollback that waits for a person could not restore; changes nothing.

    That may also be an object of ours: a directory stays where it is while somebody's file is in it.
    """
    head = read_head(site.calls, site.journal())
    if head is None or head.state != "PREPARED":
        return ()
    log = _trusted_log(site, head)
    flipper = Flipper(site, head.txn, log)
    first = {op.path: op for op in reversed(log.ops)}  # the first operation on a path has the last word about it
    left = ((path, flipper.standing(first[path])) for path in dict.fromkeys(op.path for op in log.ops))
    return tuple(
        Divergence(path, "stands as planned")
        if standing == "after"
        else Divergence(path, f"stands neither as before nor as planned: {flipper.how_it_stands(first[path])}")
        for path, standing in left
        if standing in ("after", "foreign")
    )


def accept_divergence(site: Site, is_unsettled: IsUnsettled) -> Unsettled | None:
    """A person decided: what stands now, stands. Our changes are rolled back, the rest is left, material is kept."""
    head = read_head(site.calls, site.journal())
    if head is None or head.state != "PREPARED":
        return recover(site, is_unsettled)
    known = _trusted_log(site, head)
    log = _as_standing(site, head.txn, known, is_unsettled) or known
    left, _, had_moved = roll_back(site, head.txn, log)
    if not left:
        return Unsettled(head.txn, "ABORTED", log.header, log.root, len(log.ops), True, had_moved=had_moved)
    write_head(site.calls, site.journal(), Head("LEFT", head.txn, log.root))
    return Unsettled(head.txn, "LEFT", log.header, log.root, len(log.ops), True, left, had_moved=had_moved)


def leave(site: Site, found: Unsettled, standing: Sequence[Divergence]) -> Unsettled:
    """A person decided, and files are not all there was to decide: what else stands is left too, durably."""
    write_head(site.calls, site.journal(), Head("LEFT", found.txn, found.root))
    return found._replace(outcome="LEFT", left=(*found.left, *standing))


def read_log(calls: Calls, directory: int) -> Log:
    """The log in a transaction's folder, or Tampering."""
    try:
        fd = calls.open("log", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        raise Tampering("the journal of a transaction is missing") from None
    try:
        return parse_log(read_whole(calls, fd))
    finally:
        calls.close(fd)


def read_whole(calls: Calls, fd: int) -> bytes:
    size = calls.fstat(fd).st_size
    if size > LOG_LIMIT:
        raise Tampering("the journal is larger than any journal of ours")
    pieces = []
    while piece := calls.read(fd, size + 1):  # in one piece, unless somebody makes it longer meanwhile
        pieces.append(piece)
    return b"".join(pieces)


def _finish(site: Site, head: Head, is_unsettled: IsUnsettled) -> Unsettled | None:
    if head.state == "PREPARED":
        return _take_back(site, head, is_unsettled)
    if look(site.calls, site.journal(), head.txn) is None:
        return None
    try:
        log = _trusted_log(site, head)
    except Tampering:
        if head.state == "ABORTED" and _is_being_removed(site, head.txn):
            remove_stage(site, head.txn)
            return None
        raise
    write_head(site.calls, site.journal(), head)
    left = _left(site, head, log) if head.state == "LEFT" else ()
    return Unsettled(head.txn, head.state, log.header, log.root, len(log.ops), False, left)


def _left(site: Site, head: Head, log: Log) -> tuple[Divergence, ...]:
    """What a person accepted in a call that was interrupted."""
    flipper = Flipper(site, head.txn, log)
    foreign = {op.path: op for op in reversed(log.ops) if flipper.standing(op) == "foreign"}
    ordered = dict.fromkeys(op.path for op in log.ops if op.path in foreign)
    return tuple(
        Divergence(path, f"was left as it stands ({flipper.how_it_stands(foreign[path])})") for path in ordered
    )


def _take_back(site: Site, head: Head, is_unsettled: IsUnsettled) -> Unsettled:
    log = _as_standing(site, head.txn, _trusted_log(site, head), is_unsettled)
    if log is None:
        raise Tampering(
            f"the journal of {head.txn} is an old copy, made before that change was settled",
            hint="Nothing was changed. Put a newer copy of .holdfast back; or keep the files as they stand, "
            "and close the matter, with: holdfast recover --accept",
        )
    outcome = roll_back(site, head.txn, log)
    if outcome.divergence:
        names = "; ".join(f"{printable(item.path)} {item.detail}" for item in outcome.divergence[:_NAMED])
        more = len(outcome.divergence) - _NAMED
        names += f"; and {more} more" if more > 0 else ""
        raise Waiting(
            f"{head.txn} is not settled: all of it was rolled back except this: {names}",
            hint=f"{_old_content(log, outcome.divergence)}Put it right (a copy of the old content will do) and run "
            "'holdfast recover', or keep what is there with 'holdfast recover --accept'.",
            found=Unsettled(
                head.txn, "OPEN", log.header, log.root, len(log.ops), True, outcome.divergence,
                had_moved=outcome.had_moved,
            ),
        )  # fmt: skip
    return Unsettled(head.txn, "ABORTED", log.header, log.root, len(log.ops), True, had_moved=outcome.had_moved)


def _old_content(log: Log, divergence: Sequence[Divergence]) -> str:
    """Where the old files lie, by name; a directory is not kept as a file."""
    slots = {op.path: op.slot for op in reversed(log.ops) if op.slot and op.pre and op.pre.image.kind != "directory"}
    kept = [(item.path, slots[item.path]) for item in divergence if item.path in slots]
    named = "; ".join(f"{printable(path)} in .holdfast/{JOURNAL}/{slot}" for path, slot in kept[:_NAMED])
    more = f"; {len(kept) - _NAMED} more beside it" if len(kept) > _NAMED else ""
    return f"The old content is kept: {named}{more}. " if named else ""


def _trusted_log(site: Site, head: Head) -> Log:
    if look(site.calls, site.journal(), head.txn) is None:
        raise Tampering(f"the journal of {head.txn} was removed while it was open", hint=_HINT)
    log = read_log(site.calls, site.state.directory(f"{JOURNAL}/{head.txn}"))
    if log.root != head.root:
        raise Tampering(f"the journal of {head.txn} is not the one that was prepared", hint=_HINT)
    why_not = why_not_restorable(log.ops)
    if why_not:
        raise Tampering(f"the journal of {head.txn} is not one of ours: {why_not}", hint=_HINT)
    return log


def _as_standing(site: Site, txn: str, log: Log, is_unsettled: IsUnsettled) -> Log | None:
    """The log to roll back by; None for a copy of a journal that was settled since (R5)."""
    copied = _as_copied(site, txn, log)
    return None if copied is not log and not is_unsettled(txn) else copied


def _as_copied(site: Site, txn: str, log: Log) -> Log:
    """R5: the same log, naming the inodes that its objects have now, where the state was copied."""
    known: dict[str, list[Seen]] = {}
    for op in log.ops:
        if op.slot:
            known.setdefault(op.slot, []).extend(seen for seen in (op.pre, op.post) if seen is not None)
    copies = {slot: copy for slot, objects in known.items() if (copy := _copy_in(site, txn, slot, objects)) is not None}
    now = {copy.inode: copy.now for copy in copies.values()} | _came_back(site, txn, log)
    if not now:
        return log

    def renumbered(seen: Seen | None) -> Seen | None:
        return Seen(seen.image, now[seen.stamp.inode]) if seen and seen.stamp.inode in now else seen

    ops = tuple(op._replace(pre=renumbered(op.pre), post=renumbered(op.post)) for op in log.ops)
    inodes = {inode: stamp.inode for inode, stamp in now.items()}
    parents = tuple(parent._replace(inode=inodes.get(parent.inode, parent.inode)) for parent in log.parents)
    return log._replace(ops=ops, parents=parents)


def _came_back(site: Site, txn: str, log: Log) -> dict[int, Stamp]:
    """Copies that an interrupted recovery moved from their slot to their path, where mode or time is still to be set.

    A flip needs no inode then: its slot says that nothing is left to do. A change of mode and a time have no slot.
    """
    images: dict[int, set[Image]] = {parent.inode: set() for parent in log.parents}
    for op in log.ops:
        if op.action == "mode" and op.pre is not None and op.post is not None:
            images.setdefault(op.pre.stamp.inode, set()).update((op.pre.image, op.post.image))
    flipper = Flipper(site, txn, log)
    found: dict[int, Stamp] = {}
    for op in log.ops:
        if op.action == "mode" or op.pre is None or op.pre.stamp.inode not in images:
            continue
        copy = flipper.standing_copy(op, images[op.pre.stamp.inode] | {op.pre.image})
        if copy is not None:
            found[op.pre.stamp.inode] = copy.stamp
    return found


class _Copy(NamedTuple):
    """The inode that a log knows, and the stamp of its copy."""

    inode: int
    now: Stamp


def _copy_in(site: Site, txn: str, slot: str, known: list[Seen]) -> _Copy | None:
    """The copy of a known object that a slot holds, with the time of the original."""
    try:
        directory, name = site.slot_directory(slot, txn)
    except FileNotFoundError:
        return None
    found = look(site.calls, directory, name)
    if found is None or kind_of(found) is None or found.st_ino in {seen.stamp.inode for seen in known}:
        return None
    try:
        now = observe(site.calls, directory, name, wait=False)
    except PermissionError:
        return None  # closed to us by its mode: it cannot be told
    same = next((seen for seen in known if now is not None and now.image == seen.image), None)
    if same is None:
        return None
    if same.image.kind != "directory" and found.st_mtime_ns != same.stamp.mtime_ns:
        times = (found.st_atime_ns, same.stamp.mtime_ns)
        site.calls.utime(name, ns=times, dir_fd=directory, follow_symlinks=False)
        found = site.calls.stat(name, dir_fd=directory, follow_symlinks=False)
    return _Copy(same.stamp.inode, stamp_of(found))


def _is_being_removed(site: Site, txn: str) -> bool:
    """Removal deletes the log late; a folder without anything but perhaps the log is on its way out."""
    return set(site.calls.names(site.state.directory(f"{JOURNAL}/{txn}"))) <= {"log"}


def sweep(site: Site) -> None:
    """Remove stages that were never prepared. The finished transaction must be settled already."""
    head = read_head(site.calls, site.journal())
    keep = head.txn if head is not None else ""
    for name in sorted(site.calls.names(site.journal())):
        if name in ("head", keep):
            continue
        _refuse_if_planted(site, name)
        if not is_marked(site, name):
            _refuse_if_moved(site, name)
        remove_stage(site, name)


def _refuse_if_planted(site: Site, name: str) -> None:
    """Whatever we did not make is not ours to clean away."""
    found = look(site.calls, site.journal(), name)
    if not is_txn(name) or found is None or not stat.S_ISDIR(found.st_mode):
        raise Tampering(f"the journal holds {printable(name)}, which is not ours", hint=_HINT)
    directory = site.state.directory(f"{JOURNAL}/{name}")
    foreign = [entry for entry in site.calls.names(directory) if not entry.isdecimal() and entry not in _FILES]
    if foreign:
        raise Tampering(f"{name} in the journal holds {printable(foreign[0])}, which is not ours", hint=_HINT)


def _refuse_if_moved(site: Site, txn: str) -> None:
    """R2, the second half: an older head put back by somebody must not make us delete old files."""
    try:
        log = read_log(site.calls, site.state.directory(f"{JOURNAL}/{txn}"))
    except Tampering as error:
        raise Tampering(f"{txn} was prepared, and now {error.message}", hint=_HINT) from error
    log = _as_copied(site, txn, log)
    flipper = Flipper(site, txn, log)
    if any(_was_performed(flipper, op) for op in log.ops):
        raise Tampering(f"{txn} was carried out, but the journal head does not know it", hint=_HINT)


def _was_performed(flipper: Flipper, op: Op) -> bool:
    """Also when somebody changed the path since: an old object in the slot is proof enough."""
    if flipper.standing(op) == "after":
        return True
    return op.action == "flip" and op.pre is not None and is_same(flipper.held(op), op.pre)


_HINT = "Nothing was changed or cleaned away. Look at .holdfast/journal/ before you do anything else."
