"""Which Python is shown in the sandbox: never one whose place holds a home, keys of ours, or the workspace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.sandbox import shown
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.view import View

_ASK = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from holdfast.sandbox import shown
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.view import View
view = View(sys.argv[2], sys.argv[2])
python = shown.interpreter(view.path)
print(json.dumps([python.here, [row[1] for row in shown.rows(view, Profile(), python)]]))
"""


def _asked(prefix: Path, home: Path, view: Path, **more: str) -> tuple[str, list[str]]:
    """The helper's Python and every source, as a Python installed at `prefix` would have them shown."""
    base = os.path.realpath(sys.executable)
    subprocess.run([base, "-m", "venv", "--copies", "--without-pip", str(prefix)], check=True)
    view.mkdir(parents=True, exist_ok=True)
    argv = [str(prefix / "bin/python3"), "-c", _ASK, json.dumps(sys.path), str(view)]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(home), **more}
    out = subprocess.run(argv, env=env, check=True, capture_output=True, text=True).stdout
    here, sources = json.loads(out)
    return here, sources


def _shows(sources: list[str], path: Path) -> bool:
    return any(source and f"{path}/".startswith(f"{source.rstrip('/')}/") for source in sources)


def test_an_installation_of_its_own_is_shown(tmp_path: Path) -> None:
    """A Python in a place of its own is shown there, below a home or not."""
    prefix = tmp_path / "home/opt/python"
    here, sources = _asked(prefix, tmp_path / "home", tmp_path / "view")
    assert here == str(prefix / "bin/python3") or os.path.realpath(here) == os.path.realpath(prefix / "bin/python3")
    assert _shows(sources, prefix)
    assert not _shows(sources, tmp_path / "home")


@pytest.mark.parametrize("inner", ["", ".local", ".config"])
def test_a_home_is_never_shown_for_its_python(tmp_path: Path, inner: str) -> None:
    """A Python in `~/bin`, or beside what Holdfast knows, is not used inside, and nothing around it is shown."""
    home = tmp_path / "home"
    here, sources = _asked(home / inner, home, tmp_path / "view")
    assert not here.startswith(f"{tmp_path}/")
    assert not _shows(sources, home / inner)


def test_a_python_around_the_workspace_is_not_shown(tmp_path: Path) -> None:
    """A prefix that holds the workspace would show its hidden paths a second time, without covers."""
    here, sources = _asked(tmp_path / "srv", tmp_path / "home", tmp_path / "srv/app")
    assert not here.startswith(f"{tmp_path}/")
    assert not _shows([source for source in sources if source != str(tmp_path / "srv/app")], tmp_path / "srv/app")


def test_settings_of_build_tools_are_not_shown(tmp_path: Path) -> None:
    """No host-wide settings of a package manager or build tool are shown: they may hold passwords."""
    view = View(str(tmp_path), str(tmp_path))
    places = {row[2] for row in shown.rows(view, Profile(), shown.interpreter(view.path))}
    assert not places & {f"/etc/{name}" for name in ("maven", "pip.conf", "npmrc", "gradle", "apt", "yum.repos.d")}
    of_maven = {name for name in shown._ETC if name.startswith("maven")}
    assert of_maven == {"maven/logging", "maven/m2.conf"}  # which say where its classes are, and how loud it is
