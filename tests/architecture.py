"""The rules about the shape of the code.

A rule is a function from the modules of a tree to breaches; its docstring is the reason, and a failure prints it.
Rules read syntax trees, never text, so an import inside a function or under TYPE_CHECKING counts like any other.
`test_architecture.py` runs every rule on the real tree and on a small tree that breaks it.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from source_tree import PACKAGE, Module, constant, imports, last_name

# From the bottom up; a room imports only from rooms below its own, and rooms on one line are blind to each other.
STAGES = frozenset(
    {"intake", "context", "planning", "simulation", "gates", "execution", "checks", "settlement", "learning"}
)
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"errors"}),
    frozenset({"model"}),
    frozenset({"disk"}),
    frozenset({"settings"}),
    frozenset({"sandbox"}),
    frozenset({"store"}),
    frozenset({"workspace"}),
    frozenset({"environment"}),
    frozenset({"proxy"}),
    frozenset({"agents"}),
    STAGES,
    frozenset({"telemetry"}),
    frozenset({"engine"}),
    frozenset({"wiring"}),
    frozenset({"testing"}),
    frozenset({"__init__"}),
    frozenset({"cli", "web", "mcp"}),
    frozenset({"__main__"}),
)
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

PURE_ROOMS = frozenset({"model", "gates", "planning"})
# Whole modules of the standard library that cannot do I/O and give the same answer every time.
PURE_MODULES = frozenset(
    """__future__ abc ast base64 binascii bisect collections collections.abc copy dataclasses datetime decimal difflib
    enum fnmatch fractions functools hashlib heapq hmac html ipaddress itertools json math numbers operator re shlex
    stat string struct textwrap tomllib types typing unicodedata urllib.parse zlib""".split()
)
IMPURE_BUILTINS = frozenset({"open", "input", "print", "exec", "eval", "compile", "breakpoint", "__import__"})
CLOCKS = frozenset({"now", "utcnow", "today"})

WRITERS = frozenset({"disk", "store", "workspace", "testing"})
# These write only below a directory, or into a file system, that they have just made for themselves.
SCRATCH_MODULES = frozenset({"checks.attempt", "cli.demo", "sandbox.probe", "sandbox.stage"})
SPAWNERS = frozenset({"sandbox", "testing"})
NATIVE_CALLERS = frozenset({"disk", "sandbox"})
DESCRIPTOR_LISTERS = frozenset({"disk.calls"})
LISTINGS = frozenset({"listdir", "scandir"})
PATH_MAKERS = frozenset({"fspath", "join"})  # os.fspath raises TypeError for a descriptor
FAKES_USERS = frozenset({"cli.demo"})
COMPUTED_IMPORTERS = frozenset({"__init__", "cli", "web", "mcp", "agents"})

# Calls that change a file, by what they are called on. `calls` is our own table of system calls (disk.calls).
WRITES_OF_OS = frozenset(
    """rename renames replace remove unlink rmdir removedirs mkdir makedirs symlink link chmod lchmod fchmod chown
    lchown fchown truncate ftruncate utime mknod mkfifo setxattr removexattr copy_file_range exchange move pwrite
    copy copy2 copyfile copymode copystat copytree rmtree make_archive unpack_archive""".split()
)
TABLES_OF_CALLS = frozenset({"os", "shutil", "posix", "calls", "_calls", "CALLS"})
WRITES_OF_ANYTHING = frozenset(
    {"write_text", "write_bytes", "touch", "mkdir", "rmdir", "unlink", "rmtree", "symlink_to", "hardlink_to"}
)
READ_ONLY_FLAGS = frozenset(
    """O_RDONLY O_PATH O_CLOEXEC O_NOFOLLOW O_DIRECTORY O_NONBLOCK O_NOATIME O_NOCTTY RDONLY""".split()
)

PROCESS_MODULES = frozenset({"subprocess", "multiprocessing", "pty", "_posixsubprocess", "concurrent.futures.process"})
PROCESS_CALLS = re.compile(r"(fork|forkpty|system|popen|posix_spawnp?|(exec|spawn)[lv]p?e?|create_subprocess_\w+)$")

EMPTY_NAMES = re.compile(r"(^|_)(utils?|helpers?|managers?)$|^phase")


class Breach(NamedTuple):
    module: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}: {self.what}"


Rule: TypeAlias = Callable[[Sequence[Module]], Iterator[Breach]]


def room_of(target: str) -> str | None:
    """The room of ours that an import names; None for a foreign import and for the version, which anyone may ask."""
    head, _, rest = target.partition(".")
    first = rest.partition(".")[0]
    if head != PACKAGE or first == "__version__":
        return None
    return first if first in FLOOR_OF else "__init__"


# ── the rules ──


def rooms_are_known(modules: Sequence[Module]) -> Iterator[Breach]:
    """A room that is not in FLOORS has no place in the order of imports, so nothing would be checked for it."""
    for module in modules:
        if module.room not in FLOOR_OF:
            yield Breach(module.name, 1, f"unknown room {module.room!r}: give it a floor in tests/architecture.py")


def imports_go_down(modules: Sequence[Module]) -> Iterator[Breach]:
    """A room that knows only what is below it can be read, tested and replaced without the rest.

    Stages turn one noun into the next and meet only in the engine: one that imports another hides the order of a run.
    """
    for module in modules:
        floor = FLOOR_OF.get(module.room, len(FLOORS))
        for imported in imports(module):
            room = room_of(imported.target)
            if room is not None and room != module.room and FLOOR_OF[room] >= floor:
                blind = "blind to" if FLOOR_OF[room] == floor else "below"
                yield Breach(module.name, imported.line, f"imports {imported.target}; {module.room} is {blind} {room}")


def computed_imports_stay_in_registries(modules: Sequence[Module]) -> Iterator[Breach]:
    """An import whose name is computed cannot be checked; only faces and the registry of agents load by name."""
    for module in modules:
        for imported in imports(module):
            if not imported.target and module.room not in COMPUTED_IMPORTERS:
                yield Breach(module.name, imported.line, "imports a module by a computed name")


def fakes_stay_out_of_the_product(modules: Sequence[Module]) -> Iterator[Breach]:
    """holdfast.testing stops the world on purpose; product code that can reach it can be made to do so too."""
    for module in modules:
        for imported in imports(module):
            if room_of(imported.target) == "testing" and module.room != "testing" and module.name not in FAKES_USERS:
                yield Breach(module.name, imported.line, f"imports {imported.target}")


def pure_rooms_do_nothing_but_think(modules: Sequence[Module]) -> Iterator[Breach]:
    """The same inputs must give the same digest and the same verdict, on any host and at any time.

    So: standard library only, no I/O (also not through builtins, nor through rooms of ours that do some), no clock,
    no chance.
    """
    for module in modules:
        if module.room in PURE_ROOMS:
            yield from _impure_imports(module)
            yield from _impure_names(module)


def _impure_imports(module: Module) -> Iterator[Breach]:
    for imported in imports(module):
        parent = imported.target.rpartition(".")[0]
        if (room := room_of(imported.target)) is not None and room not in PURE_ROOMS | {"errors"}:
            yield Breach(module.name, imported.line, f"imports {imported.target}; {room} is not pure")
        if room_of(imported.target) is None and not {imported.target, parent} & PURE_MODULES:
            kind = "impure" if imported.target.partition(".")[0] in sys.stdlib_module_names else "foreign"
            yield Breach(module.name, imported.line, f"imports {imported.target}, which is {kind} or not known as pure")


def _impure_names(module: Module) -> Iterator[Breach]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in IMPURE_BUILTINS:
            yield Breach(module.name, node.lineno, f"uses the builtin {node.id}")
        elif isinstance(node, ast.Attribute) and node.attr in CLOCKS and last_name(node.value) in {"datetime", "date"}:
            yield Breach(module.name, node.lineno, f"reads the clock: {node.attr}")


def only_the_hands_write(modules: Sequence[Module]) -> Iterator[Breach]:
    """A write that does not go through disk, store or workspace is in no journal: it cannot be undone or recovered."""
    for module in modules:
        if module.room in WRITERS or module.name in SCRATCH_MODULES:
            continue
        aliases = _aliases(module)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and (what := _write_of(node, aliases)):
                yield Breach(module.name, node.lineno, f"writes with {what}")


def _aliases(module: Module) -> dict[str, str]:
    """Local name to full name, so that `from os import rename as r` and `import shutil as s` hide nothing."""
    found: dict[str, str] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def _write_of(node: ast.Call, aliases: dict[str, str]) -> str | None:
    function = node.func
    if isinstance(function, ast.Name):
        owner, _, name = aliases.get(function.id, function.id).rpartition(".")
    elif isinstance(function, ast.Attribute):
        receiver = last_name(function.value)
        owner, name = aliases.get(receiver, receiver), function.attr
    else:
        return None
    owner = owner.rpartition(".")[2]
    if name == "open":
        return _write_of_open(node, owner, is_method=isinstance(function, ast.Attribute))
    on_a_table = owner in TABLES_OF_CALLS and name in WRITES_OF_OS
    return f"{owner}.{name}" if on_a_table or name in WRITES_OF_ANYTHING else None


def _write_of_open(node: ast.Call, owner: str, *, is_method: bool) -> str | None:
    if owner in TABLES_OF_CALLS:
        flags = node.args[1] if len(node.args) > 1 else _keyword(node, "flags")
        return None if flags is None or _only_reads(flags) else f"{owner}.open"
    # `path.open(mode)` has the mode first, `open(path, mode)` and `io.open(path, mode)` second.
    position = 0 if is_method and owner != "io" else 1
    mode = node.args[position] if len(node.args) > position else _keyword(node, "mode")
    if mode is None or (is_method and owner == PACKAGE):
        return None
    text = constant(mode)
    return None if text is not None and not set("wax+") & set(text) else f"open, mode {ast.unparse(mode)}"


def _keyword(node: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in node.keywords if keyword.arg == name), None)


def _only_reads(flags: ast.expr) -> bool:
    if isinstance(flags, ast.BinOp) and isinstance(flags.op, ast.BitOr):
        return _only_reads(flags.left) and _only_reads(flags.right)
    return last_name(flags) in READ_ONLY_FLAGS


def only_the_sandbox_starts_processes(modules: Sequence[Module]) -> Iterator[Breach]:
    """A process started elsewhere has no limits, no isolation and nobody who ends it when we die."""
    for module in modules:
        if module.room in SPAWNERS:
            continue
        for imported in imports(module):
            parent, _, name = imported.target.rpartition(".")
            if (
                _starts_a_process(parent, name)
                or {imported.target, parent, imported.target.partition(".")[0]} & PROCESS_MODULES
            ):
                yield Breach(module.name, imported.line, f"imports {imported.target}")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and _starts_a_process(last_name(node.value), node.attr):
                yield Breach(module.name, node.lineno, f"uses {ast.unparse(node)}")


def _starts_a_process(owner: str, name: str) -> bool:
    return owner in {"os", "posix", "asyncio"} and PROCESS_CALLS.match(name) is not None


def native_calls_stay_below(modules: Sequence[Module]) -> Iterator[Breach]:
    """Through ctypes one can write and fork unseen by every other rule here."""
    for module in modules:
        for imported in imports(module):
            if imported.target.partition(".")[0] in {"ctypes", "_ctypes", "cffi"} and module.room not in NATIVE_CALLERS:
                yield Breach(module.name, imported.line, f"imports {imported.target}")


def descriptors_are_listed_in_one_place(modules: Sequence[Module]) -> Iterator[Breach]:
    """A descriptor that was opened before a program ran lists old names on btrfs unless it is rewound first.

    `Calls.names` and `Calls.entries` rewind. Elsewhere os.listdir and os.scandir take a path and show it: a literal,
    os.path.join(...), or os.fspath(...), which refuses a descriptor.
    """
    for module in modules:
        if module.name in DESCRIPTOR_LISTERS:
            continue
        aliases = _aliases(module)
        paths = {
            id(node.func)
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and len(node.args) == 1 and _is_a_path(node.args[0])
        }
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in paths and _lists(node, aliases):
                yield Breach(module.name, node.lineno, f"uses {ast.unparse(node)} on what may be a descriptor")


def _lists(node: ast.Name | ast.Attribute, aliases: dict[str, str]) -> bool:
    if isinstance(node, ast.Name):
        owner, _, name = aliases.get(node.id, "").rpartition(".")
    else:
        receiver = last_name(node.value)
        owner, name = aliases.get(receiver, receiver), node.attr
    return owner in {"os", "posix"} and name in LISTINGS


def _is_a_path(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.JoinedStr)
        or constant(node) is not None
        or (isinstance(node, ast.Call) and last_name(node.func) in PATH_MAKERS)
    )


def names_say_something(modules: Sequence[Module]) -> Iterator[Breach]:
    """A module named utils, helpers, manager or phase-something is named after nothing it does, and so collects all."""
    for module in modules:
        for part in module.name.split("."):
            if EMPTY_NAMES.search(part):
                yield Breach(module.name, 1, f"is called {part!r}")


def each_test_states_a_behaviour(modules: Sequence[Module]) -> Iterator[Breach]:
    """A test's docstring is the sentence that its failure disproves; without one nobody knows what was promised."""
    for module in modules:
        if not module.name.rpartition(".")[2].startswith("test_"):
            continue
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            if not (ast.get_docstring(node) or "").strip():
                yield Breach(module.name, node.lineno, f"{node.name} has no docstring")


PACKAGE_RULES: tuple[Rule, ...] = (
    rooms_are_known,
    imports_go_down,
    computed_imports_stay_in_registries,
    fakes_stay_out_of_the_product,
    pure_rooms_do_nothing_but_think,
    only_the_hands_write,
    only_the_sandbox_starts_processes,
    native_calls_stay_below,
    descriptors_are_listed_in_one_place,
    names_say_something,
)
