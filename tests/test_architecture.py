"""The shape of the code is a promise too: each rule holds for the real tree, and is seen to fail on a wrong one."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from architecture import PACKAGE_RULES, Rule, each_test_states_a_behaviour
from source_tree import read_package

ROOT = Path(__file__).parent.parent
RULES = {rule.__name__: rule for rule in PACKAGE_RULES}

# rule, file, source that breaks it
BROKEN = [
    ("rooms_are_known", "attic.py", ""),
    ("rooms_are_known", "attic/__init__.py", ""),
    ("imports_go_down", "model/a.py", "import holdfast.disk"),
    ("imports_go_down", "model/a.py", "from holdfast.store.blobs import Blobs"),
    ("imports_go_down", "model/a.py", "from holdfast import disk"),
    ("imports_go_down", "model/a.py", "from holdfast import open"),
    ("imports_go_down", "model/a.py", "from ..workspace import tree"),
    ("imports_go_down", "model/__init__.py", "from .. import disk"),
    ("imports_go_down", "model/a.py", "def f():\n    import holdfast.disk.calls"),
    ("imports_go_down", "model/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import holdfast.disk"),
    ("imports_go_down", "model/a.py", "import importlib\nimportlib.import_module('holdfast.disk')"),
    ("imports_go_down", "disk/a.py", "import holdfast.settings"),
    ("imports_go_down", "checks/a.py", "from holdfast.execution import apply"),
    ("imports_go_down", "checks/a.py", "import holdfast.telemetry"),
    ("imports_go_down", "engine/a.py", "from holdfast.wiring import parts"),
    ("imports_go_down", "web/a.py", "from holdfast.cli import main"),
    ("imports_go_down", "errors.py", "import holdfast.model"),
    ("computed_imports_stay_in_registries", "store/a.py", "import importlib\nimportlib.import_module(name)"),
    ("computed_imports_stay_in_registries", "store/a.py", "__import__('holdfast.' + room)"),
    ("fakes_stay_out_of_the_product", "cli/apply.py", "from holdfast.testing import FaultyCalls"),
    ("fakes_stay_out_of_the_product", "wiring.py", "import holdfast.testing"),
    ("pure_rooms_do_nothing_but_think", "model/a.py", "import os"),
    ("pure_rooms_do_nothing_but_think", "model/a.py", "from pathlib import PurePath"),
    ("pure_rooms_do_nothing_but_think", "model/a.py", "import blake3"),
    ("pure_rooms_do_nothing_but_think", "model/a.py", "from urllib.request import urlopen"),
    ("pure_rooms_do_nothing_but_think", "model/a.py", "def f(p):\n    return open(p).read()"),
    ("pure_rooms_do_nothing_but_think", "model/a.py", "read = open"),
    ("pure_rooms_do_nothing_but_think", "gates/a.py", "import time"),
    ("pure_rooms_do_nothing_but_think", "gates/a.py", "from datetime import datetime\nt = datetime.now()"),
    ("pure_rooms_do_nothing_but_think", "gates/a.py", "import datetime\nt = datetime.datetime.now()"),
    ("only_the_hands_write", "engine/a.py", "open(p, 'w')"),
    ("only_the_hands_write", "engine/a.py", "open(p, mode='r+b')"),
    ("only_the_hands_write", "engine/a.py", "open(p, mode)"),
    ("only_the_hands_write", "engine/a.py", "p.open('ab')"),
    ("only_the_hands_write", "engine/a.py", "import io\nio.open(p, 'x')"),
    ("only_the_hands_write", "engine/a.py", "import os\nos.open(p, os.O_RDONLY | os.O_CREAT)"),
    ("only_the_hands_write", "engine/a.py", "import os\nos.open(p, flags)"),
    ("only_the_hands_write", "engine/a.py", "import os as o\no.rename(a, b)"),
    ("only_the_hands_write", "engine/a.py", "from os import replace as r\nr(a, b)"),
    ("only_the_hands_write", "checks/a.py", "import shutil\nshutil.copytree(a, b)"),
    ("only_the_hands_write", "checks/a.py", "self.calls.exchange(a, 1, b, 2)"),
    ("only_the_hands_write", "checks/a.py", "p.write_text('x')"),
    ("only_the_hands_write", "settings.py", "p.unlink()"),
    ("only_the_sandbox_starts_processes", "checks/a.py", "import subprocess"),
    ("only_the_sandbox_starts_processes", "checks/a.py", "def f():\n    from subprocess import run"),
    ("only_the_sandbox_starts_processes", "checks/a.py", "from concurrent.futures.process import ProcessPoolExecutor"),
    ("only_the_sandbox_starts_processes", "workspace/a.py", "import os\nos.fork()"),
    ("only_the_sandbox_starts_processes", "workspace/a.py", "from os import posix_spawn"),
    ("only_the_sandbox_starts_processes", "cli/a.py", "import os\nos.execvp(a, b)"),
    ("only_the_sandbox_starts_processes", "cli/a.py", "import asyncio\nasyncio.create_subprocess_exec(a)"),
    ("native_calls_stay_below", "workspace/a.py", "import ctypes"),
    ("descriptors_are_listed_in_one_place", "workspace/a.py", "import os\nos.listdir(fd)"),
    ("descriptors_are_listed_in_one_place", "workspace/a.py", "import os\nwith os.scandir(self.root.fd) as e:\n    e"),
    ("descriptors_are_listed_in_one_place", "workspace/a.py", "from os import scandir as s\ns(fd)"),
    ("descriptors_are_listed_in_one_place", "disk/a.py", "import os as o\nnames = map(o.listdir, fds)"),
    ("names_say_something", "disk/utils.py", ""),
    ("names_say_something", "store/file_helpers.py", ""),
    ("names_say_something", "engine/manager.py", ""),
    ("names_say_something", "engine/phase2/__init__.py", ""),
]

# What looks wrong and is right; every rule is run on each.
SOUND = [
    (
        "model/a.py",
        "import hashlib, json\nfrom collections.abc import Iterable\nfrom holdfast.errors import InvalidPath",
    ),
    ("model/a.py", "from . import image\nfrom holdfast.model.path import clean\ntext.replace('a', 'b').open"),
    ("disk/a.py", "import ctypes, os\nos.rename(a, b)\nopen(p, 'w')"),
    ("settings.py", "from holdfast.disk.files import replace\nopen(p, 'rb')\nopen(p)\nreplace(a, b)"),
    ("engine/a.py", "import os\nos.open(p, os.O_RDONLY | os.O_CLOEXEC)\np.open()\nnames.remove(x)\ntx.move(a, b)"),
    ("engine/a.py", "from holdfast import __version__\nimport holdfast.telemetry, holdfast.checks, holdfast.intake"),
    ("sandbox/a.py", "import subprocess, os\nos.fork()"),
    ("sandbox/a.py", "import os\nos.listdir('/proc')\nos.listdir(f'/proc/{pid}/fd')\nos.scandir(os.fspath(folder))"),
    ("disk/calls.py", "import os\nos.listdir(fd)"),
    ("store/a.py", "calls.names(fd)\nimport os\nos.scandir(os.path.join(a, b))"),
    ("cli/demo.py", "from holdfast.testing import FaultyCalls\nimport holdfast\nholdfast.open('.')\np.write_text('x')"),
    ("cli/__init__.py", "import importlib\nimportlib.import_module(name)"),
    ("__main__.py", "from holdfast.cli import main"),
    ("model/a.py", f'def f():\n    """Long.\n{"    words" * 3}\n    """\n' + "    # why\n\n" * 60 + "    return 1"),
]


def write_tree(root: Path, file: str, source: str) -> Path:
    path = root / "holdfast" / file
    path.parent.mkdir(parents=True)
    path.write_text(source, encoding="utf-8")
    return root / "holdfast"


# Read once for all rules that are asked about it.
_package = cache(read_package)


def complaints(rule: Rule, root: Path) -> str:
    found = [str(breach) for breach in rule(_package(root))]
    return "\n".join([*found, "", f"Why: {rule.__doc__}"]) if found else ""


@pytest.mark.parametrize("rule", PACKAGE_RULES, ids=RULES)
def test_the_package_keeps(rule: Rule) -> None:
    """Every rule about imports, purity, writes, processes and names holds for the whole package."""
    found = complaints(rule, ROOT / "src" / "holdfast")
    assert found == "", found


def test_every_test_states_a_behaviour() -> None:
    """Every test function has a docstring."""
    found = complaints(each_test_states_a_behaviour, ROOT / "tests")
    assert found == "", found


def test_the_package_is_really_read() -> None:
    """The rules look at the true tree: an empty or misplaced one would keep them all."""
    names = {module.name for module in read_package(ROOT / "src" / "holdfast")}
    assert names >= {"__init__", "errors", "model", "model.path", "disk.calls"}


@pytest.mark.parametrize(("rule", "file", "source"), BROKEN)
def test_a_broken_tree_is_found(rule: str, file: str, source: str, tmp_path: Path) -> None:
    """Each rule finds each way of breaking it, says where, and gives its reason."""
    found = complaints(RULES[rule], write_tree(tmp_path, file, source))
    room = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert found.startswith(f"{room}:")
    assert "Why: " in found


def test_every_rule_is_seen_to_fail() -> None:
    """There is no rule that no case breaks."""
    assert {rule for rule, _, _ in BROKEN} == set(RULES)


@pytest.mark.parametrize(("file", "source"), SOUND)
def test_a_sound_tree_is_left_alone(file: str, source: str, tmp_path: Path) -> None:
    """No rule complains about code that only looks like a breach."""
    root = write_tree(tmp_path, file, source)
    assert [complaints(rule, root) for rule in PACKAGE_RULES] == [""] * len(PACKAGE_RULES)


@pytest.mark.parametrize("body", ["pass", "''", "'   '", "x = 'no docstring'"])
def test_a_test_without_a_behaviour_is_found(body: str, tmp_path: Path) -> None:
    """A test without a docstring is found, in a function and in a class; one with a docstring is not."""
    source = (
        f'def test_a():\n    {body}\nclass TestB:\n    def test_b(self):\n        {body}\ndef test_c():\n    """C."""'
    )
    found = complaints(each_test_states_a_behaviour, write_tree(tmp_path, "deep/test_x.py", source))
    assert [name in found for name in ("test_a", "test_b", "test_c")] == [True, True, False]


def test_importing_holdfast_loads_nothing_slow() -> None:
    """`import holdfast` stays cheap: what only some verbs need is imported by those verbs."""
    program = "import sys, holdfast; print(*{'asyncio', 'rich', 'yaml', 'subprocess', 'urllib'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
