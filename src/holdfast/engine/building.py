"""Building what a project needs, by the user's own command, in the layer where its checks run.

    a change says other dependencies ─┬─ [environment] build ──▶ sandboxed, in the layer ──▶ the checks run with that
                                      └─ no command ──▶ the checks run with what was there, and prove nothing

Invariants
  BU1  Only the user's own configuration names the command, and whether it reaches the network. It runs as a check does:
       what it writes is in the layer, which is thrown away, and it sees no credentials.
  BU2  It installs into the project (`.venv`, `node_modules`). What stands elsewhere is read-only inside.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from holdfast.checks.attempt import duration
from holdfast.checks.confine import confined, written_to
from holdfast.checks.dependencies import changes_dependencies, concerns_dependencies
from holdfast.engine.difference import Compared, Side
from holdfast.engine.last_words import last_words
from holdfast.environment.found import Environment
from holdfast.model.changeset import Change
from holdfast.model.check import quoted
from holdfast.model.configuration import EnvironmentSettings
from holdfast.model.execution import Receipt
from holdfast.model.path import printable
from holdfast.sandbox.process import DEFAULT_PATH, Command
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.view import View

# Of virtual environments that may be built in a project.
_LOCAL = (".venv", "venv")
# Front tools heed these, and would stay away from what they shall build.
_IN_THE_WAY = ("VIRTUAL_ENV", "UV_NO_SYNC", "UV_PROJECT_ENVIRONMENT", "POETRY_ACTIVE", "PIPENV_ACTIVE")
_NOT_OFFLINE = ("UV_OFFLINE", "npm_config_offline")


def changed_dependencies(changes: Sequence[Change], compared: Callable[[Sequence[Change]], Sequence[Compared]]) -> str:
    """The first file that says other dependencies than before; empty where none does."""
    concerned = [change for change in changes if concerns_dependencies(change.path)]
    for change, old, new in compared(concerned) if concerned else ():
        if changes_dependencies(change.path, _text(old), _text(new)):
            return change.path
    return ""


def not_built(path: str) -> str:
    """Why the checks prove nothing without a command (a sentence without its end)."""
    return (
        f"{printable(path)} changes what has to be installed, and the checks ran with what was installed before it; to "
        'have it built, name the command in your own config.toml: [environment] build = ["…"]'
    )


def build(
    view: View,
    settings: EnvironmentSettings,
    environment: Environment,
    profile: Profile,
    save_log: Callable[[bytes], str],
    tree_digest: str,
) -> Receipt:
    """Run the command; the receipt says how that went (BU1)."""
    online = settings.build_network == "full"
    program = settings.build[0]
    shown = (os.path.normpath(program),) if program.startswith("/") else ()
    profile = profile._replace(
        network="full" if online else profile.network, readable=tuple(dict.fromkeys((*profile.readable, *shown)))
    )
    away = (*_IN_THE_WAY, *(_NOT_OFFLINE if online else ()))
    variables = {name: value for name, value in environment.variables if name not in away}
    variables |= {"PATH": environment.before(os.environ.get("PATH", "") or DEFAULT_PATH), "LANG": "C.UTF-8"}
    limits = profile.limits
    command = Command(settings.build, view.path, variables, limits.time_ms or 3_600_000, limits.output_bytes or 1 << 20)
    done = confined(view, profile)(command)
    ended = f"exited with {done.exit_code}" if done.exit_code is not None else "did not come to its end"
    said = "".join(f"\n  | {line}" for line in last_words(done.output)) if not done.succeeded else ""
    return Receipt(
        command=settings.build,
        kind="environment",
        passed=done.succeeded,
        exit_code=done.exit_code,
        duration_ms=done.duration_ms,
        log_digest=save_log(done.output),
        tree_digest=tree_digest,
        detail=f"build of the environment: {quoted(settings.build)} {ended} ({duration(done.duration_ms)}){said}",
        origin="configured",
    )


def with_built(environment: Environment, view: View) -> Environment:
    """The environment with the virtual environment that was built in the project, if one was (BU2)."""
    for name in _LOCAL:
        if os.path.lexists(f"{written_to(view)}/{name}/bin"):
            prefix = f"{view.path}/{name}"
            others = tuple(row for row in environment.variables if row[0] != "VIRTUAL_ENV")
            return environment._replace(
                path=(f"{prefix}/bin", *environment.path), variables=(("VIRTUAL_ENV", prefix), *others)
            )
    return environment


def _text(side: Side) -> str | None:
    return side.data.decode("utf-8", "replace") if side.data is not None else None
