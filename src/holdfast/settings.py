"""Configuration: read once, validated, frozen. Three files, from the most trusted down:

    managed   /etc/holdfast/config.toml                   root's
    user      $XDG_CONFIG_HOME/holdfast/config.toml       the user's own
    project   holdfast.toml in the workspace              came with the repository: untrusted

Invariants
  CF1  A file that is there and cannot be read, understood or trusted is an error; nothing runs on half a configuration.
  CF2  Unknown keys are errors, in every table.
  CF3  The project names checks, hints, hidden paths and tighter policy, and nothing else: whatever starts a program
       outside the sandbox, gives network, sets a limit, names a person or an agent, or starts a run is refused there.
  CF4  Where managed and user both speak, managed wins; limits are the lower of both.
  CF5  A trusted file belongs to its owner (root, or this user) and nobody else may write it or its directory.

`[policy]` is passed on as decoded, layer by layer; `gates.layers` reads and combines it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from holdfast.disk.homes import config_home
from holdfast.errors import InvalidInput
from holdfast.model.agent_settings import AgentSettings, ProviderSettings, agents_in, providers_in
from holdfast.model.configuration import (
    CHECKPOINTS,
    UNSANDBOXED,
    WEBHOOK_PORT,
    Budget,
    Checkpoint,
    CheckSettings,
    Origin,
    ProgramLimits,
    RunSettings,
    Settings,
    Unsandboxed,
)
from holdfast.model.path import person_folded, printable
from holdfast.model.tables import Layer, Source, Table
from holdfast.model.trigger_settings import TriggerSettings, triggers_in

MANAGED_FILE = "/etc/holdfast/config.toml"
PROJECT_FILE = "holdfast.toml"
MOST_BYTES = 1_000_000

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TRUSTED_ONLY = ("approvers", "me", "sandbox", "limits", "run", "agents", "providers", "services", "triggers")
_KEY_DIGITS = frozenset("0123456789abcdef")
_LAST_PORT = 65535
_KEY_LENGTH = 64
T = TypeVar("T")


class Places(NamedTuple):
    """Where the three files are; an empty name is a layer that there is not."""

    managed: str
    user: str
    project: str
    managed_owner: int = 0


class _Said(NamedTuple):
    """Everything one layer says; None and empty are silence."""

    source: Source
    hidden: tuple[str, ...]
    keep: tuple[str, ...]
    checks: CheckSettings
    detect: bool | None
    hints: tuple[str, ...]
    limits: ProgramLimits
    policy: Mapping[str, object] | None
    approvers: tuple[tuple[str, str], ...]
    me: str | None
    unsandboxed: Unsandboxed | None
    parallel: int | None
    checkpoint: Checkpoint | None
    budget: Budget
    workspaces: tuple[tuple[str, str], ...]
    webhook_port: int | None
    agents: tuple[AgentSettings, ...]
    providers: tuple[ProviderSettings, ...]
    services: tuple[tuple[str, tuple[str, ...]], ...]
    triggers: tuple[TriggerSettings, ...]


def places_of(workspace: str) -> Places:
    """The three files for one workspace, on this host, for this user."""
    return Places(MANAGED_FILE, os.path.join(config_home(), "config.toml"), os.path.join(workspace, PROJECT_FILE))


def load(places: Places) -> Settings:
    """The settings in force, or InvalidInput with the file, the table and the key."""
    files: tuple[tuple[Layer, str, int | None], ...] = (
        ("managed", places.managed, places.managed_owner),
        ("user", places.user, os.geteuid()),
        ("project", places.project, None),
    )
    sources = [
        Source(layer, path, values)
        for layer, path, owner in files
        if path and (values := _read(path, owner)) is not None
    ]
    return _combined([_said(source) for source in sources])


# ── one file ──


def _read(path: str, owner: int | None) -> Mapping[str, object] | None:
    """The decoded file; None when there is none. `owner` must own it; None for the project, which is untrusted."""
    try:
        fd = _opened(path, may_be_a_link=owner is not None)
    except FileNotFoundError:
        return None
    except OSError as error:
        what = "is a symbolic link" if error.errno == errno.ELOOP else f"cannot be read: {error.strerror}"
        raise InvalidInput(f"{printable(path)} {what}") from error
    try:
        about = os.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            raise InvalidInput(f"{printable(path)} is not a regular file")
        if owner is not None:
            _check_trust(path, about, owner)
            for folder in {os.path.dirname(path), os.path.dirname(os.path.realpath(path))}:
                _check_trust(folder, os.stat(folder), owner)
        return _decoded(path, _bytes_of(fd, path))
    finally:
        os.close(fd)


def _opened(path: str, *, may_be_a_link: bool) -> int:
    """The project's file must not lead to somewhere else; a user may keep the real file elsewhere."""
    # O_NONBLOCK: a planted FIFO must not hang us.
    if may_be_a_link:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW)


