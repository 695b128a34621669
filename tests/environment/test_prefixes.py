"""What a repository says never shows a place that holds more than programs."""

from __future__ import annotations

import json
import os
import signal
import sys
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.environment.detect import environment_of
from holdfast.environment.found import Environment, Shell
from holdfast.environment.versions import installed_by_manager, pinned_by_pyenv
from holdfast.sandbox.shown import SYSTEM, within

SECRET = "not-for-programs"
BASE = os.path.realpath(sys.base_prefix)


class Place:
    """A home with secrets in it, and a workspace below."""

    def __init__(self, root: Path) -> None:
        self.home, self.workspace = root / "home", root / "home" / "project"
        for path in (self.home / ".ssh", self.home / ".config", self.workspace):
            path.mkdir(parents=True)
        (self.home / ".ssh" / "id_ed25519").write_text(SECRET)
        (self.home / ".netrc").write_text(SECRET)

    def found(self, **variables: str) -> Environment:
        shell = Shell({"PATH": "/usr/bin:/bin", **variables}, str(self.home))
        return environment_of(shell, str(self.workspace), ("", "web"))

    def shows(self, found: Environment) -> list[str]:
        """Every file of the home that would be visible, beyond the workspace and what is covered."""
        seen = []
        for path in self.home.rglob("*"):
            real = os.path.realpath(path)
            if path.is_file() and not within(str(path), str(self.workspace)):
                shown = any(within(real, os.path.realpath(place)) for place in found.readable)
                if shown and not any(within(real, os.path.realpath(place)) for place in found.hidden):
                    seen.append(str(path))
        return seen


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def environment_at(prefix: Path, python: str = sys.executable, base: str = BASE) -> None:
    """A virtual environment as `python -m venv` would leave it."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (prefix / "pyvenv.cfg").write_text(f"home = {base}/bin\n")
    (prefix / "bin" / "python").symlink_to(os.path.realpath(python))
    (prefix / "bin" / "python3").symlink_to("python")


def python_at(prefix: Path) -> None:
    """An installed Python: enough of one to have its shape."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / "python3.12").mkdir(parents=True)
    (prefix / "lib" / "python3.12" / "os.py").touch()
    (prefix / "bin" / "python3.12").write_text("#!/bin/sh\n")
    (prefix / "bin" / "python3.12").chmod(0o755)
    (prefix / "bin" / "python3").symlink_to("python3.12")


def test_an_environment_of_the_project_brings_its_base(place: Place) -> None:
    """`.venv` is in the workspace already; the Python that its links lead to is shown, with the name in between."""
    real = place.home / ".local/share/uv/python/cpython-3.12.5-linux"
    python_at(real)
    (real.parent / "cpython-3.12-linux").symlink_to("cpython-3.12.5-linux")
    environment_at(place.workspace / ".venv")
    (place.workspace / ".venv/bin/python").unlink()
    (place.workspace / ".venv/bin/python").symlink_to(real.parent / "cpython-3.12-linux/bin/python3.12")
    found = place.found()
    assert found.path == (f"{place.workspace}/.venv/bin",)
    assert set(found.readable) == {str(real), str(real.parent / "cpython-3.12-linux")}
    assert dict(found.variables)["VIRTUAL_ENV"] == f"{place.workspace}/.venv"


def test_an_environment_around_a_project_shows_no_secret_of_it(place: Place) -> None:
    """`python -m venv .` makes one of a project's root, and hooks of an environment hold what a shell is to know."""
    active = place.home / "envs" / "site"
    environment_at(active)
    (active / ".git").mkdir()
    for name in (".env", ".git-credentials", "bin/postactivate"):
        (active / name).write_text(SECRET)
    found = place.found(VIRTUAL_ENV=str(active))
    wanted = {f"{active}/{name}" for name in (".env", ".git", ".git-credentials", "bin/postactivate")}
    assert str(active) in found.readable and set(found.hidden) == wanted
    assert not wanted.intersection(place.shows(found))


