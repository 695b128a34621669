"""Node: the test script or node's own runner, tsc and eslint where configured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.checks.attempt import REPORTS
from holdfast.checks.levels import Check, Level, Measured, NotRun, cannot_run
from holdfast.checks.project import Found, Kind, Place, json_object

SOURCES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")
_LOCKS = {"pnpm-lock.yaml": "pnpm", "yarn.lock": "yarn", "bun.lockb": "bun", "bun.lock": "bun"}
_NO_TEST = "no test specified"  # what `npm init` writes
_TEST_FILE = re.compile(r".*[._-]test\.(js|mjs|cjs)|test\.(js|mjs|cjs)|test-.*\.(js|mjs|cjs)")
_ESLINT = (".eslintrc", ".eslintrc.json", ".eslintrc.js", ".eslintrc.cjs", ".eslintrc.yml", ".eslintrc.yaml",
           "eslint.config.js", "eslint.config.mjs", "eslint.config.cjs", "eslint.config.ts")  # fmt: skip


def _checks(place: Place) -> Iterator[Found]:
    package = json_object(place.text("package.json"))
    yield from _types(place)
    yield from _tests(place, package)
    yield from _lint(place, package)


def _tests(place: Place, package: dict[str, object]) -> Iterator[Found]:
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    if isinstance(script, str) and _NO_TEST not in script:
        if _has_dependencies(package) and not _modules(place):
            yield NotRun("tests", place.root, cannot_run("node_modules", "is not there; the dependencies are missing"))
            return
        runner = next((tool for lock, tool in _LOCKS.items() if lock in place.names), "npm")
        yield Check("tests", place.root, (runner, "test"), "package.json has a test script", runner,
                    (runner, "--version"), (("CI", "true"), ("npm_config_offline", "true"),
                                            ("npm_config_update_notifier", "false")))  # fmt: skip
        return
    where = "test/" if "test/" in place.names else next(iter(sorted(filter(_TEST_FILE.fullmatch, place.names))), "")
    if where:
        reporter = (
            "--test-reporter=junit",
            f"--test-reporter-destination={REPORTS}/junit.xml",
            "--test-reporter=spec",
            "--test-reporter-destination=stdout",
        )
        measure = ("--experimental-test-coverage", "--test-reporter=lcov",
                   f"--test-reporter-destination={REPORTS}/lcov.info")  # fmt: skip
        coverage = Measured("lcov.info", measure, ("node", "--version"), "node")
        argv = ("node", "--test", *reporter)
        yield Check("tests", place.root, argv, f"there is {where}", "node", junit="junit.xml", coverage=coverage)


def _types(place: Place) -> Iterator[Found]:
    if "tsconfig.json" in place.names:
        yield from _tool(place, "types", "tsc", ("--noEmit", "-p", "."), "there is a tsconfig.json")


def _lint(place: Place, package: dict[str, object]) -> Iterator[Found]:
    where = place.first(*_ESLINT) or ("package.json" if "eslintConfig" in package else "")
    for files in place.batches(*SOURCES) if where else ():
        yield from _tool(place, "lint", "eslint", ("--", *files), f"{where} configures eslint")


def _tool(place: Place, level: Level, name: str, arguments: tuple[str, ...], why: str) -> Iterator[Found]:
    """A tool of node_modules, here or above; one from elsewhere would be of another version."""
    up = _modules(place, name)
    if not up:
        yield NotRun(level, place.root, cannot_run(name, "is not in node_modules"))
        return
    yield Check(level, place.root, (f"{up}node_modules/.bin/{name}", *arguments), why, name)


def _modules(place: Place, program: str = "") -> str:
    """The way to the nearest node_modules (with a program in it), `./` or some `../`; empty when there is none."""
    parts = place.root.split("/") if place.root else []
    for up in range(len(parts) + 1):
        base = "/".join(parts[: len(parts) - up])
        here = f"{base}/" if base else ""
        if program and program not in place.tree.names(f"{here}node_modules/.bin"):
            continue
        if program or "node_modules/" in place.tree.names(base):
            return "../" * up or "./"
    return ""


def _has_dependencies(package: dict[str, object]) -> bool:
    return any(package.get(key) for key in ("dependencies", "devDependencies"))


NODE = Kind("Node", ("package.json",), _checks, ("tsconfig.json", *_ESLINT))
