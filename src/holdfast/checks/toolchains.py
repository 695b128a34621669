"""Toolchains that live in the user's home, which a check does not see: what to tell and show it of them.

Only programs and package caches are shown, read-only; never a directory that may hold credentials
(so `~/.cargo/bin` and not `~/.cargo`, `~/.m2/repository` and not `~/.m2`).
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Toolchains(NamedTuple):
    """Variables for the commands, and absolute paths they must be able to read."""

    env: tuple[tuple[str, str], ...]
    readable: tuple[str, ...]


def toolchains(home: str) -> Toolchains:
    env: list[tuple[str, str]] = []
    readable: list[str] = []
    places = {
        ".rustup": ("RUSTUP_HOME", "{}"),
        ".cargo/bin": ("", ""),
        ".m2/repository": ("MAVEN_OPTS", "-Dmaven.repo.local={}"),  # MAVEN_ARGS came with Maven 3.9
        "go/pkg/mod": ("GOMODCACHE", "{}"),
        ".pyenv": ("PYENV_ROOT", "{}"),
        ".nvm/versions": ("", ""),
    }
    for place, (name, value) in places.items():
        path = os.path.join(home, place)
        if os.path.isdir(path):
            readable.append(path)
            if name:
                env.append((name, value.format(path)))
    return Toolchains(tuple(env), tuple(readable))
