"""scripts/agent-programs, with an npm of our own in front: nothing is fetched here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "agent-programs"
NPM = """#!/bin/sh
if [ "$1" = config ]; then echo "{log}.$3"; exit 0; fi
echo "$HOME $*" >>"{log}"
[ ! -e "{log}.broken" ] || {{ echo "npm error: no such version" >&2; exit 1; }}
while [ $# -gt 0 ]; do
    case $1 in --prefix) into=$2 ;; esac
    last=$1
    shift
done
mkdir -p "$into/node_modules/.bin"
command=$(basename "${{last%@*}}")
printf '#!/bin/sh\\n' >"$into/node_modules/.bin/${{command%-cli}}"
chmod +x "$into/node_modules/.bin/${{command%-cli}}"
"""


class Site:
    def __init__(self, folder: Path) -> None:
        self.log = folder / "npm.log"
        self.into = folder / "programs"
        (folder / "bin").mkdir()
        (folder / "bin" / "npm").write_text(NPM.format(log=self.log))
        (folder / "bin" / "npm").chmod(0o755)
        self._env = {"PATH": f"{folder / 'bin'}:/usr/bin:/bin", "HOME": str(folder / "home")}

    def install(self, *names: str) -> subprocess.CompletedProcess[str]:
        command = [str(SCRIPT), "--into", str(self.into), *names]
        return subprocess.run(command, env=self._env, capture_output=True, text=True, timeout=60, check=False)

    def asked(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_programs_are_installed_by_name_at_their_pinned_version(site: Site) -> None:
    """Into a folder of their own, with a link in bin, and out of sight of git and linters."""
    done = site.install("gemini")
    assert done.returncode == 0, done.stderr
    assert len(site.asked()) == 1
    assert "@google/gemini-cli@0." in site.asked()[0]
    assert (site.into / "bin" / "gemini").resolve() == site.into / "gemini" / "node_modules" / ".bin" / "gemini"
    assert (site.into / ".gitignore").read_text() == "*\n"
    assert done.stdout.split()[:2] == ["gemini", "present"]


def test_what_is_there_is_not_installed_again(site: Site) -> None:
    """The second call asks npm for nothing."""
    assert [site.install("gemini").returncode for _ in range(2)] == [0, 0]
    assert len(site.asked()) == 1


def test_an_unfinished_installation_is_begun_anew(site: Site) -> None:
    """Without its stamp a folder counts for nothing."""
    (site.into / "gemini" / "node_modules").mkdir(parents=True)
    (site.into / "gemini" / "half").touch()
    assert site.install("gemini").returncode == 0
    assert not (site.into / "gemini" / "half").exists()


def test_what_fails_is_named_with_the_reason_and_the_others_go_on(site: Site) -> None:
    """Exit 1, and a row that says why."""
    Path(f"{site.log}.broken").touch()
    done = site.install("gemini", "codex")
    assert done.returncode == 1
    rows = done.stdout.splitlines()
    assert [row.split()[:2] for row in rows] == [["codex", "MISSING"], ["gemini", "MISSING"]]
    assert all("no such version" in row for row in rows)


def test_an_unknown_name_is_refused_before_anything_is_installed(site: Site) -> None:
    """Together with the known ones."""
    done = site.install("gemini", "nobody")
    assert done.returncode == 1
    assert "unknown: nobody" in done.stderr
    assert "goose" in done.stderr
    assert site.asked() == []


def test_packages_are_installed_with_a_scratch_home(site: Site, tmp_path: Path) -> None:
    """Their scripts find no settings of the user's."""
    site.install("gemini")
    home = site.asked()[0].split()[0]
    assert home != str(tmp_path / "home")
    assert not Path(home).exists()
