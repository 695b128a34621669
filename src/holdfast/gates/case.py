"""What the rules of the write gate share: the case before them, and what a rule may say about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.gates.aliases import MOST_NAMES, aliases_of
from holdfast.gates.evidence import Evidence
from holdfast.gates.operations import Operation, operations_of, origins_of
from holdfast.gates.policy import Policy
from holdfast.model.changeset import Change
from holdfast.model.decision import Verdict
from holdfast.model.plan import RISKS, Risk
from holdfast.model.tables import Layer

# A reason names this many paths; the sentence says how many there are.
MOST_PATHS = 20
SET_ID = 0o6000
OTHERS_WRITE = 0o002
_ORDINARY = frozenset({("edit",), ("create",)})


class Deed(NamedTuple):
    """One change with what it does, and the numbers of the rules that are about it."""

    change: Change
    operations: tuple[Operation, ...]
    rules: tuple[int, ...]
    # Rules of the root layer allow all that happens: built-in rules about paths are silent.
    excused: bool
    # Further rules, each with the name by which it is about this: a link leads here.
    by_link: tuple[tuple[int, str], ...] = ()
    # It has more names than were followed.
    in_a_maze: bool = False


class Said(NamedTuple):
    """What one rule says. The risk is part of it: from medium on, whoever says it asks."""

    verdict: Verdict
    risk: Risk
    detail: str
    paths: tuple[str, ...] = ()
    layer: Layer = "built-in"


class Case(NamedTuple):
    """`odd` are the deeds that a rule about objects could say something to, `new_content` those of `evidence`."""

    evidence: Evidence
    policy: Policy
    deeds: tuple[Deed, ...]
    odd: tuple[Deed, ...]
    new_content: tuple[Change, ...]

    @property
    def excused(self) -> frozenset[str]:
        return frozenset([deed.change.path for deed in self.deeds if deed.excused])


class FactRule(NamedTuple):
    """A rule about facts that no path pattern can express; its name is a sentence."""

    name: str
    judge: Callable[[Case], Iterable[Said]]


def case_of(evidence: Evidence, policy: Policy) -> Case:
    changes = sorted(evidence.change_set.changes, key=lambda change: path_bytes(change.path))
    deeds = tuple(_deeds(changes, evidence, policy))
    odd = tuple([deed for deed in deeds if not _is_plain(deed)])
    return Case(evidence, policy, deeds, odd, tuple(evidence.new_content()))


def asking(risk: Risk, detail: str, paths: Iterable[str] = (), layer: Layer = "built-in") -> Said:
    return Said("NEED_APPROVAL", risk, detail, tuple(paths), layer)


def denying(detail: str, paths: Iterable[str] = (), layer: Layer = "built-in") -> Said:
    return Said("DENY", "critical", detail, tuple(paths), layer)


def path_bytes(path: str) -> bytes:
    return path.encode("utf-8", "surrogateescape")


def at_least(risk: Risk, least: Risk) -> bool:
    return RISKS.index(risk) >= RISKS.index(least)


def _is_plain(deed: Deed) -> bool:
    """A file of ordinary name, mode and attributes is new or gets other content: nearly all deeds are this."""
    path, _, post, _ = deed.change
    return (
        deed.operations in _ORDINARY
        and post is not None
        and post.kind == "file"
        and post.size > 0
        and not (post.mode & (SET_ID | OTHERS_WRITE) or post.xattrs or post.target or deed.in_a_maze)
        and path.isascii()
        and path.isprintable()
    )


def _deeds(changes: list[Change], evidence: Evidence, policy: Policy) -> Iterator[Deed]:
    origins = origins_of(changes)
    # The workspace's own place counts for rules: a workspace at /etc/ssh is `etc/ssh`.
    above = "/".join([name for name in evidence.root.split("/") if name])
    links = aliases_of(changes, evidence.links, evidence.root)
    for change in changes:
        operations = operations_of(change, origins)
        rules = policy.rules_about(change.path, operations, above)
        if change.post is not None and change.post.kind == "symlink":
            rules = sorted({*rules, *policy.rules_through(change.path, operations, above)})
        excused = bool(rules) and policy.allows(rules, operations)
        names = links.names_of(change.path) if links.links else ()
        by_link = tuple(_by_link(names, operations, policy, above)) if names else ()
        yield Deed(change, operations, tuple(rules), excused, by_link, len(names) >= MOST_NAMES)


def _by_link(
    names: tuple[str, ...], operations: tuple[Operation, ...], policy: Policy, above: str
) -> Iterator[tuple[int, str]]:
    """What rules say to the other names of a path; nothing is allowed because of another name."""
    for name in names:
        for number in policy.rules_about(name, operations, above):
            if policy.rules[number].verdict != "ALLOW":
                yield number, name
