"""What a task names, looked up in a change: files that were asked for, and what `planning.unmet` says of the texts.

It is looked up twice by the same code: after each attempt, for the agent, and where the write gate is asked, for
whoever wants the change. Nothing of an agent's or a worker's own is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from holdfast.engine.difference import PlannedDifference
from holdfast.gates.secrets import masked
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.path import parent_of
from holdfast.model.plan import Agent, Plan
from holdfast.planning.unmet import Side, unmet
from holdfast.workspace.observe import look
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source
from holdfast.workspace.touched import name_of

# Beyond these, a path still counts as changed, and its text says nothing.
_MOST_FILES, _MOST_BYTES = 2_000, 1 << 25


def missing_files(site: Site, expected: Sequence[str], changes: ChangeSet) -> tuple[str, ...]:
    """Those that will not be there once this has landed. What is ignored does not land."""
    made = {change.path: change.post is not None for change in changes.changes}
    site.workspace.forget()
    return tuple(path for path in expected if not (made[path] if path in made else _stands(site, path)))


def unmet_by(site: Site, plan: Plan, changes: ChangeSet, sources: Mapping[str, Source]) -> tuple[str, ...]:
    """What the change lacks of what the task of its agent names; nothing for a change without an agent."""
    words = "\n".join(step.stated for step in plan.steps if isinstance(step, Agent))
    if not words or not changes.changes:
        return ()
    site.workspace.forget()
    found = unmet(words, dict(_sides(site, changes.changes, sources)), lambda path: _stands(site, path))
    return tuple(map(masked, found))


def _sides(site: Site, changes: Sequence[Change], sources: Mapping[str, Source]) -> Iterator[tuple[str, Side]]:
    size = 0
    told = [change for change in changes if change.post is not None and change.post.kind == "file"][:_MOST_FILES]
    read: dict[str, tuple[str | None, str | None]] = {}
    for change, old, new in PlannedDifference(site, told, sources).compared(told):
        size += len(old.data or b"") + len(new.data or b"")
        if size > _MOST_BYTES:
            break
        read[change.path] = _text(old.data), _text(new.data)
    for change in changes:
        before, after = read.get(change.path, (None, None))
        yield change.path, Side(before, after, change.pre is not None, change.post is not None)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _stands(site: Site, path: str) -> bool:
    try:
        return look(site.calls, site.workspace.directory(parent_of(path)), name_of(path)) is not None
    except OSError:
        return False  # no directory, or a link on the way: nothing that lands there
