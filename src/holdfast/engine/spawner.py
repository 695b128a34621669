"""The process spawner: programs and agents started in a sandboxed shadow, with one kind of result.

    spawn(command, arguments, environment, cwd, timeout) ─▶ AdapterResult
    spawn_adapter(tool_id, request) ──────────────────────▶ AdapterResult

Nothing lands: `artifacts` are the paths that changed in the shadow, which is removed. To land what a command does,
make a plan with a `run` step; to land an agent's work, use `Holdfast.task`.

Invariants
  SP-1  No shell. The arguments reach the program byte for byte.
  SP-2  The environment is what the caller names, and what the sandbox sets: PATH and LANG where those are missing, a
        HOME and TMPDIR of its own, HOLDFAST_RUN. Nothing of this process is inherited.
  SP-3  The program works in a shadow, never in the workspace; `cwd` is a directory of the workspace, through no link.
  SP-4  `success` is measured. A program that failed, timed out or cannot be started is a result, not an exception.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from holdfast.agents.protocol import Agent, Watcher
from holdfast.engine.asking import task_plan
from holdfast.engine.checking import profile_of
from holdfast.engine.hiring import hire
from holdfast.engine.last_words import last_words
from holdfast.engine.pipeline import Pipeline
from holdfast.environment.detect import environment_of, this_shell
from holdfast.errors import AgentFailed, InvalidInput, LimitReached
from holdfast.gates.secrets import masked
from holdfast.model.agent import AdapterResult, Delegation, Request
from holdfast.model.path import checked_path, printable
from holdfast.sandbox.confined import Confined, run_confined
from holdfast.sandbox.exceeded import exceeded
from holdfast.sandbox.process import Command, clean_environment
from holdfast.sandbox.profile import Limits
from holdfast.simulation.rehearsal import Unrehearsable
from holdfast.store.dossier import Dossiers
from holdfast.workspace.shadow import open_shadow

_HOME = "/nonexistent"
_LONGEST = 10_000_000


class ProcessSpawner:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def spawn(
        self,
        command: str,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        cwd: str = ".",
        timeout: float = 600.0,
        *,
        on_output: Callable[[bytes], None] | None = None,
    ) -> AdapterResult:
        """Run a program to its end or to its time-out, in a shadow that is removed afterwards."""
        site, settings = self._pipeline.site, self._pipeline.governance.settings()
        _require_words(command, arguments, environment or {}, timeout)
        directory = site.path if cwd in (".", "") else os.path.join(site.path, checked_path(cwd))
        if os.path.realpath(directory) != _beneath(site.path, cwd):
            raise InvalidInput(f"{printable(cwd)} goes through a symbolic link")
        found = environment_of(this_shell(), site.path, readable=settings.environment.readable)
        profile = profile_of(settings.limits, found)
        limits = profile.limits
        env = {**found.around(clean_environment(_HOME)), **(environment or {})}
        within_ms = max(1, int(timeout * 1000))
        within = min(within_ms, limits.time_ms) if limits.time_ms else within_ms
        started = Command((command, *arguments), directory, env, within, limits.output_bytes)
        with open_shadow(site, "auto", settings.hidden) as shadow:
            try:
                done = run_confined(started, shadow.view, profile, on_output=on_output)
            except InvalidInput as error:
                return AdapterResult(False, "", error.message, 0)
            changed = shadow.capture(settings.keep).change_set.paths
        return _result_of(done, command, limits, tuple(changed))

    def spawn_adapter(
        self,
        tool_id: str,
        request: Request,
        *,
        timeout: float = 1_200.0,
        agents: Mapping[str, Agent] | None = None,
        watcher: Watcher | None = None,
    ) -> AdapterResult:
        """Give a request to an agent, once; its work is measured as in a task, and recorded in the ledger."""
        heard: list[Delegation] = []
        plan = task_plan(request.task, tool_id, request.expected, 1, int(timeout * 1000))
        employ = hire(self._pipeline, agents or {}, watcher, told=heard.append)
        error = ""
        try:
            self._pipeline.bring_installed()
            simulated = self._pipeline.simulator.simulate(plan, "auto", employ)
            Dossiers(self._pipeline.site.state, "simulations").remove(simulated.report.id)
        except (AgentFailed, LimitReached, Unrehearsable) as failure:
            error = failure.message
        if not heard:
            return AdapterResult(False, "", error, 0)
        last = heard[-1].attempts[-1]
        return last.adapter_result()._replace(success=not error, error=error)


def _require_words(command: object, arguments: object, environment: object, timeout: object) -> None:
    """SP-1: what is no word for a program is refused, before one can take it for something else."""
    if not isinstance(command, str) or not command:
        raise InvalidInput("the command must be the name of a program")
    if isinstance(arguments, (str, bytes)) or not isinstance(arguments, Sequence) or not all(map(_is_text, arguments)):
        raise InvalidInput("the arguments must be a list of texts", hint='For example: ["-c", "exit 0"]')
    if not isinstance(environment, Mapping) or not all(map(_is_text, (*environment, *environment.values()))):
        raise InvalidInput("the environment must be a table of texts")
    wrong = next((name for name in environment if not name or "=" in name), None)
    if wrong is not None:
        raise InvalidInput(f"{wrong!r} cannot be the name of an environment variable")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= _LONGEST:
        raise InvalidInput(f"the time-out must be more than 0 seconds, and at most {_LONGEST:,}")


def _beneath(root: str, cwd: str) -> str:
    return os.path.normpath(os.path.join(os.path.realpath(root), cwd))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _result_of(done: Confined, command: str, limits: Limits, artifacts: tuple[str, ...]) -> AdapterResult:
    finished = done.finished
    error = ""
    if done.limit:
        error = f"{command} {exceeded(done.limit, limits) or f'reached its limit: {done.limit}'}"
    elif finished.signal is not None:
        error = f"{command} was ended by signal {finished.signal}"
    elif not done.succeeded:
        error = "\n".join((f"{command} exited with {finished.exit_code}", *last_words(finished.output)))
    output = masked(finished.output.decode("utf-8", "replace"))
    return AdapterResult(not error, output, error, finished.duration_ms, artifacts)
