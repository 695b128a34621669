"""Steps: one small function an action, each from a mapping as read to a frozen step.

A step is a mapping with exactly one action key; the other keys belong to that action.

| action  | value            | other keys                                                                        |
|---------|------------------|-----------------------------------------------------------------------------------|
| write   | path             | content or content_base64 or content_from; mode                                   |
| update  | path             | old or old_base64; content, content_base64 or content_from; mode                  |
| create  | path, or path/   | mode                                                                              |
| delete  | path             | recursive                                                                         |
| move    | {from, to}       |                                                                                   |
| chmod   | {path, mode}     |                                                                                   |
| symlink | {path, to}       |                                                                                   |
| read    | path             |                                                                                   |
| run     | list of words    | within                                                                            |
| agent   | its name         | task; files, expect, attempts, within                                             |
| service | see `effects`    | undo, within                                                                      |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

from holdfast.intake.contents import Contents, old_of
from holdfast.intake.effects import service_of
from holdfast.intake.fields import (
    argv_of,
    duration_of,
    file_path_of,
    known_keys,
    list_of,
    mapping_of,
    mode_of,
    path_of,
    prose_of,
    required,
    suggestion,
    target_of,
    truth_of,
    whole_number_of,
)
from holdfast.intake.values import Fault, Value, quoted
from holdfast.model.plan import Agent, Chmod, Create, Delete, Move, Read, Run, Step, Symlink, Update, Write

_Step: TypeAlias = dict[str, Value]
_Parser: TypeAlias = Callable[[dict[str, Value], Contents], Step]
_MOST_ATTEMPTS = 20
_BYTES = ("content", "content_base64", "content_from")
_KEYS = {
    "write": frozenset(("write", "mode", *_BYTES)),
    "update": frozenset(("update", "mode", "old", "old_base64", *_BYTES)),
    "create": frozenset(("create", "mode")),
    "delete": frozenset(("delete", "recursive")),
    "move": frozenset(("move",)),
    "chmod": frozenset(("chmod",)),
    "symlink": frozenset(("symlink",)),
    "read": frozenset(("read",)),
    "run": frozenset(("run", "within")),
    "agent": frozenset(("agent", "task", "files", "expect", "attempts", "within")),
    "service": frozenset(("service", "undo", "within")),
}
_ACTIONS = frozenset(_KEYS)
_FIELDS = frozenset().union(*_KEYS.values()) - _ACTIONS


def step_of(value: Value, contents: Contents) -> Step:
    """One step, or Fault with a place relative to it."""
    step = value if isinstance(value, dict) else mapping_of(value, "a step")
    return _parser_for(tuple(step))(step, contents)


@lru_cache(maxsize=256)
def _parser_for(keys: tuple[str, ...]) -> _Parser:
    """The parser for steps with these keys; a tool's file has thousands of steps of a few shapes."""
    actions = [key for key in keys if key in _ACTIONS]
    if not actions:
        raise _no_action(keys)
    action = actions[0]
    if len(actions) > 1:
        raise Fault(f"a step has exactly one action, not {' and '.join(map(quoted, actions))}", actions[1])
    known_keys(keys, _KEYS[action], action)
    return _PARSERS[action]


def _no_action(keys: tuple[str, ...]) -> Fault:
    strange = next((key for key in keys if key not in _FIELDS), None)
    if strange is None:
        return Fault("the step has no action", hint="One of: " + ", ".join(_KEYS))
    return Fault(f"unknown step {quoted(strange)}{suggestion(strange, _ACTIONS)}", strange)


def _write(step: _Step, contents: Contents) -> Step:
    return Write(file_path_of(step["write"], "write", "write"), contents.of(step, "write"), _mode_in(step))


def _update(step: _Step, contents: Contents) -> Step:
    path = file_path_of(step["update"], "update", "update")
    return Update(path, old_of(step), contents.of(step, "update"), _mode_in(step))


