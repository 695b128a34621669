"""The configuration in force, key by key: each value, and the files it comes from.

A value comes from every layer that states its key and whose own word is in it:
the one that won where only one can, all of them where lists add up, none where the default holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from holdfast.gates.layers import layered
from holdfast.gates.policy import Limits, Policy, Scalars
from holdfast.gates.self_tests import Failure, count_self_tests, run_self_tests
from holdfast.model.configuration import Settings
from holdfast.model.tables import Layer
from holdfast.model.trigger_settings import TriggerSettings
from holdfast.sandbox import profile
from holdfast.settings import Places, Whose, load_each

_PROGRAM = profile.Limits()
Unit = Literal["", "ms", "bytes", "%"]


class File(NamedTuple):
    """One file of the configuration, whether it is there or not."""

    layer: Layer
    path: str
    present: bool


class Value(NamedTuple):
    """One key as it holds now. `value` is JSON; without layers it is the default."""

    key: str
    value: object
    unit: Unit = ""
    layers: tuple[Layer, ...] = ()


class Judgement(NamedTuple):
    """The policy, and which of its own tests it fails."""

    policy: Policy
    tests: int
    failures: tuple[Failure, ...]


def files_of(places: Places, settings: Settings) -> tuple[File, ...]:
    """The three files, and after the user's the section in it that is for this workspace alone."""
    rows: tuple[tuple[Layer, str], ...] = (
        ("managed", places.managed),
        ("user", places.user),
        ("project", places.project),
    )
    files = [File(layer, path, os.path.lexists(path)) for layer, path in rows if path]
    own = dict.fromkeys(origin.file for origin in settings.origins if origin.layer == "workspace")
    for section in own:
        files.insert([file.layer for file in files].index("user") + 1, File("workspace", section, True))
    return tuple(files)


def values_of(places: Places, settings: Settings, whose: Whose) -> tuple[Value, ...]:
    """Everything but the policy, in the order of the reference."""
    alone = {source.layer: {row.key: row.value for row in _rows(said)} for source, said in load_each(places, whose)}
    stated: dict[str, list[Layer]] = {}
    for origin in settings.origins:
        stated.setdefault(origin.key, []).append(origin.layer)
    return tuple(
        row._replace(
            layers=tuple(layer for layer in stated.get(row.key, ()) if _speaks_in(alone[layer].get(row.key), row.value))
        )
        for row in _rows(settings)
    )


def policy_values(policy: Policy) -> tuple[Value, ...]:
    """The policy's answers and limits; rules are told by number."""
    scalars = policy.scalars
    named = [(name, getattr(scalars, name)) for name in Scalars._fields if name != "limits"]
    named += [(f"limits.{name}", value) for name, value in zip(Limits._fields, scalars.limits, strict=True)]
    found = [
        Value(f"policy.{name.removesuffix('_ms')}", value, _unit_of(name), _unless_built_in(policy.layer_of(name)))
        for name, value in named
    ]
    return (Value("policy.sandbox", list(policy.sandbox)), *found)


def judged(settings: Settings) -> Judgement:
    """The policy in force with its self-tests run; InvalidInput when a layer cannot be understood."""
    policy = layered(settings.policy)
    return Judgement(policy, count_self_tests(policy), run_self_tests(policy))


def _unit_of(name: str) -> Unit:
    if name.endswith("_percent"):
        return "%"
    return "ms" if name.endswith("_ms") else "bytes" if name == "limits.bytes" else ""


def _unless_built_in(layer: Layer) -> tuple[Layer, ...]:
    return () if layer == "built-in" else (layer,)


def _speaks_in(own: object, value: object) -> bool:
    if isinstance(own, list) and isinstance(value, list):
        return any(item in value for item in own)
    if isinstance(own, Mapping) and isinstance(value, Mapping):
        return any(item is not None and value.get(key) == item for key, item in own.items())
    return own == value


