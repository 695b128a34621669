"""What a plan means, said with a plain dictionary: path to thing. Only the step types come from Holdfast."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Read, Step, Symlink, Update, Write


class Node(NamedTuple):
    kind: str
    mode: int = 0o777
    content: bytes = b""


World = dict[str, Node]
DIRECTORY = Node("directory", 0o755)


class Impossible(Exception):
    """The model says that this step cannot be done."""


def outcome(world: World, steps: tuple[Step, ...]) -> World:
    """The world after the steps, or Impossible."""
    after = dict(world)
    for step in steps:
        _do(after, step)
    return after


def _do(world: World, step: Step) -> None:
    match step:
        case Write(path, Inline(data), mode):
            _write(world, path, data, mode)
        case Update(path, old, Inline(data), mode):
            if world.get(path, DIRECTORY) != Node("file", world.get(path, DIRECTORY).mode, old):
                raise Impossible
            _write(world, path, data, mode)
        case Create(path, directory, mode):
            _require(path not in world)
            kind, default = ("directory", 0o755) if directory else ("file", 0o644)
            _place(world, path, Node(kind, default if mode is None else mode))
        case Delete(path, recursive):
            _require(path in world)
            _require(recursive or world[path].kind != "directory")
            for each in [path, *_below(world, path)]:
                del world[each]
        case Move(path, to):
            _move(world, path, to)
        case Chmod(path, mode):
            _require(path in world and world[path].kind != "symlink")
            world[path] = world[path]._replace(mode=mode)
        case Symlink(path, target):
            _require(path not in world or world[path].kind == "symlink")
            _place(world, path, Node("symlink", content=target.encode()))
        case Read(path):
            _require(path in world)
        case _:
            raise AssertionError(step)


def _write(world: World, path: str, data: bytes, mode: int | None) -> None:
    there = world.get(path)
    _require(there is None or there.kind == "file")
    kept = 0o644 if there is None else there.mode
    _place(world, path, Node("file", kept if mode is None else mode, data))


def _move(world: World, path: str, to: str) -> None:
    _require(path in world and to not in world and not to.startswith(f"{path}/"))
    moving = {to + each[len(path) :]: world[each] for each in [path, *_below(world, path)]}
    _make_parents(world, to)
    for each in [path, *_below(world, path)]:
        del world[each]
    world.update(moving)


def _place(world: World, path: str, node: Node) -> None:
    _make_parents(world, path)
    world[path] = node


def _make_parents(world: World, path: str) -> None:
    names = path.split("/")[:-1]
    for count in range(1, len(names) + 1):
        above = "/".join(names[:count])
        _require(world.setdefault(above, DIRECTORY).kind == "directory")


def _below(world: World, path: str) -> list[str]:
    return [each for each in world if each.startswith(f"{path}/")]


def _require(condition: bool) -> None:
    if not condition:
        raise Impossible
