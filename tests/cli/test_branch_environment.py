"""`--branch`: checks and agents have what is installed in the person's checkout; it lands nowhere, and stays theirs."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from branched import change, kept, titles
from delegated import configured
from projects import PYTHON, need
from roadmapped import git, roadmap_of, script

_PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")
_IGNORED = ".venv/\nnode_modules/\n__pycache__/\n"
# It sees what is installed, and does what it can to leave something there.
_AGENT = """
import os, re, shutil, sys
name = re.search(r"Create (\\w+)\\.py", open(sys.argv[1]).read()).group(1)
folder = next(name for name in (".venv", "node_modules") if os.path.isdir(name))
open(f"{name}.py", "w").write(f"# {os.getcwd()} {sorted(os.listdir(folder))}\\n")
if "meddles" in open(sys.argv[1]).read():
    shutil.rmtree(folder)
    os.makedirs(f"{folder}/mine")
if "breaks" in open(sys.argv[1]).read():
    for broken in ("app/core.py", "lib.js"):
        if os.path.exists(broken):
            text = open(broken).read().replace("2 * x", "3 * x")
            open(broken, "w").write(text)
"""
_NODE = {
    "package.json": '{"name": "x", "scripts": {"test": "node --test"}}',
    "lib.js": "module.exports = { double: (x) => 2 * x };\n",
    "lib.test.js": (
        "const { test } = require('node:test');\nconst four = require('four');\nconst { double } = require('./lib');\n"
        "test('doubles', () => { if (double(2) !== four) throw new Error('wrong'); });\n"
    ),
}


def python_with_pytest(directory: Path) -> None:
    """A real environment; no index of packages is asked."""
    base = os.path.realpath(sys.executable)
    subprocess.run([base, "-m", "venv", "--without-pip", str(directory / ".venv")], check=True)
    (site,) = (directory / ".venv" / "lib").glob("python3*/site-packages")
    for name in _PYTEST:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue  # of another release of pytest
        if spec.submodule_search_locations is None:
            shutil.copy(spec.origin, site)
        else:
            shutil.copytree(Path(spec.origin).parent, site / name, ignore=shutil.ignore_patterns("__pycache__"))


def node_modules(directory: Path) -> None:
    folder = directory / "node_modules" / "four"
    folder.mkdir(parents=True)
    (folder / "index.js").write_text("module.exports = 4;\n")


def people(program: Any, language: str, *titles: str, ignored: str = _IGNORED) -> Any:
    """A repository in which everything passes for its user, and an agent in the user's configuration."""
    here: Path = program.directory
    files = {**PYTHON, "pyproject.toml": "[tool.pytest.ini_options]\n"} if language == "python" else _NODE
    for name, text in {**files, ".gitignore": ignored, "ROADMAP.md": roadmap_of(*titles)}.items():
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(text)
    if language == "node":
        need("node")
        node_modules(here)
    else:
        python_with_pytest(here)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
        git(program, *words)
    script(program).write_text(_AGENT)
    configured(f'[agents.mine]\ncommand = ["python3", "{script(program)}", "{{task_file}}"]\nnetwork = "none"\n')
    return program


def installed(program: Any) -> dict[str, tuple[int, ...]]:
    """Every path of the person's own folders, with what moves when somebody writes there."""
    found = {}
    for folder in (".venv", "node_modules"):
        for path in sorted(program.directory.glob(f"{folder}/**/*")):
            about = path.lstat()
            found[str(path)] = (about.st_ino, about.st_mode, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    assert found
    return found


def clean(program: Any) -> bool:
    return git(program, "-C", str(kept(program)), "status", "--porcelain", "--untracked-files=all") == ""


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["1", "2"])
@pytest.mark.parametrize("language", ["python", "node"])
def test_work_on_a_branch_is_verified_with_what_is_installed(guarded: Any, language: str, parallel: str) -> None:
    """The tests run for both tasks, one at a time and at once, and the agents see the same folder at the person's
    place. Nothing of it lands, git finds the branch clean, and nobody wrote to the person's folders."""
    here = people(guarded, language, "Create a.py", "Create b.py meddles")
    before = installed(here)
    done = here.fresh("run", "--branch", "night", "--agent", "mine", "--yes", "--parallel", parallel)
    assert done.status == 0, done.err
    assert "unverified" not in done.out + done.err
    assert "cannot run" not in done.err
    folder = ".venv" if language == "python" else "node_modules"
    names = sorted(os.listdir(here.directory / folder))
    for name in ("a", "b"):
        assert git(here, "show", f"night:{name}.py") == f"# {here.directory} {names}\n"
    assert installed(here) == before
    assert clean(here)
    assert not [name for name in git(here, "ls-tree", "-r", "--name-only", "night").split() if folder in name]