def test_an_active_environment_elsewhere_is_shown(place: Place) -> None:
    """Its packages, and not the file in which pip keeps its index and the token for it."""
    active = place.home / "envs" / "work"
    environment_at(active)
    (active / "pip.conf").write_text(SECRET)
    environment_at(place.workspace / ".venv")
    found = place.found(VIRTUAL_ENV=str(active))
    assert found.path[0] == f"{active}/bin" and str(active) in found.readable
    assert found.hidden == (f"{active}/pip.conf",)
    assert str(active / "pip.conf") not in place.shows(found)


def test_environments_that_front_tools_keep_elsewhere(place: Place) -> None:
    """poetry, pipenv and hatch name the folder after the project's path; no other project's is taken."""
    other = place.home / ".cache/pypoetry/virtualenvs/project-AAAAAAAA-py3.11"
    environment_at(other)
    assert place.found().path == ()
    mine = place.home / f".cache/pypoetry/virtualenvs/project-{hash_of(place.workspace)}-py3.11"
    environment_at(mine)
    assert place.found().path == (f"{mine}/bin",)


def linked_python(place: Place, target: Path) -> None:
    """An environment of the workspace whose interpreter is a link."""
    environment_at(place.workspace / ".venv")
    for name in ("python", "python3"):
        (place.workspace / ".venv/bin" / name).unlink()
        (place.workspace / ".venv/bin" / name).symlink_to(target)