def _bytes_of(fd: int, path: str) -> bytes:
    data = b""
    while len(data) <= MOST_BYTES:
        piece = os.read(fd, MOST_BYTES + 1 - len(data))
        if not piece:
            return data
        data += piece
    raise InvalidInput(f"{printable(path)} is larger than {MOST_BYTES:,} bytes")


def _check_trust(path: str, about: os.stat_result, owner: int) -> None:
    """Whoever could write here could have written anything (CF5)."""
    if about.st_uid not in (owner, 0):
        raise InvalidInput(f"{printable(path)} belongs to another user (uid {about.st_uid})")
    if about.st_mode & _OTHERS_WRITE:
        raise InvalidInput(
            f"{printable(path)} can be written by others (mode {stat.S_IMODE(about.st_mode):04o})",
            hint="If nobody else has changed it: chmod go-w on it.",
        )


def _decoded(path: str, data: bytes) -> Mapping[str, object]:
    import tomllib  # only where there is a file

    try:
        return tomllib.loads(data.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"{printable(path)} is not TOML: {printable(str(error))}") from error


# ── what one layer says ──


def _said(source: Source) -> _Said:
    top = Table(source.values, printable(source.file))
    trusted = source.layer != "project"
    if not trusted:
        for key in _TRUSTED_ONLY:
            if key in top:
                _refuse_untrusted(top, key)
    workspace, checks = _section(top, "workspace"), _section(top, "checks")
    hints, sandbox, me = _section(top, "hints"), _section(top, "sandbox"), _section(top, "me")
    run, agents = _section(top, "run"), _section(top, "agents")
    for table, key in ((workspace, "keep"), (checks, "detect"), (checks, "failures"), (checks, "time")):
        if not trusted and key in table:
            _refuse_untrusted(table, key)
    if (name := me.text("name")) and not person_folded(name):
        me.refuse("name", "is no name")
    policy = top.table("policy")
    said = _Said(
        source=source,
        hidden=workspace.texts("hidden") or (),
        keep=workspace.texts("keep") or (),
        checks=_checks(checks),
        detect=checks.flag("detect"),
        hints=hints.texts("agent") or (),
        limits=_limits(_section(top, "limits")),
        policy=None if policy is None else policy.values,
        approvers=tuple(_approvers(_section(top, "approvers"))),
        me=me.text("name"),
        unsandboxed=sandbox.choice("without", UNSANDBOXED),
        parallel=run.integer("parallel", least=1),
        checkpoint=run.choice("checkpoint", CHECKPOINTS),
        budget=_budget(_section(run, "budget")),
        workspaces=tuple(_workspaces(_section(run, "workspaces"))),
        webhook_port=_port(run, "webhook_port"),
        agents=tuple(agents_in(agents, lambda table: _limits(table, close=False))),
        providers=tuple(providers_in(_section(top, "providers"))),
        services=tuple(_services(_section(top, "services"))),
        triggers=tuple(_triggers(_section(top, "triggers"))),
    )
    for table in (workspace, checks, hints, sandbox, me, run, top):
        table.close()
    return said


def _refuse_untrusted(table: Table, key: str) -> None:
    table.refuse(
        key,
        "is not for a project to say: it comes with the repository",
        hint="Put it into your own configuration, or the managed one.",
    )


def _section(table: Table, key: str) -> Table:
    found = table.table(key)
    return Table({}, table.file, key) if found is None else found


def _checks(table: Table) -> CheckSettings:
    coverage = table.integer("coverage")
    if coverage is not None and coverage > 100:
        table.refuse("coverage", "must be a percentage")
    return CheckSettings(
        run=table.commands("run") or (),
        coverage=coverage,
        failures=table.integer("failures"),
        required=table.texts("required") or (),
        time_ms=table.duration_ms("time"),
    )


def _limits(table: Table, *, close: bool = True) -> ProgramLimits:
    limits = ProgramLimits(
        time_ms=table.duration_ms("time"),
        output_bytes=table.size("output"),
        memory_bytes=table.size("memory"),
        processes=table.integer("processes", least=1),
        disk_bytes=table.size("disk"),
        open_files=table.integer("open_files", least=1),
    )
    if close:
        table.close()
    return limits


def _budget(table: Table) -> Budget:
    budget = Budget(
        micro_usd=table.micro_usd("usd"),
        time_ms=table.duration_ms("time"),
        tokens=table.integer("tokens"),
        turns=table.integer("turns"),
    )
    table.close()
    return budget


def _port(table: Table, key: str) -> int | None:
    port = table.integer(key, least=1024)
    if port is not None and port > _LAST_PORT:
        table.refuse(key, f"must be a port from 1024 to {_LAST_PORT}")
    return port


def _workspaces(table: Table) -> Iterator[tuple[str, str]]:
    for name in table.keys:
        path = table.text(name) or ""
        if not os.path.isabs(path):
            table.refuse(name, "must be the absolute path of a directory")
        yield name, path