def _create(step: _Step, _contents: Contents) -> Step:
    value = step["create"]
    path = path_of(value, "create")
    return Create(path, isinstance(value, str) and value.endswith("/"), _mode_in(step))


def _delete(step: _Step, _contents: Contents) -> Step:
    value = step["delete"]
    path = path_of(value, "delete")
    recursive = "recursive" in step and truth_of(step["recursive"], "recursive")
    if isinstance(value, str) and value.endswith("/") and not recursive:
        raise Fault(f"{quoted(value)}: a trailing slash means a directory", "delete",
                    hint="A directory and all in it is deleted with: recursive: true")  # fmt: skip
    return Delete(path, recursive)


def _move(step: _Step, _contents: Contents) -> Step:
    fields = _parts(step, "move", ("from", "to"))
    try:
        path, to = path_of(fields["from"], "from"), path_of(fields["to"], "to")
        if path == to:
            raise Fault(f"{quoted(path)} would be moved onto itself", "to")
        if to.startswith(path + "/"):
            raise Fault(f"{quoted(path)} would be moved into itself", "to")
    except Fault as fault:
        raise fault.inside("move") from None
    return Move(path, to)


def _chmod(step: _Step, _contents: Contents) -> Step:
    fields = _parts(step, "chmod", ("path", "mode"))
    try:
        return Chmod(path_of(fields["path"], "path"), mode_of(fields["mode"]))
    except Fault as fault:
        raise fault.inside("chmod") from None


def _symlink(step: _Step, _contents: Contents) -> Step:
    fields = _parts(step, "symlink", ("path", "to"))
    try:
        return Symlink(file_path_of(fields["path"], "path", "symlink"), target_of(fields["to"], "to"))
    except Fault as fault:
        raise fault.inside("symlink") from None


def _read(step: _Step, _contents: Contents) -> Step:
    return Read(file_path_of(step["read"], "read", "read"))


def _run(step: _Step, _contents: Contents) -> Step:
    made = Run(argv_of(step["run"], "run"))
    return made._replace(within_ms=duration_of(step["within"], "within")) if "within" in step else made


def _agent(step: _Step, _contents: Contents) -> Step:
    name, task = prose_of(step["agent"], "agent"), prose_of(required(step, "task", "agent"), "task")
    if not name or not task.strip():
        raise Fault(f"{'task' if name else 'agent'} must not be empty", "task" if name else "agent")
    made = Agent(name, task, _paths_in(step, "files"), _paths_in(step, "expect"))
    if "attempts" in step:
        made = made._replace(attempts=whole_number_of(step["attempts"], "attempts", 1, _MOST_ATTEMPTS))
    return made._replace(within_ms=duration_of(step["within"], "within")) if "within" in step else made


def _paths_in(step: _Step, key: str) -> tuple[str, ...]:
    if key not in step:
        return ()
    found = []
    for index, item in enumerate(list_of(step[key], key, key)):
        try:
            found.append(path_of(item, key))
        except Fault as fault:
            raise Fault(fault.message, key, index, hint=fault.hint) from None
    return tuple(found)


def _service(step: _Step, _contents: Contents) -> Step:
    return service_of(step)


def _parts(step: _Step, action: str, names: tuple[str, str]) -> _Step:
    """The mapping under an action that takes exactly two named values."""
    value = step[action]
    if not isinstance(value, dict):
        raise Fault(f"{action} takes a mapping with {quoted(names[0])} and {quoted(names[1])}", action)
    try:
        known_keys(value, frozenset(names), action)
        for name in names:
            required(value, name, action)
    except Fault as fault:
        raise fault.inside(action) from None
    return value


def _mode_in(step: _Step) -> int | None:
    return mode_of(step["mode"]) if "mode" in step else None


_PARSERS: dict[str, _Parser] = {
    "write": _write,
    "update": _update,
    "create": _create,
    "delete": _delete,
    "move": _move,
    "chmod": _chmod,
    "symlink": _symlink,
    "read": _read,
    "run": _run,
    "agent": _agent,
    "service": _service,
}
