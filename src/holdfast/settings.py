"""Configuration: read once, validated, frozen. Three files, from the most trusted down:

    managed     /etc/holdfast/config.toml                   root's
    workspace   [workspaces."<id>"] in the user's file      the user's own, for one workspace
    user        $XDG_CONFIG_HOME/holdfast/config.toml       the user's own
    project     holdfast.toml in the workspace              came with the repository: untrusted

Invariants
  CF1  A file that is there and cannot be read, understood or trusted is an error; nothing runs on half a configuration.
  CF2  Unknown keys are errors, in every table.
  CF3  The project names checks, hints, hidden paths and tighter policy, and nothing else: whatever starts a program
       outside the sandbox, gives network, sets a limit, names a person or an agent, or starts a run is refused there.
  CF4  Where managed and user both speak, managed wins; limits are the lower of both.
  CF5  A trusted file belongs to its owner (root, or this user) and nobody else may write it or its directory.
  CF6  What the user says for one workspace holds there instead of what they say for all, and nowhere else. It never
       loosens what is managed. A directory is that workspace if its ledger proves it (see `store.own_settings`).

`[policy]` is passed on as decoded, layer by layer; `gates.layers` reads and combines it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from holdfast.disk.homes import config_home
from holdfast.errors import InvalidInput
from holdfast.model.agent_settings import AgentSettings, ProviderSettings, agents_in, providers_in
from holdfast.model.configuration import (
    BUILD_NETWORKS,
    CHECKPOINTS,
    GUESSED,
    OUTAGE_MS,
    UNSANDBOXED,
    UNVERIFIED,
    WEBHOOK_PORT,
    Budget,
    Checkpoint,
    CheckSettings,
    EnvironmentSettings,
    Guessed,
    Origin,
    ProgramLimits,
    PromptSettings,
    RunSettings,
    ServiceSettings,
    Settings,
    Unsandboxed,
    Unverified,
)
from holdfast.model.path import person_folded, printable
from holdfast.model.tables import Layer, Source, Table
from holdfast.model.trigger_settings import TriggerSettings, triggers_in

MANAGED_FILE = "/etc/holdfast/config.toml"
PROJECT_FILE = "holdfast.toml"
MOST_BYTES = 1_000_000

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_TRUSTED_ONLY = (
    "approvers", "me", "sandbox", "limits", "run", "agents", "providers", "services", "environment", "triggers",
    "prompt", "workspaces",
)  # fmt: skip
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


class Whose(NamedTuple):
    """Which workspace the settings are for. Asked only where the user's file has sections for single workspaces."""

    # Empty: none.
    id: Callable[[], str] = lambda: ""
    # Every id that this user has; None: nobody knows, and no id is taken for a typing error.
    known: Callable[[], Collection[str]] | None = None
    # An error where the directory only claims the id. Asked before a section is used.
    vouch: Callable[[], None] = lambda: None


NO_WORKSPACE = Whose()


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
    branch: str | None
    unverified: Unverified | None
    outage_ms: int | None
    guessed: Guessed | None
    agents: tuple[AgentSettings, ...]
    providers: tuple[ProviderSettings, ...]
    services: tuple[ServiceSettings, ...]
    environment: EnvironmentSettings
    prompt: tuple[bool | None, ...]
    triggers: tuple[TriggerSettings, ...]


def places_of(workspace: str) -> Places:
    """The three files for one workspace, on this host, for this user."""
    return Places(MANAGED_FILE, os.path.join(config_home(), "config.toml"), os.path.join(workspace, PROJECT_FILE))


def load(places: Places, whose: Whose = NO_WORKSPACE) -> Settings:
    """The settings in force, or InvalidInput with the file, the table and the key."""
    return _combined(_layers(places, whose))


def load_each(places: Places, whose: Whose = NO_WORKSPACE) -> tuple[tuple[Source, Settings], ...]:
    """What each layer says by itself, the most trusted first."""
    return tuple((said.source, _combined([said])) for said in _layers(places, whose))


def _layers(places: Places, whose: Whose) -> list[_Said]:
    files: tuple[tuple[Layer, str, int | None], ...] = (
        ("managed", places.managed, places.managed_owner),
        ("user", places.user, os.geteuid()),
        ("project", places.project, None),
    )
    found = []
    for layer, path, owner in files:
        values = _read(path, owner) if path else None
        if values is None:
            continue
        if layer == "user" and "workspaces" in values:
            found += _own(path, values, whose)
            values = {table: said for table, said in values.items() if table != "workspaces"}
        found.append(_said(Source(layer, path, values)))
    return found


