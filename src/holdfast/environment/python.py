"""Python: which interpreter and packages the user's tests run with.

The first of these that is there:

    an active virtual environment ..... VIRTUAL_ENV, or first on PATH; not the one that Holdfast itself runs from, if
                                        there is another
    an active conda environment ....... CONDA_PREFIX, unless it is conda's own base
    the project's environment ......... UV_PROJECT_ENVIRONMENT, .venv, venv
    kept elsewhere for this project ... by poetry, pipenv, hatch: their folder's name is a hash of the project's path
    of a test runner .................. .tox, .nox
    of a version manager .............. .python-version (pyenv), .tool-versions (asdf, mise), mise.toml
    python3 on PATH

Nothing is started to find out, since the tools that know would run code of the repository.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import sys
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.environment.found import Environment, Shell, plain, together
from holdfast.environment.prefixes import (
    Home,
    credentials_in,
    is_python,
    is_system,
    is_virtual_environment,
    links_of,
    may_be_shown,
    prefix_of,
)
from holdfast.environment.reading import small_file
from holdfast.environment.versions import installed_by_manager, pinned_by_pyenv, places_of_pythons
from holdfast.model.path import printable
from holdfast.sandbox.shown import within

_LOCAL = (".venv", "venv")
_MOST_BYTES = 1 << 16
_MOST_PACKAGES = 5_000
# Front tools make an empty environment of their own where they think that theirs is missing.
_STAY = (("UV_OFFLINE", "1"), ("UV_NO_SYNC", "1"))


class _Chosen(NamedTuple):
    prefix: str
    why: str


def python_of(shell: Shell, workspace: str, projects: Sequence[str]) -> Environment:
    """`projects` are directories of the workspace, relative to it, the outermost first."""
    home = Home(shell.home, workspace)
    remarks: list[str] = []
    for chosen in _candidates(shell, home, projects):
        found = _environment(chosen, shell, home, projects)
        if isinstance(found, Environment):
            others = [
                _base_alone(os.path.join(workspace, project, name), shell, home)
                for project in projects
                for name in _LOCAL
            ]
            return together((found, *others, Environment(remarks=tuple(remarks))))
        remarks.append(f"{chosen.why} ({printable(chosen.prefix)}) is not shown: {found}")
    return Environment(remarks=tuple(remarks))


# ── which one ──


def _candidates(shell: Shell, home: Home, projects: Sequence[str]) -> Iterator[_Chosen]:
    first = next(_on_path(shell, home), None)
    active = shell.absolute("VIRTUAL_ENV") or (
        first.prefix if first is not None and is_virtual_environment(first.prefix) else ""
    )
    of_holdfast = os.path.realpath(active) == os.path.realpath(sys.prefix) if active else False
    if active and not of_holdfast:
        yield _Chosen(active, "the active virtual environment")
    conda = shell.absolute("CONDA_PREFIX")
    if conda and shell.variables.get("CONDA_DEFAULT_ENV", "base") != "base":
        yield _Chosen(conda, "the active conda environment")
    yield from _of_the_project(shell, home, projects)
    if active and of_holdfast:
        yield _Chosen(active, "the active virtual environment")
    for project in projects:
        directory = os.path.join(home.workspace, project)
        for prefix in (*pinned_by_pyenv(shell, directory), *installed_by_manager(shell, directory, "python")):
            yield _Chosen(prefix, "the pinned version")
    if conda:
        yield _Chosen(conda, "the active conda environment")
    yield from _on_path(shell, home)


def _of_the_project(shell: Shell, home: Home, projects: Sequence[str]) -> Iterator[_Chosen]:
    named = shell.variables.get("UV_PROJECT_ENVIRONMENT", "")
    for project in projects:
        directory = os.path.join(home.workspace, project)
        of_uv = plain(os.path.join(directory, named))
        if named and os.path.isdir(of_uv):
            yield _Chosen(of_uv, "uv's environment")
        for name in _LOCAL:
            prefix = os.path.join(directory, name)
            if is_virtual_environment(prefix) and _stands_in(prefix, home.workspace):
                yield _Chosen(prefix, f"{os.path.join(project, name)}")
        for prefix, tool in _kept_elsewhere(shell, directory):
            yield _Chosen(prefix, f"{tool}'s environment")
        for runner in (".tox", ".nox"):
            folders = sorted(glob.glob(f"{glob.escape(directory)}/{runner}/*"), key=_least_special)
            for prefix in folders:
                if is_virtual_environment(prefix) and _stands_in(prefix, home.workspace):
                    yield _Chosen(prefix, os.path.relpath(prefix, home.workspace))


def _stands_in(prefix: str, workspace: str) -> bool:
    """Through no link, which would lead wherever the repository wants."""
    real = os.path.realpath(workspace)
    return os.path.realpath(prefix) == os.path.normpath(os.path.join(real, os.path.relpath(prefix, workspace)))


def _leads_out(prefix: str, workspace: str) -> bool:
    """Does a link of the workspace, whatever the shell calls its place, lead elsewhere?"""
    real = os.path.realpath(workspace)
    above = prefix
    while above != os.path.dirname(above):
        above = os.path.dirname(above)
        if within(os.path.realpath(above), real):
            return not within(os.path.realpath(prefix), real)
    return False


def _least_special(prefix: str) -> tuple[bool, str]:
    """Environments named after tests or a version hold what tests need; those for lint and docs may not."""
    name = os.path.basename(prefix)
    return not name.startswith(("py", "test")), name


def _kept_elsewhere(shell: Shell, directory: str) -> Iterator[tuple[str, str]]:
    real = os.path.realpath(directory)
    cache = shell.absolute("XDG_CACHE_HOME") or f"{shell.home}/.cache"
    data = shell.absolute("XDG_DATA_HOME") or f"{shell.home}/.local/share"
    poetry = shell.absolute("POETRY_VIRTUALENVS_PATH") or os.path.join(
        shell.absolute("POETRY_CACHE_DIR") or f"{cache}/pypoetry", "virtualenvs"
    )
    for prefix in sorted(glob.glob(f"{glob.escape(poetry)}/*-{glob.escape(_hash(real))}-py*"), reverse=True):
        yield prefix, "poetry"
    pipfile = os.path.join(directory, "Pipfile")
    folder = shell.absolute("WORKON_HOME") or f"{data}/virtualenvs"
    if os.path.isfile(pipfile):
        for prefix in glob.glob(f"{glob.escape(folder)}/*-{glob.escape(_hash(os.path.realpath(pipfile)))}"):
            yield prefix, "pipenv"
    hatch = os.path.join(shell.absolute("HATCH_DATA_DIR") or f"{data}/hatch", "env", "virtual")
    for prefix in sorted(glob.glob(f"{glob.escape(hatch)}/*/{glob.escape(_hash(real))}/*"), key=_least_special):
        yield prefix, "hatch"


def _hash(path: str) -> str:
    """What poetry, pipenv and hatch put into a folder's name."""
    return urlsafe_b64encode(hashlib.sha256(os.fsencode(path)).digest()).decode("ascii")[:8]