@pytest.mark.long
@pytest.mark.parametrize("parallel", ["1", "2"])
@pytest.mark.parametrize("language", ["python", "node"])
def test_a_broken_change_is_seen_failing_on_a_branch(guarded: Any, language: str, parallel: str) -> None:
    """It does not land."""
    here = people(guarded, language, "Create a.py breaks")
    options = ("--attempts", "1", "--parallel", parallel)
    done = here.fresh("run", "--branch", "night", "--agent", "mine", "--yes", *options)
    assert done.status == 11, done.err
    assert titles(here, "night") == ["base"]
    assert "failed" in done.out + done.err


@pytest.mark.parametrize("language", ["python", "node"])
def test_a_change_on_a_branch_is_checked_with_what_is_installed(guarded: Any, language: str) -> None:
    """Good lands, bad does not."""
    here = people(guarded, language)
    before = installed(here)
    place = "app/core.py" if language == "python" else "lib.js"
    text = (here.directory / place).read_text()

    def applied(text: str) -> Any:
        steps = [{"write": place, "content": text}]
        plan = json.dumps({"intent": "double", "steps": steps, "verify": "Run tests"})
        return here.fresh("apply", "--branch", "night", change(here, plan), "--yes")

    assert applied(text.replace("2 * x", "x * 2")).status == 0
    assert applied(text.replace("2 * x", "3 * x")).status == 6
    assert titles(here, "night") == ["base", "double"]
    assert (installed(here), clean(here)) == (before, True)


def command(program: Any, words: str) -> Any:
    text = f"intent: look\nsteps:\n  - run: {json.dumps(['sh', '-c', words])}\n"
    return program.fresh("apply", "--branch", "night", change(program, text), "--yes")


def test_what_is_installed_later_is_seen_by_the_next_call(guarded: Any) -> None:
    """Also what is gone from the person's folders is gone there."""
    here = people(guarded, "node")
    assert command(here, "ls node_modules > seen.txt").status == 0
    assert git(here, "show", "night:seen.txt") == "four\n"
    shutil.rmtree(here.directory / "node_modules" / "four")
    (here.directory / "node_modules" / "five").mkdir()
    (here.directory / "node_modules" / "five" / "run").write_text("#!/bin/sh\n")
    (here.directory / "node_modules" / "five" / "run").chmod(0o755)
    assert command(here, "ls node_modules > seen.txt").status == 0
    assert git(here, "show", "night:seen.txt") == "five\n"
    assert stat.S_IMODE((kept(here) / "node_modules" / "five" / "run").stat().st_mode) == 0o755
    shutil.rmtree(here.directory / "node_modules")
    assert command(here, "ls -d node_modules > seen.txt || true").status == 0
    assert git(here, "show", "night:seen.txt") == ""
    assert not (kept(here) / "node_modules").exists()


def test_a_folder_that_the_branch_tracks_is_its_own(guarded: Any) -> None:
    """What is committed there is not replaced by what the person has installed."""
    here = people(guarded, "node")
    git(here, "add", "-f", "node_modules")
    git(here, "commit", "-qm", "vendored")
    (here.directory / "node_modules" / "four" / "index.js").write_text("module.exports = 5;\n")
    assert command(here, "cat node_modules/four/index.js > seen.txt").status == 0
    assert git(here, "show", "night:seen.txt") == "module.exports = 4;\n"


def test_a_folder_that_nobody_brought_is_left_alone(guarded: Any) -> None:
    """What somebody installed in the kept work tree is theirs."""
    here = people(guarded, "node")
    shutil.rmtree(here.directory / "node_modules")
    assert command(here, "echo 1 > one.txt").status == 0
    node_modules(kept(here))
    node_modules(here.directory)
    (here.directory / "node_modules" / "four" / "index.js").write_text("module.exports = 5;\n")
    assert command(here, "cat node_modules/four/index.js > seen.txt").status == 0
    assert git(here, "show", "night:seen.txt") == "module.exports = 4;\n"


def test_what_git_does_not_ignore_stays_out_of_the_branch(guarded: Any) -> None:
    """It would be a new file there. A folder whose own rules ignore all of it is ignored."""
    here = people(guarded, "node", ignored="__pycache__/\n")
    git(here, "rm", "-rq", "--cached", "node_modules")
    git(here, "commit", "-qm", "not tracked")
    assert command(here, "ls -d node_modules > seen.txt || true").status == 0
    assert git(here, "show", "night:seen.txt") == ""
    (here.directory / "node_modules" / ".gitignore").write_text("*\n")
    assert command(here, "ls -d node_modules > seen.txt").status == 0
    assert git(here, "show", "night:seen.txt") == "node_modules\n"
    assert clean(here)


def test_hidden_files_among_what_is_installed_are_not_brought(guarded: Any) -> None:
    """The user's patterns hold for the copy."""
    here = people(guarded, "node")
    configured('[workspace]\nhidden = [".env"]\n')
    (here.directory / "node_modules" / "four" / ".env").write_text("TOKEN=1\n")
    assert command(here, "ls -A node_modules/four > seen.txt").status == 0
    assert git(here, "show", "night:seen.txt") == "index.js\n"
    assert not (kept(here) / "node_modules" / "four" / ".env").exists()
