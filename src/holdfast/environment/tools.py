"""Node, Rust, Go and Maven: programs and package caches of the user's, never their settings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence

from holdfast.environment.found import Environment, Shell, together
from holdfast.environment.prefixes import (
    Home,
    is_go,
    is_node,
    is_system,
    may_be_shown,
    prefix_of,
)
from holdfast.environment.reading import small_file
from holdfast.environment.versions import installed_by_manager

_PACKAGE_MANAGER = re.compile(r"(npm|pnpm|yarn)@(\d+\.\d+\.\d+[0-9A-Za-z.-]{0,32})(\+sha\d+\.[0-9a-f]+)?")
_MOST_BYTES = 1 << 20


def tools_of(shell: Shell, workspace: str, projects: Sequence[str]) -> Environment:
    home = Home(shell.home, workspace)
    directories = [os.path.join(workspace, project) for project in projects]
    return together(
        (*_node(shell, home, directories), _rust(shell, home), _go(shell, home, directories), _maven(shell, home))
    )


# ── Node ──


def _node(shell: Shell, home: Home, directories: Sequence[str]) -> Iterator[Environment]:
    for prefix in _prefixes(shell, directories, "node"):
        if is_system(prefix) or prefix == "/":
            break  # the system's own is there, and comes first for the user too
        if is_node(prefix) and may_be_shown(os.path.realpath(prefix), home):
            real = os.path.realpath(prefix)
            yield Environment(
                path=(f"{prefix}/bin",),
                readable=(prefix, real),
                tools=(f"node, {prefix}",),
            )
            break
    for directory in directories:
        yield _corepack(shell, home, directory)


def _corepack(shell: Shell, home: Home, directory: str) -> Environment:
    """The package manager that package.json names, where corepack has it already."""
    try:
        package = json.loads(small_file(os.path.join(directory, "package.json"), _MOST_BYTES))
    except (ValueError, RecursionError):
        return Environment()
    said = package.get("packageManager") if isinstance(package, dict) else None
    named = _PACKAGE_MANAGER.fullmatch(said) if isinstance(said, str) else None
    if named is None:
        return Environment()
    cache = shell.absolute("XDG_CACHE_HOME") or f"{shell.home}/.cache"
    root = shell.absolute("COREPACK_HOME") or f"{cache}/node/corepack"
    kept = f"{root}/v1/{named[1]}/{named[2]}"
    if not os.path.isdir(kept) or not may_be_shown(os.path.realpath(kept), home):
        return Environment(remarks=(f"package.json wants {said}, which corepack has not fetched: corepack install",))
    offline = (("COREPACK_HOME", root), ("COREPACK_ENABLE_NETWORK", "0"), ("COREPACK_ENABLE_DOWNLOAD_PROMPT", "0"))
    packages = f"{shell.home}/.yarn/berry/cache"
    readable = (kept, packages) if named[1] == "yarn" and os.path.isdir(packages) else (kept,)
    return Environment(variables=offline, readable=readable, tools=(f"{named[1]} {named[2]} of corepack",))


# ── Rust, Go, Maven ──


def _rust(shell: Shell, home: Home) -> Environment:
    """Of cargo's home the programs and the packages; its credentials and settings stand beside them."""
    toolchains = shell.absolute("RUSTUP_HOME") or f"{shell.home}/.rustup"
    cargo = shell.absolute("CARGO_HOME") or f"{shell.home}/.cargo"
    if not os.path.isdir(toolchains) or not may_be_shown(os.path.realpath(toolchains), home):
        return Environment()
    parts = [f"{cargo}/{name}" for name in ("bin", "registry", "git")]
    shown = tuple(part for part in parts if os.path.isdir(part) and may_be_shown(os.path.realpath(part), home))
    variables = (("RUSTUP_HOME", toolchains), ("CARGO_HOME", cargo), ("CARGO_NET_OFFLINE", "true"))
    own = Environment(
        path=(f"{cargo}/bin",) if f"{cargo}/bin" in shown else (),
        variables=variables,
        readable=(toolchains, *shown),
        tools=("cargo of rustup",),
    )
    return together((own, _cache(home, "CARGO_TARGET_DIR", shell.absolute("CARGO_TARGET_DIR"))))


def _go(shell: Shell, home: Home, directories: Sequence[str]) -> Environment:
    caches = shell.absolute("XDG_CACHE_HOME") or f"{shell.home}/.cache"
    built = _cache(home, "GOCACHE", shell.absolute("GOCACHE") or f"{caches}/go-build")
    return together((_go_and_modules(shell, home, directories), built))


def _cache(home: Home, variable: str, place: str) -> Environment:
    """What the tool built before. It cannot do without writing to it, and nobody else gets what it wrote."""
    if not os.path.isdir(place) or not may_be_shown(os.path.realpath(place), home):
        return Environment()
    return Environment(variables=((variable, place),), overlaid=(place,))


def _go_and_modules(shell: Shell, home: Home, directories: Sequence[str]) -> Environment:
    path = shell.absolute("GOPATH") or f"{shell.home}/go"
    modules = shell.absolute("GOMODCACHE") or f"{path}/pkg/mod"
    there = os.path.isdir(modules) and may_be_shown(os.path.realpath(modules), home)
    packages = Environment(variables=(("GOMODCACHE", modules),), readable=(modules,)) if there else Environment()
    for prefix in _prefixes(shell, directories, "go"):
        if is_system(prefix):
            break
        # asdf keeps it one folder deeper.
        for place in (prefix, f"{prefix}/go"):
            if is_go(place) and may_be_shown(os.path.realpath(place), home):
                own = Environment(
                    path=(f"{place}/bin",),
                    variables=(("GOROOT", place), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")),
                    readable=(place, os.path.realpath(place)),
                    tools=(f"go, {place}",),
                )
                return together((own, packages))
    return (
        together((Environment(variables=(("GOPROXY", "off"), ("GOTOOLCHAIN", "local"))), packages))
        if there
        else packages
    )


def _maven(shell: Shell, home: Home) -> Environment:
    packages = f"{shell.home}/.m2/repository"
    if not os.path.isdir(packages) or not may_be_shown(os.path.realpath(packages), home):
        return Environment()
    # MAVEN_ARGS came with Maven 3.9.
    return Environment(variables=(("MAVEN_OPTS", f"-Dmaven.repo.local={packages}"),), readable=(packages,))


def _prefixes(shell: Shell, directories: Sequence[str], tool: str) -> Iterator[str]:
    """Where a tool could be installed, the one that the user's shell would start first."""
    for folder in shell.search_path:
        program = os.path.join(folder, tool)
        if not os.access(program, os.X_OK) or os.path.isdir(program):
            continue
        if os.path.basename(folder) == "shims":
            for directory in directories:
                yield from installed_by_manager(shell, directory, tool)
            continue
        prefix = prefix_of(os.path.realpath(program) if os.path.islink(program) else program)
        if prefix:
            yield prefix
    for directory in directories:
        yield from installed_by_manager(shell, directory, tool)