def _approvers(table: Table) -> Iterator[tuple[str, str]]:
    """By their names, stripped. Two spellings of one name would look like two people."""
    known: dict[str, str] = {}
    for name in table.keys:
        other = known.setdefault(person_folded(name), name)
        if not person_folded(name) or other != name:
            table.refuse(name, f"is the same name as {printable(other)}" if other != name else "is no name")
        key = (table.text(name) or "").lower()
        if len(key) != _KEY_LENGTH or not _KEY_DIGITS.issuperset(key):
            table.refuse(name, f"must be an Ed25519 public key, {_KEY_LENGTH} hexadecimal digits")
        yield name.strip(), key


def _services(table: Table) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Services that are plain processes; each has the one key `start`."""
    for name in table.keys:
        service = _section(table, name)
        start = service.command("start")
        if not start:
            service.refuse("start", "must be a command: a list of words")
        else:
            yield name, start
        service.close()


def _triggers(table: Table) -> Iterator[TriggerSettings]:
    """Which time zones there are is for this host to say."""
    for trigger in triggers_in(table):
        if trigger.timezone != "UTC":
            from zoneinfo import ZoneInfo  # only where somebody names one

            try:
                ZoneInfo(trigger.timezone)
            except (OSError, ValueError, KeyError):
                _section(table, trigger.name).refuse("timezone", f"is not known here: {trigger.timezone!r}")
        yield trigger


# ── all layers together, the most trusted first ──


def _combined(said: Sequence[_Said]) -> Settings:
    _refuse_added_approvers(said)
    agents = {agent.name: agent for layer in reversed(said) for agent in layer.agents}
    providers = {provider.name: provider for layer in reversed(said) for provider in layer.providers}
    triggers = {trigger.name: trigger for layer in reversed(said) for trigger in layer.triggers}
    return Settings(
        hidden=_joined(layer.hidden for layer in said),
        keep=_joined(layer.keep for layer in said),
        checks=_combined_checks(said),
        hints=_joined(layer.hints for layer in said),
        policy=tuple(layer.source._replace(values=layer.policy) for layer in said if layer.policy is not None),
        approvers=_joined(layer.approvers for layer in said),
        me=_first([layer.me for layer in said], ""),
        unsandboxed=_first([layer.unsandboxed for layer in said], "refuse"),
        limits=ProgramLimits(*_lowest([layer.limits for layer in said])),
        run=RunSettings(
            parallel=_first([layer.parallel for layer in said], 1),
            checkpoint=_first([layer.checkpoint for layer in said], None),
            budget=Budget(*_lowest([layer.budget for layer in said])),
            workspaces=tuple(sorted(dict(row for layer in reversed(said) for row in layer.workspaces).items())),
            webhook_port=_first([layer.webhook_port for layer in said], WEBHOOK_PORT),
        ),
        agents=tuple(agents[name] for name in sorted(agents)),
        providers=tuple(providers[name] for name in sorted(providers)),
        services=tuple(sorted({name: argv for layer in reversed(said) for name, argv in layer.services}.items())),
        triggers=tuple(triggers[name] for name in sorted(triggers)),
        origins=tuple(origin for layer in said for origin in _origins(layer.source)),
    )


def _refuse_added_approvers(said: Sequence[_Said]) -> None:
    files = [layer.source.file for layer in said if layer.approvers]
    if len(files) > 1:
        raise InvalidInput(
            f"{printable(files[1])}: [approvers] are already named by {printable(files[0])}, which stands above it",
            hint="Whoever adds an approver could approve alone; leave the table out of the lower file.",
        )


def _combined_checks(said: Sequence[_Said]) -> CheckSettings:
    checks = [layer.checks for layer in said]
    trusted = {command for layer in said if layer.source.layer != "project" for command in layer.checks.run}
    commands = _joined(check.run for check in checks)
    return CheckSettings(
        run=commands,
        of_the_project=tuple(command for command in commands if command not in trusted),
        detect=_first([layer.detect for layer in said], True),
        coverage=_bound(max, [check.coverage for check in checks]),
        failures=_bound(min, [check.failures for check in checks]),
        required=_joined(check.required for check in checks),
        time_ms=_bound(min, [check.time_ms for check in checks]),
    )


def _joined(parts: Iterable[tuple[T, ...]]) -> tuple[T, ...]:
    """Everything any layer names, once, in order."""
    return tuple(dict.fromkeys(item for part in parts for item in part))


def _first(values: Iterable[T | None], default: T) -> T:
    return next((value for value in values if value is not None), default)


def _bound(choose: Callable[[list[int]], int], values: Iterable[int | None]) -> int | None:
    stated = [value for value in values if value is not None]
    return choose(stated) if stated else None


def _lowest(rows: Sequence[tuple[int | None, ...]]) -> list[int | None]:
    return [_bound(min, column) for column in zip(*rows, strict=True)]


def _origins(source: Source) -> Iterator[Origin]:
    for table, values in source.values.items():
        for key in values if isinstance(values, Mapping) else ():
            yield Origin(f"{table}.{key}", source.layer, source.file)