FORGED = {
    "a link for .venv": lambda p: (p.workspace / ".venv").symlink_to(p.home),
    "a link for .venv to another's environment": lambda p: (
        environment_at(p.home / "other" / "env"),
        (p.workspace / ".venv").symlink_to(p.home / "other" / "env"),
    ),
    "a link for .tox": lambda p: (
        environment_at(p.home / "other" / "env"),
        (p.workspace / ".tox").symlink_to(p.home / "other"),
    ),
    "a link above .venv": lambda p: (
        environment_at(p.home / "other" / ".venv"),
        (p.workspace / "web").symlink_to(p.home / "other"),
    ),
    "a .python-version with a whole path": lambda p: (p.workspace / ".python-version").write_text(f"{p.home}/.ssh\n"),
    "a .tool-versions that climbs": lambda p: (p.workspace / ".tool-versions").write_text("nodejs ../../../../.ssh\n"),
    "a link for its interpreter": lambda p: (
        environment_at(p.workspace / ".venv"),
        (p.workspace / ".venv/bin/python3").unlink(),
        (p.home / "bin").mkdir(),
        (p.home / "bin" / "tool").write_text("#!/bin/sh\n"),
        (p.home / "bin" / "tool").chmod(0o755),
        (p.workspace / ".venv/bin/python3").symlink_to(p.home / "bin" / "tool"),
    ),
    "a link for its interpreter, to a project that is an environment": lambda p: (
        environment_at(p.home / "other"),
        (p.home / "other" / "credentials.json").write_text(SECRET),
        linked_python(p, p.home / "other/bin/python"),
    ),
    "a link for its interpreter, to a Python that only the link names": lambda p: (
        python_at(p.home / "other"),
        (p.home / "other" / "credentials.json").write_text(SECRET),
        linked_python(p, p.home / "other/bin/python3.12"),
    ),
    "a pyvenv.cfg": lambda p: (
        environment_at(p.workspace / ".venv"),
        (p.workspace / ".venv" / "pyvenv.cfg").write_text(f"home = {p.home}/.ssh\n"),
    ),
    "a .pth": lambda p: (
        environment_at(p.workspace / ".venv"),
        (p.workspace / ".venv/lib/python3.11/site-packages/x.pth").write_text(f"{p.home}/.ssh\n"),
    ),
    "a direct_url.json": lambda p: (
        environment_at(p.workspace / ".venv"),
        (p.workspace / ".venv/lib/python3.11/site-packages/x-1.dist-info").mkdir(),
        (p.workspace / ".venv/lib/python3.11/site-packages/x-1.dist-info/direct_url.json").write_text(
            json.dumps({"url": f"file://{p.home}/.ssh", "dir_info": {"editable": True}})
        ),
    ),
    "a .python-version": lambda p: (p.workspace / ".python-version").write_text("../../.ssh\n"),
    "a .tool-versions": lambda p: (p.workspace / ".tool-versions").write_text(f"python path:{p.home}/.ssh\n"),
    "a mise.toml": lambda p: (p.workspace / "mise.toml").write_text('[tools]\npython = "../../../../.ssh"\n'),
    "a package.json": lambda p: (p.workspace / "package.json").write_text('{"packageManager": "npm@../../../.ssh"}'),
    "a home that looks like a Python": lambda p: (
        (p.home / "lib" / "python3.12").mkdir(parents=True),
        (p.home / "lib" / "python3.12" / "os.py").touch(),
        environment_at(p.workspace / ".venv"),
        (p.home / "bin").mkdir(),
        (p.home / "bin" / "python3.12").write_text("#!/bin/sh\n"),
        (p.home / "bin" / "python3.12").chmod(0o755),
        (p.workspace / ".venv/bin/python3").unlink(),
        (p.workspace / ".venv/bin/python3").symlink_to(p.home / "bin" / "python3.12"),
    ),
    "secrets that look like a Python": lambda p: (
        python_at(p.home / ".ssh" / "x"),
        (p.home / ".ssh" / "x" / "key").write_text(SECRET),
        environment_at(p.workspace / ".venv"),
        (p.workspace / ".venv/bin/python3").unlink(),
        (p.workspace / ".venv/bin/python3").symlink_to(p.home / ".ssh/x/bin/python3.12"),
    ),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_repository_cannot_have_anything_shown(place: Place, what: str) -> None:
    """Whatever it forges, no file of the home becomes visible, and nothing outside of installed programs."""
    FORGED[what](place)
    found = place.found()
    assert place.shows(found) == []
    assert [p for p in found.readable if not within(p, BASE) and not any(within(p, s) for s in SYSTEM)] == []


@pytest.mark.parametrize("variable", ["UV_PROJECT_ENVIRONMENT", "VIRTUAL_ENV", "CONDA_PREFIX", "PATH"])
def test_a_link_of_the_workspace_is_not_the_users_word(place: Place, variable: str) -> None:
    """The shell names a place in the workspace, and a committed link there leads to another's environment."""
    environment_at(place.home / "other")
    (place.home / "other" / "credentials.json").write_text(SECRET)
    (place.workspace / ".env-of-mine").symlink_to(place.home / "other")
    at = f"{place.workspace}/.env-of-mine"
    said = {"UV_PROJECT_ENVIRONMENT": ".env-of-mine", "PATH": f"{at}/bin:/usr/bin:/bin"}.get(variable, at)
    found = place.found(**{variable: said})
    assert place.shows(found) == []
    assert any("a link in the workspace leads to it" in remark for remark in found.remarks)


def test_an_environment_that_the_workspace_and_path_name_is_shown(place: Place) -> None:
    """An interpreter behind a link of `.venv` is shown where the user's own PATH leads to it, and named otherwise."""
    python_at(place.home / "my-python")
    linked_python(place, place.home / "my-python/bin/python3.12")
    assert str(place.home / "my-python") in place.found(PATH=f"/usr/bin:{place.home}/my-python/bin").readable
    refused = place.found()
    assert refused.path == () and any("named by the workspace alone" in remark for remark in refused.remarks)


def test_what_others_can_write_is_not_shown(place: Place) -> None:
    """An environment that everybody can write to is named with the reason, and not used."""
    active = place.home / "envs" / "work"
    environment_at(active)
    active.chmod(0o777)
    found = place.found(VIRTUAL_ENV=str(active))
    assert str(active) not in found.readable
    assert any("the active virtual environment" in remark for remark in found.remarks)


def test_editable_packages_elsewhere_are_named(place: Place) -> None:
    """Their source is not shown by itself; the remark says how to show it."""
    (place.home / "lib-source").mkdir()
    environment_at(place.workspace / ".venv")
    record = place.workspace / ".venv/lib/python3.11/site-packages/mylib-1.0.dist-info"
    record.mkdir()
    url = {"url": f"file://{place.home}/lib-source", "dir_info": {"editable": True}}
    (record / "direct_url.json").write_text(json.dumps(url))
    found = place.found()
    assert any("mylib is installed from" in it and "[environment] readable" in it for it in found.remarks)
    assert not any("lib-source" in path for path in found.readable)


@pytest.mark.parametrize("name", ["package.json", ".venv/lib/python3.11/site-packages/x-1.dist-info/direct_url.json"])
def test_a_pipe_in_place_of_a_file_keeps_nobody_waiting(place: Place, name: str) -> None:
    """Nobody ever writes to it; what is no plain file says nothing."""
    environment_at(place.workspace / ".venv")
    pipe = place.workspace / name
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    before = signal.signal(signal.SIGALRM, lambda number, frame: pytest.fail("it waits for the pipe"))
    signal.alarm(60)
    try:
        found = place.found()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert (found.path, found.remarks) == ((f"{place.workspace}/.venv/bin",), ())


@pytest.mark.parametrize(
    "text",
    [
        '{"url": "file:///a%00b", "dir_info": {"editable": true}}',
        '{"url": "file:///\\ud800", "dir_info": {"editable": true}}',
        "[" * 60_000,
        '{"url": 5}',
        '{"url": "file:///a", "dir_info": [',
    ],
    ids=["a NUL", "a lone surrogate", "deep nesting", "a number", "half a document"],
)
def test_a_record_of_an_installation_that_names_no_place_says_nothing(place: Place, text: str) -> None:
    """`direct_url.json` comes with the repository; the others count."""
    environment_at(place.workspace / ".venv")
    for name, said in {"a": text, "b": '{"url": "file:///elsewhere", "dir_info": {"editable": true}}'}.items():
        record = place.workspace / f".venv/lib/python3.11/site-packages/{name}-1.dist-info"
        record.mkdir()
        (record / "direct_url.json").write_text(said)
    found = place.found()
    assert found.path == (f"{place.workspace}/.venv/bin",)
    assert [remark.split(",")[0] for remark in found.remarks] == ["b is installed from /elsewhere"]


def test_the_current_directory_is_no_installation(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program in a folder that is no `bin` belongs to none, wherever one stands; the folder may look like one."""
    programs(place.home / "tools", "node", "go", "python3")
    here = place.home / "here"
    python_at(here)
    node_at(here)
    go_at(here)
    (here / "private").write_text(SECRET)
    path = f"{place.home}/tools:/usr/bin:/bin"
    linked_python(place, place.home / "tools/python3")
    found = place.found(PATH=path)
    for directory in (here, place.workspace, Path("/")):
        monkeypatch.chdir(directory)
        assert place.found(PATH=path) == found
    assert place.shows(found) == []
    assert all(os.path.isabs(entry) for entry in found.readable)


@pytest.mark.parametrize("home", ["{home}/", "/{home}", "{home}//", "{home}/x/..", "{home}/./"])
def test_what_the_shell_says_is_normalised(place: Place, home: str) -> None:
    """A place by another spelling is the same place: the sandbox takes no other."""
    environment_at(place.home / "env")
    node_at(place.home / "node")
    (place.home / "go/pkg/mod").mkdir(parents=True)
    spelled = home.format(home=place.home)
    variables = {"VIRTUAL_ENV": f"{spelled}/env/", "GOPATH": f"{spelled}/go", "PATH": f"{spelled}/node/bin/:/usr/bin"}
    found = place.found(**variables)
    names = [f"{place.home}/{name}" for name in ("env", "node", "go/pkg/mod")]
    assert set(names) <= set(found.readable)
    assert [p for p in (*found.readable, *found.hidden, *found.path) if os.path.normpath(p) != p or p[:2] == "//"] == []
    of_uv = place.found(UV_PROJECT_ENVIRONMENT=f"{spelled}/env")
    assert f"{place.home}/env" in of_uv.readable and f"/{place.home}/env" not in of_uv.readable


def test_versions_are_plain_names(place: Place) -> None:
    """The nearest .python-version decides; what is no name of an installed version finds nothing."""
    shell = Shell({}, str(place.home))
    python_at(place.home / ".pyenv/versions/3.12.1")
    (place.home / ".python-version").write_text("3.12.1\n")
    assert list(pinned_by_pyenv(shell, str(place.workspace))) == [f"{place.home}/.pyenv/versions/3.12.1"]
    (place.workspace / ".python-version").write_text("9.9.9\n")
    assert list(pinned_by_pyenv(shell, str(place.workspace))) == []
    python_at(place.home / ".local/share/mise/installs/python/3.12.1")
    (place.workspace / "mise.toml").write_text('[tools]\npython = ["3.12.1", "../x"]\n')
    wanted = [f"{place.home}/.local/share/mise/installs/python/3.12.1"]
    assert list(installed_by_manager(shell, str(place.workspace), "python")) == wanted


def test_what_is_first_on_path_is_active(place: Place) -> None:
    """An environment whose folder somebody put on PATH comes before the project's own; a pinned version does not."""
    active = place.home / "envs" / "work"
    environment_at(active)
    environment_at(place.workspace / ".venv")
    python_at(place.home / ".pyenv/versions/3.12.1")
    (place.home / ".pyenv/version").write_text("3.12.1\n")
    assert place.found(PATH=f"{active}/bin:/usr/bin").path == (f"{active}/bin",)
    assert place.found(PATH="/usr/bin").path == (f"{place.workspace}/.venv/bin",)
    shims = place.home / ".pyenv/shims"
    shims.mkdir()
    (shims / "python3").write_text("#!/bin/sh\n")
    (shims / "python3").chmod(0o755)
    (place.workspace / ".venv").rename(place.home / "elsewhere")
    assert place.found(PATH=f"{shims}:/usr/bin").path == (f"{place.home}/.pyenv/versions/3.12.1/bin",)


def node_at(prefix: Path) -> None:
    (prefix / "lib" / "node_modules" / "npm").mkdir(parents=True)
    programs(prefix / "bin", "node")


def go_at(prefix: Path) -> None:
    (prefix / "src" / "runtime").mkdir(parents=True)
    programs(prefix / "bin", "go")


def conda_at(prefix: Path) -> None:
    python_at(prefix)
    for name in ("etc/conda/activate.d", "conda-meta"):
        (prefix / name).mkdir(parents=True)


def programs(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


def cargo_of(home: Path) -> None:
    programs(home / ".cargo" / "bin", "cargo")
    (home / ".cargo" / "registry").mkdir()
    (home / ".rustup" / "toolchains").mkdir(parents=True)


def corepack_of(place: Place) -> None:
    (place.home / ".cache/node/corepack/v1/yarn/4.1.0").mkdir(parents=True)
    (place.home / ".yarn/berry/cache").mkdir(parents=True)
    (place.workspace / "package.json").write_text('{"packageManager": "yarn@4.1.0"}')


def pipenv_of(place: Place) -> None:
    (place.workspace / "Pipfile").touch()
    environment_at(place.home / f".local/share/virtualenvs/project-{hash_of(place.workspace / 'Pipfile')}")


def hash_of(path: Path) -> str:
    return urlsafe_b64encode(sha256(os.fsencode(path)).digest()).decode()[:8]


def pinned(place: Place, prefix: Path) -> None:
    python_at(prefix)
    (place.workspace / ".python-version").write_text("3.12.1\n")
    (place.workspace / ".tool-versions").write_text("python 3.12.1\n")


class Row(NamedTuple):
    """A row of what people have: how it comes there, what their shell says, what is shown (relative to their home), and
    where tokens can lie in it or beside it."""

    make: Callable[[Place], object]
    shell: dict[str, str]
    shown: str
    secrets: tuple[str, ...]


ROWS = {
    "a virtual environment": Row(
        lambda p: environment_at(p.home / "e"), {"VIRTUAL_ENV": "e"}, "e", ("e/pip.conf", "e/.netrc", "e/.pypirc")
    ),
    "WORKON_HOME": Row(
        lambda p: environment_at(p.home / "w" / f"project-{hash_of(p.workspace / 'Pipfile')}") or
        (p.workspace / "Pipfile").touch(), {"WORKON_HOME": "w"}, "w", ()),
    "uv elsewhere": Row(
        lambda p: environment_at(p.home / "uv"), {"UV_PROJECT_ENVIRONMENT": "uv"}, "uv", ("uv/pip.conf",)
    ),
    "pipenv": Row(pipenv_of, {}, ".local/share/virtualenvs", ()),
    "hatch": Row(
        lambda p: environment_at(p.home / f".local/share/hatch/env/virtual/shop/{hash_of(p.workspace)}/shop"), {},
        ".local/share/hatch/env/virtual/shop", (".local/share/hatch/config.toml",),
    ),
    "conda": Row(
        lambda p: conda_at(p.home / "c"), {"CONDA_PREFIX": "c"}, "c",
        ("c/.condarc", "c/conda-meta/state", "c/etc/conda/activate.d/env.sh", ".condarc"),
    ),
    "pyenv": Row(
        lambda p: pinned(p, p.home / ".pyenv/versions/3.12.1"), {}, ".pyenv/versions/3.12.1",
        (".pyenv/versions/3.12.1/pip.conf", ".pyenv/hooks"),
    ),
    "asdf": Row(
        lambda p: pinned(p, p.home / ".asdf/installs/python/3.12.1"), {}, ".asdf/installs/python/3.12.1",
        (".asdf/installs/python/3.12.1/pip.conf",),
    ),
    "mise": Row(
        lambda p: pinned(p, p.home / ".local/share/mise/installs/python/3.12.1"), {},
        ".local/share/mise/installs/python/3.12.1", (".local/share/mise/installs/python/3.12.1/pip.conf",),
    ),
    "pip --user": Row(
        lambda p: [(p.home / f".local/lib/python3.{n}/site-packages").mkdir(parents=True) for n in range(9, 20)], {},
        ".local/lib", (".local/share/keyrings/login.keyring", ".local/bin/token"),
    ),
    "node": Row(
        lambda p: node_at(p.home / ".nvm/versions/node/v22"), {"PATH": ".nvm/versions/node/v22/bin"},
        ".nvm/versions/node/v22",
        (".nvm/versions/node/v22/etc/npmrc", ".nvm/versions/node/v22/lib/node_modules/npm/npmrc", ".npmrc"),
    ),
    "corepack": Row(
        corepack_of, {}, ".yarn/berry/cache", (".yarnrc.yml", ".npmrc", ".cache/node/corepack/lastKnownGood.json")
    ),
    "cargo": Row(
        lambda p: cargo_of(p.home), {}, ".cargo/registry",
        (".cargo/credentials", ".cargo/credentials.toml", ".cargo/config.toml", ".cargo/config"),
    ),
    "Go": Row(
        lambda p: (go_at(p.home / "sdk/go"), (p.home / "go/pkg/mod").mkdir(parents=True)),
        {"PATH": "sdk/go/bin"}, "go/pkg/mod", (".config/go/env", ".netrc", ".gitconfig"),
    ),
    "Maven": Row(
        lambda p: (p.home / ".m2/repository").mkdir(parents=True), {}, ".m2/repository",
        (".m2/settings.xml", ".m2/settings-security.xml"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("tool", ["node", "go"])
def test_tokens_are_covered_under_every_name_of_what_is_shown(place: Place, tool: str) -> None:
    """A version that is a link, as mise makes one: what is shown under its real name too is covered there too."""
    real = place.home / f".local/share/mise/installs/{tool}/20.11.0"
    (node_at if tool == "node" else go_at)(real)
    (real.parent / "20").symlink_to("20.11.0")
    (real / ".npmrc").write_text(SECRET)
    found = place.found(PATH=f"{real.parent}/20/bin:/usr/bin:/bin")
    assert {str(real), f"{real.parent}/20"} <= set(found.readable)
    assert {f"{real}/.npmrc", f"{real.parent}/20/.npmrc"} <= set(found.hidden)


def test_other_environments_of_a_base_are_covered(place: Place) -> None:
    """conda keeps environments and packages in its base, pyenv in a version: only the one that was chosen is seen."""
    base = place.home / "miniconda3"
    for prefix in (base, base / "envs/mine", base / "envs/other"):
        conda_at(prefix)
        for name in ("conda-meta/state", "pip.conf", ".condarc"):
            (prefix / name).write_text(SECRET)
    (base / "pkgs/secret").mkdir(parents=True)
    (base / "pkgs/secret/state").write_text(SECRET)

    def of_conda(prefix: Path, name: str) -> list[str]:
        found = place.found(CONDA_PREFIX=str(prefix), CONDA_DEFAULT_ENV=name)
        assert str(prefix) in found.readable
        assert not any(within(str(prefix), path) for path in found.hidden)
        return [path for path in place.shows(found) if Path(path).read_bytes() == SECRET.encode()]

    assert of_conda(base, "base") == []
    (base / "envs/mine/bin/python3").unlink()
    (base / "envs/mine/bin/python3").symlink_to(base / "bin/python3.12")  # so its base is shown as well
    assert of_conda(base / "envs/mine", "mine") == []

    version = place.home / ".pyenv/versions/3.12.1"
    python_at(version)
    for name in ("mine", "other"):
        environment_at(version / "envs" / name, str(version / "bin/python3.12"))
        (version / "envs" / name / "secret.json").write_text(SECRET)
    found = place.found(VIRTUAL_ENV=str(version / "envs/mine"))
    assert {str(version), str(version / "envs/mine")} <= set(found.readable)
    assert str(version / "envs/other/secret.json") not in place.shows(found)
    assert str(version / "envs/mine/bin/python3") in place.shows(found)


def test_what_a_tool_built_before_can_be_written_to(place: Place) -> None:
    """Go's cache and cargo's target directory: shown under their names, as they are, where they are one's own."""
    (place.home / ".cache/go-build").mkdir(parents=True)
    cargo_of(place.home)
    (place.home / "target").mkdir()
    found = place.found(CARGO_TARGET_DIR=f"{place.home}/target")
    assert set(found.overlaid) == {f"{place.home}/.cache/go-build", f"{place.home}/target"}
    assert {("GOCACHE", f"{place.home}/.cache/go-build"), ("CARGO_TARGET_DIR", f"{place.home}/target")} <= set(
        found.variables
    )
    assert place.found(GOCACHE=str(place.home), CARGO_TARGET_DIR=f"{place.home}/.ssh").overlaid == ()


@pytest.mark.parametrize("what", ROWS)
def test_tokens_that_lie_in_what_is_shown_are_covered(place: Place, what: str) -> None:
    """Its programs and packages are shown; no file in which the tool keeps credentials is, in it or beside it."""
    row = ROWS[what]
    row.make(place)
    for name in row.secrets:
        (place.home / name).parent.mkdir(parents=True, exist_ok=True)
        (place.home / name).write_text(SECRET)
    shell = {name: f"{place.home}/{said}" for name, said in row.shell.items()}
    found = place.found(**{**shell, "PATH": f"{shell.get('PATH', '')}:/usr/bin:/bin".lstrip(":")})
    assert any(within(shown, f"{place.home}/{row.shown}") for shown in found.readable), found
    assert [path for path in place.shows(found) if Path(path).read_bytes() == SECRET.encode()] == []
    names = ("_TOKEN", "PASSWORD", "SECRET", "INDEX", "REGISTRY")
    assert [name for name, _ in found.variables if any(word in name for word in names)] == []
