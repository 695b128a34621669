"""Version managers: which version a directory asks for, by files that say so, and where the manager keeps it.

Only plain names of versions count: `path:/home/me`, `../../.ssh` and commands are no versions (E1 of `prefixes` is
asked of what is found all the same).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator

from holdfast.environment.found import Shell
from holdfast.environment.reading import small_file

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
_MOST_BYTES = 1 << 16
# Of conda and its like, below a home.
_DISTRIBUTIONS = "miniconda3 anaconda3 miniforge3 mambaforge micromamba .conda/envs".split()
# What the managers call a tool, and its name with others.
_ALIASES = {"node": ("node", "nodejs"), "python": ("python",), "go": ("go", "golang"), "rust": ("rust",)}


def pinned_by_pyenv(shell: Shell, directory: str, *, or_global: bool = False) -> Iterator[str]:
    """Prefixes below pyenv's own folder, as `python3` of its shims would choose them; `or_global`: its own choice
    where nobody else makes one, which counts for those who have its shims on PATH."""
    root = shell.absolute("PYENV_ROOT") or f"{shell.home}/.pyenv"
    stated = shell.variables.get("PYENV_VERSION", "").replace(":", "\n")
    own = _text(f"{root}/version") if or_global else ""
    for text in (stated, *_texts(directory, ".python-version"), own):
        names = [line.split("#")[0].strip() for line in text.splitlines()]
        names = [name for name in names if _NAME.fullmatch(name)]
        for name in names:
            prefix = f"{root}/versions/{name}"
            if os.path.isdir(prefix):
                yield prefix
        if names:
            return  # the nearest file decides


def installed_by_manager(shell: Shell, directory: str, tool: str) -> Iterator[str]:
    """Prefixes below the folders of mise and asdf."""
    roots = (
        os.path.join(shell.absolute("MISE_DATA_DIR") or f"{shell.home}/.local/share/mise", "installs"),
        os.path.join(shell.absolute("ASDF_DATA_DIR") or f"{shell.home}/.asdf", "installs"),
    )
    for version in _wanted(shell, directory, tool):
        for root in roots:
            for name in _ALIASES[tool]:
                prefix = f"{root}/{name}/{version}"
                if os.path.isdir(prefix):
                    yield prefix


def places_of_pythons(shell: Shell) -> Iterator[str]:
    """Where version managers, distributions and the host keep the Pythons that they install."""
    data = shell.absolute("XDG_DATA_HOME") or f"{shell.home}/.local/share"
    yield shell.absolute("UV_PYTHON_INSTALL_DIR") or f"{data}/uv/python"
    yield f"{shell.absolute('PYENV_ROOT') or f'{shell.home}/.pyenv'}/versions"
    yield f"{shell.absolute('MISE_DATA_DIR') or f'{data}/mise'}/installs/python"
    yield f"{shell.absolute('ASDF_DATA_DIR') or f'{shell.home}/.asdf'}/installs/python"
    yield f"{data}/hatch/pythons"
    yield f"{data}/pdm/python"
    yield f"{shell.home}/.rye/py"
    for name in ("CONDA_PREFIX", "MAMBA_ROOT_PREFIX"):
        if shell.absolute(name):
            yield shell.absolute(name)
    conda = shell.absolute("CONDA_EXE")
    if conda:
        yield os.path.dirname(os.path.dirname(conda))
    for name in _DISTRIBUTIONS:
        yield f"{shell.home}/{name}"
    yield from ("/opt", "/home/linuxbrew/.linuxbrew", sys.base_prefix)


def _wanted(shell: Shell, directory: str, tool: str) -> Iterator[str]:
    texts = (
        *_texts(directory, "mise.toml"),
        *_texts(directory, ".mise.toml"),
        _text(f"{shell.absolute('XDG_CONFIG_HOME') or f'{shell.home}/.config'}/mise/config.toml"),
    )
    for text in texts:
        yield from _of_toml(text, tool)
    for text in (*_texts(directory, ".tool-versions"), _text(f"{shell.home}/.tool-versions")):
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if words and words[0] in _ALIASES[tool]:
                yield from (word for word in words[1:] if _NAME.fullmatch(word))


def _of_toml(text: str, tool: str) -> Iterator[str]:
    import tomllib

    try:
        tools = tomllib.loads(text).get("tools", {})
    except (ValueError, RecursionError):
        return
    for name in _ALIASES[tool]:
        value = tools.get(name) if isinstance(tools, dict) else None
        said = value if isinstance(value, list) else [value.get("version") if isinstance(value, dict) else value]
        yield from (each for each in said if isinstance(each, str) and _NAME.fullmatch(each))


def _texts(directory: str, name: str) -> Iterator[str]:
    """The file in the directory, and in those above it, the nearest first."""
    while True:
        text = _text(os.path.join(directory, name))
        if text:
            yield text
        above = os.path.dirname(directory)
        if above == directory:
            return
        directory = above


def _text(path: str) -> str:
    return small_file(path, _MOST_BYTES).decode("utf-8", "replace")