_KEYS: tuple[tuple[str, Unit, Callable[[Settings], object]], ...] = (
    ("workspace.hidden", "", lambda s: list(s.hidden)),
    ("workspace.keep", "", lambda s: list(s.keep)),
    ("checks.run", "", lambda s: [list(command) for command in s.checks.run]),
    ("checks.detect", "", lambda s: s.checks.detect),
    ("checks.coverage", "%", lambda s: s.checks.coverage),
    ("checks.failures", "", lambda s: s.checks.failures),
    ("checks.required", "", lambda s: list(s.checks.required)),
    ("checks.time", "ms", lambda s: s.checks.time_ms),
    ("hints.agent", "", lambda s: list(s.hints)),
    ("environment.readable", "", lambda s: list(s.environment.readable)),
    ("environment.build", "", lambda s: list(s.environment.build)),
    ("environment.build_network", "", lambda s: s.environment.build_network or "none"),
    ("prompt", "", lambda s: s.prompt._asdict()),
    ("me.name", "", lambda s: s.me),
    ("sandbox.without", "", lambda s: s.unsandboxed),
    ("limits.time", "ms", lambda s: _or(s.limits.time_ms, _PROGRAM.time_ms)),
    ("limits.output", "bytes", lambda s: _or(s.limits.output_bytes, _PROGRAM.output_bytes)),
    ("limits.memory", "bytes", lambda s: _or(s.limits.memory_bytes, _PROGRAM.memory_bytes)),
    ("limits.processes", "", lambda s: _or(s.limits.processes, _PROGRAM.processes)),
    ("limits.disk", "bytes", lambda s: _or(s.limits.disk_bytes, _PROGRAM.disk_bytes)),
    ("limits.open_files", "", lambda s: _or(s.limits.open_files, _PROGRAM.open_files)),
    ("run.parallel", "", lambda s: s.run.parallel),
    ("run.checkpoint", "", lambda s: s.run.checkpoint or "git inside a repository"),
    ("run.budget", "", lambda s: s.run.budget._asdict()),
    ("run.workspaces", "", lambda s: dict(s.run.workspaces)),
    ("run.branch", "", lambda s: s.run.branch or "none: what is checked out"),
    ("run.unverified", "", lambda s: s.run.unverified),
    ("run.outage", "ms", lambda s: s.run.outage_ms),
    ("run.guessed", "", lambda s: s.run.guessed),
    ("run.webhook_port", "", lambda s: s.run.webhook_port),
)


def _rows(settings: Settings) -> Iterator[Value]:
    for key, unit, read in _KEYS:
        yield Value(key, read(settings), unit)
    for name, public in settings.approvers:
        yield Value(f"approvers.{name}", public)
    for service in settings.services:
        yield Value(f"services.{service.name}", service._asdict())
    for agent in settings.agents:
        yield Value(f"agents.{agent.name}", {**agent._asdict(), "limits": agent.limits._asdict()})
    for provider in settings.providers:
        yield Value(f"providers.{provider.name}", {**provider._asdict(), "prices": [list(p) for p in provider.prices]})
    for trigger in settings.triggers:
        yield Value(f"triggers.{trigger.name}", _stated(trigger))


def _stated(trigger: TriggerSettings) -> dict[str, object]:
    """What belongs to its kind: a time zone says nothing about files, and a rest of files nothing about a clock."""
    told: dict[str, object] = {"kind": trigger.kind, "roadmap": trigger.roadmap, "agent": trigger.agent}
    if trigger.kind == "cron":
        return {**told, "cron": trigger.cron, "timezone": trigger.timezone}
    if trigger.kind == "webhook":
        return told
    watched = {"changed": list(trigger.changed)} if trigger.kind == "changed" else {"queue": trigger.queue}
    return {**told, **watched, "settle_ms": trigger.settle_ms}


def _or(stated: int | None, default: int) -> int:
    return default if stated is None else stated