def _on_path(shell: Shell, home: Home) -> Iterator[_Chosen]:
    for folder in shell.search_path:
        program = os.path.join(folder, "python3")
        if not os.access(program, os.X_OK):
            continue
        prefix = prefix_of(program)
        if os.path.basename(folder) == "shims":
            for found in (
                *pinned_by_pyenv(shell, home.workspace, or_global=True),
                *installed_by_manager(shell, home.workspace, "python"),
            ):
                yield _Chosen(found, "python3 on PATH")
        elif prefix and (is_system(program) or is_python(prefix) or is_virtual_environment(prefix)):
            yield _Chosen(prefix, "python3 on PATH")


# ── what must be shown for it ──


def _environment(chosen: _Chosen, shell: Shell, home: Home, projects: Sequence[str]) -> Environment | str:
    """Or why it is not shown."""
    prefix, why = chosen
    program = next((p for name in ("python3", "python") if os.path.lexists(p := f"{prefix}/bin/{name}")), "")
    if not program:
        return "there is no bin/python in it"
    if not os.access(program, os.X_OK):
        return "its interpreter is gone"
    if _leads_out(prefix, home.workspace):
        return "a link in the workspace leads to it"
    shown = _bases(program, shell, home)
    if isinstance(shown, str):
        return shown
    inside = within(os.path.realpath(prefix), os.path.realpath(home.workspace))
    if not inside and not is_system(prefix):
        real = os.path.realpath(prefix)
        if not (is_virtual_environment(prefix) or is_python(prefix)):
            return "it has not the shape of one"
        if not may_be_shown(real, home):
            return "it is not yours alone, or holds more than programs"
        shown = (*shown, prefix, real)
    variables = [("VIRTUAL_ENV", prefix)] if is_virtual_environment(prefix) else []
    version = os.path.basename(next(iter(glob.glob(f"{glob.escape(prefix)}/lib/python3*")), "")).removeprefix("python")
    user = _user_site(shell, home, program) if is_system(os.path.realpath(program)) and not variables else Environment()
    own = Environment(
        path=(f"{prefix}/bin",) if not is_system(prefix) else (),
        variables=(*variables, *_STAY),
        readable=shown,
        hidden=tuple(credentials_in(prefix)),
        tools=(f"Python {version}, {why}".replace("Python ,", "Python,"),),
        remarks=tuple(_editable_elsewhere(prefix, home)),
    )
    return together((own, user, _instead_of_copies(prefix, home, projects)))