def _own(path: str, values: Mapping[str, object], whose: Whose) -> list[_Said]:
    """The section for this workspace, if there is one; the sections for others are read too, and their errors told."""
    table = _section(Table({"workspaces": values["workspaces"]}, printable(path)), "workspaces")
    said = {id: _said(_section_of(table, id, path)) for id in table.keys}
    known = said if whose.known is None else whose.known()
    for id in said:
        if id not in known:
            table.refuse(id, "is no workspace of yours", hint="What it is called, and where: holdfast status")
    this = whose.id()
    if this not in said:
        return []
    whose.vouch()
    return [said[this]]


def _section_of(table: Table, id: str, path: str) -> Source:
    return Source("workspace", f'{path} [workspaces."{printable(id)}"]', _section(table, id).values)


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
    if "workspaces" in top:
        top.refuse("workspaces", "stands only in the user's own configuration, and not in itself")
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
        me=name.strip() if name else None,
        unsandboxed=sandbox.choice("without", UNSANDBOXED),
        parallel=run.integer("parallel", least=1),
        checkpoint=run.choice("checkpoint", CHECKPOINTS),
        budget=_budget(_section(run, "budget")),
        workspaces=tuple(_workspaces(_section(run, "workspaces"))),
        webhook_port=_port(run, "webhook_port"),
        branch=run.text("branch"),
        unverified=run.choice("unverified", UNVERIFIED),
        outage_ms=run.duration_ms("outage"),
        guessed=run.choice("guessed", GUESSED),
        agents=tuple(agents_in(agents, lambda table: _limits(table, close=False))),
        providers=tuple(providers_in(_section(top, "providers"))),
        services=tuple(_services(_section(top, "services"))),
        environment=_environment(_section(top, "environment")),
        prompt=_prompt(_section(top, "prompt")),
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


def _services(table: Table) -> Iterator[ServiceSettings]:
    for name in table.keys:
        service = _section(table, name)
        said = ServiceSettings(name, service.command("start") or (), service.text("health") or "")
        if not said.start and ("start" in service or not said.health):
            service.refuse("start", "must be a command: a list of words")
        yield said
        service.close()


def _environment(table: Table) -> EnvironmentSettings:
    readable = table.texts("readable") or ()
    for path in readable:
        if not os.path.isabs(path):
            table.refuse("readable", f"must be absolute paths, not {path!r}")
    build, network = table.command("build") or (), table.choice("build_network", BUILD_NETWORKS)
    table.close()
    return EnvironmentSettings(tuple(map(os.path.normpath, readable)), build, network)


def _prompt(table: Table) -> tuple[bool | None, ...]:
    """Part by part, in the order of the fields."""
    said = tuple(table.flag(part) for part in PromptSettings._fields)
    table.close()
    return said


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


def _combined(layers: Sequence[_Said]) -> Settings:
    said = _without_the_general(layers)
    _refuse_added_approvers(said)
    agents = {agent.name: agent for layer in reversed(said) for agent in layer.agents}
    services = {service.name: service for layer in reversed(said) for service in layer.services}
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
            branch=_first([layer.branch for layer in said], ""),
            unverified=_first([layer.unverified for layer in said], "ask"),
            outage_ms=_first([layer.outage_ms for layer in said], OUTAGE_MS),
            guessed=_first([layer.guessed for layer in said], "ask"),
        ),
        agents=tuple(agents[name] for name in sorted(agents)),
        providers=tuple(providers[name] for name in sorted(providers)),
        services=tuple(services[name] for name in sorted(services)),
        environment=EnvironmentSettings(
            _joined(layer.environment.readable for layer in said),
            next((layer.environment.build for layer in said if layer.environment.build), ()),
            _first([layer.environment.build_network for layer in said], None),
        ),
        prompt=PromptSettings(*(_first(part, True) for part in zip(*(layer.prompt for layer in said), strict=True))),
        triggers=tuple(triggers[name] for name in sorted(triggers)),
        origins=tuple(origin for layer in said for origin in _origins(layer.source)),
    )


def _without_the_general(said: Sequence[_Said]) -> list[_Said]:
    """Where layers are bound by each other, the user is one: what they say of this workspace replaces what they say
    of all (CF6). Everything else follows from the order of the layers."""
    own = next((layer for layer in said if layer.source.layer == "workspace"), None)
    return [_replaced(layer, own) if own and layer.source.layer == "user" else layer for layer in said]


def _replaced(general: _Said, own: _Said) -> _Said:
    checks, mine = general.checks, own.checks
    return general._replace(
        limits=ProgramLimits(*_unless_said(general.limits, own.limits)),
        budget=Budget(*_unless_said(general.budget, own.budget)),
        checks=checks._replace(
            coverage=None if mine.coverage is not None else checks.coverage,
            failures=None if mine.failures is not None else checks.failures,
            time_ms=None if mine.time_ms is not None else checks.time_ms,
        ),
        approvers=() if own.approvers else general.approvers,
    )


def _unless_said(general: Iterable[int | None], own: Iterable[int | None]) -> list[int | None]:
    return [old if new is None else None for old, new in zip(general, own, strict=True)]


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
