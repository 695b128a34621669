"""A hundred thousand paths in one change, within a fixed amount of memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from guarded import with_package

COUNT = 100_000
LIMIT_MIB = 260


def _home_that_admits_it(place: Path) -> dict[str, str]:
    """The built-in policy denies more than 20,000 files; a user's own layer may say otherwise."""
    folder = place / "holdfast"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "config.toml").write_text(f"[policy]\nlimits = {{ files = {COUNT + 1000} }}\n")
    (folder / "config.toml").chmod(0o600)
    return {"XDG_CONFIG_HOME": str(place)}


@pytest.mark.serial
@pytest.mark.long
def test_a_hundred_thousand_paths_fit_in_memory(tmp_path: Path) -> None:
    """100,000 new files land in one transaction, and the process never needs more than 260 MiB."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    home = _home_that_admits_it(tmp_path / "config")
    script = Path(__file__).with_name("many_paths.py")
    argv = (sys.executable, str(script), "apply", str(workspace), str(COUNT), str(LIMIT_MIB))
    done = subprocess.run(
        argv, env={**with_package(), **home}, capture_output=True, text=True, timeout=600, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