def _bases(program: str, shell: Shell, home: Home) -> tuple[str, ...] | str:
    """The installations that an interpreter's links lead through, each under every name it has; or why not.

    Links of the workspace are the repository's: they lead only to where Pythons are installed (N1).
    """
    found: list[str] = []
    real = os.path.realpath(program)
    of_workspace = False
    for link in (*links_of(program), real):
        of_workspace = of_workspace or _in_workspace(link, home)
        if is_system(link) or _in_workspace(link, home):
            continue
        prefix = prefix_of(link)
        place = os.path.realpath(prefix) if prefix else ""
        if not place:
            return f"its interpreter is {printable(link)}, which is in no installation of Python"
        if of_workspace and not _is_known(place, shell, home):
            return f"its interpreter is in {printable(place)}, named by the workspace alone; put it on PATH to use it"
        if is_virtual_environment(place) and place != prefix_of(real):
            found += [prefix, place] if may_be_shown(place, home) else []
            continue
        if not is_python(place):
            return f"its interpreter is {printable(link)}, which is in no installation of Python"
        if not may_be_shown(place, home):
            return f"its interpreter is in {printable(place)}, which is not yours alone, or holds more than programs"
        found += [prefix, place]
    return tuple(found)


def _is_known(place: str, shell: Shell, home: Home) -> bool:
    """Is it a Python where those are installed, or does the user's own PATH lead to it?"""
    roots = [os.path.realpath(root) for root in places_of_pythons(shell) if not _leads_out(root, home.workspace)]
    if is_python(place) and any(within(place, root) for root in roots):
        return True
    for folder in shell.search_path:
        for program in glob.glob(f"{glob.escape(folder)}/python*"):
            for link in links_of(program):
                if _in_workspace(link, home):
                    break
                if prefix_of(link) and os.path.realpath(prefix_of(link)) == place:
                    return True
    return False


def _in_workspace(program: str, home: Home) -> bool:
    return within(os.path.realpath(os.path.dirname(program)), os.path.realpath(home.workspace))


def _base_alone(prefix: str, shell: Shell, home: Home) -> Environment:
    """A further environment of the workspace: its programs are there already, and need their interpreter."""
    program = f"{prefix}/bin/python"
    inside = _stands_in(prefix, home.workspace)
    if not is_virtual_environment(prefix) or not inside or not os.access(program, os.X_OK):
        return Environment()
    shown = _bases(program, shell, home)
    if isinstance(shown, str):
        return Environment(remarks=(f"{printable(prefix)}: {shown}",))
    return Environment(readable=shown, hidden=tuple(credentials_in(prefix)))


def _user_site(shell: Shell, home: Home, program: str) -> Environment:
    """Where `pip install --user` puts packages for the system's Python."""
    base = shell.absolute("PYTHONUSERBASE") or f"{shell.home}/.local"
    version = re.sub(r"\D*(3\.\d+)?.*", r"\1", os.path.basename(os.path.realpath(program)))
    site = f"{base}/lib/python{version}/site-packages"
    if not version or not os.path.isdir(site) or not may_be_shown(os.path.realpath(site), home):
        return Environment()
    return Environment(variables=(("PYTHONUSERBASE", base),), readable=(site,), tools=("packages of pip --user",))


# ── what is installed from directories ──


class _Installed(NamedTuple):
    """A package that was installed from a place on this disk."""

    name: str
    place: str
    editable: bool


def _instead_of_copies(prefix: str, home: Home, projects: Sequence[str]) -> Environment:
    """A copy of the project itself, which tox makes, would be tested as it was when it was installed: its source comes
    before that."""
    workspace = os.path.realpath(home.workspace)
    if not any(not each.editable and within(os.path.realpath(each.place), workspace) for each in _installed(prefix)):
        return Environment()
    places = [os.path.join(home.workspace, project) for project in projects]
    sources = [f"{place}/src" if os.path.isdir(f"{place}/src") else place.rstrip("/") for place in places]
    return Environment(variables=(("PYTHONPATH", ":".join(sources)),), tools=("source before its installed copy",))


def _editable_elsewhere(prefix: str, home: Home) -> Iterator[str]:
    """Packages that stand in a directory of their own, outside of the workspace and of what is shown."""
    workspace = os.path.realpath(home.workspace)
    for name, place, editable in _installed(prefix):
        if editable and not within(os.path.realpath(place), workspace):
            yield (
                f"{printable(name)} is installed from {printable(place)}, which is not shown; to show it, say in your "
                f'own config.toml: [environment] readable = ["{printable(place)}"]'
            )


def _installed(prefix: str) -> Iterator[_Installed]:
    from urllib.parse import unquote

    records = glob.glob(f"{glob.escape(prefix)}/lib/python3*/site-packages/*.dist-info/direct_url.json")
    for record in sorted(records)[:_MOST_PACKAGES]:
        try:
            said = json.loads(small_file(record, _MOST_BYTES))
            url, about = said["url"], said.get("dir_info")
            place = unquote(url.removeprefix("file://")) if url.startswith("file:///") else ""
            os.fsencode(place)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            continue
        if place and "\0" not in place:
            editable = isinstance(about, dict) and about.get("editable") is True
            name = os.path.basename(os.path.dirname(record)).partition("-")[0]
            yield _Installed(name, place, editable)
