"""Figures about the source: how large it is, how it hangs together, and how much of it one command runs.

    python scripts/figures.py            the tree that this script is in
    python scripts/figures.py DIR        another checkout, such as one from before a change; DIR/.venv runs its commands
    python scripts/figures.py --static   without running a command

A room is a file or folder directly below `src/holdfast`. Code lines are lines without blanks, comments and docstrings.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent.parent
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
AGENT = "import sys\nopen('made.py', 'w').write('x = 1\\n')\n"
# Runs one command line of Holdfast, and writes down the modules whose functions were called, and from which module.
PROFILED = """
import atexit, json, sys, threading
from holdfast import cli
package, out, argv = sys.argv[1], sys.argv[2], sys.argv[3:]
calls = set()
def module_of(code):
    name = code.co_filename
    return name[len(package) + 1 : -3] if name.startswith(package) and code.co_flags & 1 else None
def seen(frame, event, argument):
    if event != "call" or (callee := module_of(frame.f_code)) is None:
        return
    caller = frame.f_back
    while caller is not None and (found := module_of(caller.f_code)) is None:
        caller = caller.f_back
    calls.add((found if caller is not None else "", callee))
def keep():
    sys.setprofile(None)
    with open(out, "w") as file:
        json.dump(sorted(calls), file)
atexit.register(keep)
threading.setprofile(seen)
sys.setprofile(seen)
sys.exit(cli.main(argv))
"""


class Module(NamedTuple):
    name: str  # dotted, below holdfast
    lines: int
    code_lines: int
    functions: tuple[int, ...]  # code lines of each
    public_classes: tuple[str, ...]
    imports: frozenset[str]

    @property
    def room(self) -> str:
        return room_of(self.name)


def room_of(name: str) -> str:
    return name.partition(".")[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", nargs="?", default=str(HERE))
    parser.add_argument("--static", action="store_true")
    asked = parser.parse_args()
    checkout = Path(asked.checkout).resolve()
    package = checkout / "src" / "holdfast"
    modules = [read(path, package) for path in sorted(package.rglob("*.py"))]
    print_rooms(modules)
    print_whole(modules)
    if not asked.static:
        python = checkout / ".venv" / "bin" / "python"
        for title, calls in commands(python, package):
            ran = {callee for _, callee in calls}
            edges = {(room_of(a), room_of(b)) for a, b in calls if a and room_of(a) != room_of(b)}
            print(f"{title}: {len(ran)} modules run, {len(edges)} edges between rooms crossed")
    return 0


def read(path: Path, package: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    code = code_lines(text, tree)
    functions = tuple(
        len(code.intersection(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
        for node in ast.walk(tree)
        if isinstance(node, _FUNCTIONS)
    )
    classes = tuple(node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    name = ".".join(path.relative_to(package).with_suffix("").parts)
    return Module(name, text.count("\n"), len(code), functions, classes, frozenset(imported(tree)))


def code_lines(text: str, tree: ast.Module) -> set[int]:
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, (ast.Module, ast.ClassDef, *_FUNCTIONS))
            and ast.get_docstring(node, clean=False) is not None
        ):
            words = node.body[0]
            found.difference_update(range(words.lineno, (words.end_lineno or words.lineno) + 1))
    return found


def imported(tree: ast.Module) -> Iterator[str]:
    """Rooms, also those that are imported for types alone."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "holdfast":
            below = node.module.removeprefix("holdfast").lstrip(".")
            yield from [room_of(below)] if below else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("holdfast."))


def print_rooms(modules: list[Module]) -> None:
    rooms: dict[str, list[Module]] = defaultdict(list)
    for module in modules:
        rooms[module.room].append(module)
    print(f"{'room':<14}{'modules':>8}{'lines':>8}{'code':>8}")
    for room, found in sorted(rooms.items()):
        lines, code = sum(each.lines for each in found), sum(each.code_lines for each in found)
        print(f"{room:<14}{len(found):>8}{lines:>8}{code:>8}")
    lines, code = sum(each.lines for each in modules), sum(each.code_lines for each in modules)
    print(f"{'all':<14}{len(modules):>8}{lines:>8}{code:>8}\n")


def print_whole(modules: list[Module]) -> None:
    functions = sorted(lines for module in modules for lines in module.functions)
    p95 = functions[int(len(functions) * 0.95)]
    print(f"functions: {len(functions)}, median {statistics.median(functions):g}, p95 {p95}, longest {functions[-1]}")
    repeated("public class names that stand twice", Counter(name for each in modules for name in each.public_classes))
    names = Counter(each.name.rpartition(".")[2] for each in modules)
    del names["__init__"]
    repeated("module names that stand twice", names)
    edges = {(each.room, room) for each in modules for room in each.imports if room != each.room}
    mutual = sorted(f"{a} and {b}" for a, b in edges if (b, a) in edges and a < b)
    print(
        f"rooms that import each other: {len(mutual)} of {len(edges)} edges{': ' if mutual else ''}{', '.join(mutual)}"
    )


def repeated(what: str, names: Counter[str]) -> None:
    twice = sorted(name for name, count in names.items() if count > 1)
    print(f"{what}: {len(twice)}{': ' if twice else ''}{', '.join(twice)}")


def commands(python: Path, package: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        work = place / "work"
        work.mkdir()
        names = ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
        env = {"PATH": os.environ["PATH"], **{name: str(place / name) for name in names}}
        (place / "agent.py").write_text(AGENT)
        settings = place / "XDG_CONFIG_HOME" / "holdfast"
        settings.mkdir(parents=True)
        (settings / "config.toml").write_text(
            f'[agents.mine]\ncommand = ["python3", "{place}/agent.py"]\nnetwork = "none"\n'
        )
        (work / "ROADMAP.md").write_text("# Plan\n\n- [ ] 1.1 Create made.py\n")
        (work / "Makefile").write_text("test:\n\tpython3 -m compileall -q .\n")
        (work / "change.yaml").write_text("intent: One file\nsteps:\n  - write: a.txt\n    content: x\n")
        git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
        for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
            subprocess.run([*git, *words], cwd=work, env=env, check=True, capture_output=True)
        subprocess.run([python, "-m", "holdfast", "init"], cwd=work, env=env, check=True, capture_output=True)
        for title, argv in (
            ("one `apply`", ["apply", "change.yaml", "--yes"]),
            ("one roadmap task", ["run", "--agent", "mine", "--yes"]),
        ):
            out = place / "calls.json"
            words = [str(python), "-c", PROFILED, str(package), str(out), *argv]
            done = subprocess.run(words, cwd=work, env=env, capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{title} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
            rows = json.loads(out.read_text())
            yield title, [(a.replace("/", "."), b.replace("/", ".")) for a, b in rows]


if __name__ == "__main__":
    sys.exit(main())
