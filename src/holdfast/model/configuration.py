"""What configuration says, frozen. `settings` reads it; everybody else only holds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from holdfast.model.tables import Layer, Source

if TYPE_CHECKING:  # it stands on the words of this module
    from holdfast.model.agent_settings import AgentSettings, ProviderSettings
    from holdfast.model.trigger_settings import TriggerSettings

Transport = Literal["acp", "headless", "api", "command"]
Network = Literal["none", "loopback", "proxy", "full"]
BuildNetwork = Literal["none", "full"]
Checkpoint = Literal["git", "none"]
Unsandboxed = Literal["refuse", "allow"]
Unverified = Literal["ask", "land"]
Guessed = Literal["ask", "take"]
TRANSPORTS: tuple[Transport, ...] = ("acp", "headless", "api", "command")
NETWORKS: tuple[Network, ...] = ("none", "loopback", "proxy", "full")
BUILD_NETWORKS: tuple[BuildNetwork, ...] = ("none", "full")
CHECKPOINTS: tuple[Checkpoint, ...] = ("git", "none")
UNSANDBOXED: tuple[Unsandboxed, ...] = ("refuse", "allow")
UNVERIFIED: tuple[Unverified, ...] = ("ask", "land")
GUESSED: tuple[Guessed, ...] = ("ask", "take")


class ProgramLimits(NamedTuple):
    """For programs run in the sandbox; None leaves the sandbox's own default."""

    time_ms: int | None = None
    output_bytes: int | None = None
    memory_bytes: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None
    open_files: int | None = None


class CheckSettings(NamedTuple):
    """Besides what is detected. `coverage` is a percentage, `failures` the most that pass; None asks for nothing.

    `of_the_project` are those of `run` that only the project's file names: they must pass, and prove nothing.
    """

    run: tuple[tuple[str, ...], ...] = ()
    detect: bool = True
    coverage: int | None = None
    failures: int | None = None
    required: tuple[str, ...] = ()
    time_ms: int | None = None
    of_the_project: tuple[tuple[str, ...], ...] = ()

    @property
    def asks(self) -> bool:
        """Does it want something checked, whatever a plan says? A required test or a coverage is asking for tests."""
        return bool(self.run or self.required) or self.coverage is not None


class Budget(NamedTuple):
    """Money in millionths of a dollar; None is no limit."""

    micro_usd: int | None = None
    time_ms: int | None = None
    tokens: int | None = None
    turns: int | None = None

    def with_said(self, said: Budget) -> Budget:
        """What somebody says counts; what they do not say stays."""
        return Budget(*(mine if new is None else new for mine, new in zip(self, said, strict=True)))


WEBHOOK_PORT = 4653


OUTAGE_MS = 1_800_000


class RunSettings(NamedTuple):
    parallel: int = 1
    # None: git inside a repository, nothing elsewhere.
    checkpoint: Checkpoint | None = None
    budget: Budget = Budget()
    # Other workspaces by the names that roadmaps know them by: (name, directory).
    workspaces: tuple[tuple[str, str], ...] = ()
    # On loopback, where triggers have webhooks.
    webhook_port: int = WEBHOOK_PORT
    # Where `run` lands if nothing else is said; empty is what is checked out.
    branch: str = ""
    # What becomes of work that no check says works: a person is asked, or it lands as policy lets it.
    unverified: Unverified = "ask"
    # How long a provider that serves nothing is waited for, before the run stops.
    outage_ms: int = OUTAGE_MS
    # What becomes of a roadmap whose tasks do not say themselves that they are some: a person is asked, or they are.
    guessed: Guessed = "ask"


class PromptSettings(NamedTuple):
    """What an agent is told besides its task, part by part."""

    checks: bool = True
    failing: bool = True
    files: bool = True
    map: bool = True
    conventions: bool = True
    protected: bool = True


class EnvironmentSettings(NamedTuple):
    """`readable`: absolute paths that programs in the sandbox may read besides what is found, such as the source of a
    package that is installed from elsewhere. `build`: the command that installs what a project says it needs, and
    `build_network` what it may reach; None is nothing."""

    readable: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    build_network: BuildNetwork | None = None


class ServiceSettings(NamedTuple):
    """A service by its name. With `start` it is a plain process; without, it is systemd's.

    `health`: in plain words, what shows that it works; for plans that act on it and name no health check.
    """

    name: str
    start: tuple[str, ...] = ()
    health: str = ""


class Origin(NamedTuple):
    """One key as one file states it; what no file states is the default."""

    key: str
    layer: Layer
    file: str


@dataclass(frozen=True, slots=True)
class Settings:
    # Never visible in a shadow.
    hidden: tuple[str, ...] = ()
    # Ignored paths that land all the same.
    keep: tuple[str, ...] = ()
    checks: CheckSettings = field(default_factory=CheckSettings)
    hints: tuple[str, ...] = ()
    # The [policy] tables as decoded, one a layer.
    policy: tuple[Source, ...] = ()
    # (name, hex of the public key)
    approvers: tuple[tuple[str, str], ...] = ()
    # Who this user is among the approvers; empty is the login name.
    me: str = ""
    # Where nothing can isolate a program: refuse to run it, or run it all the same.
    unsandboxed: Unsandboxed = "refuse"
    limits: ProgramLimits = field(default_factory=ProgramLimits)
    run: RunSettings = field(default_factory=RunSettings)
    agents: tuple[AgentSettings, ...] = ()
    providers: tuple[ProviderSettings, ...] = ()
    services: tuple[ServiceSettings, ...] = ()
    environment: EnvironmentSettings = field(default_factory=EnvironmentSettings)
    prompt: PromptSettings = field(default_factory=PromptSettings)
    # What starts runs without a person at the keyboard.
    triggers: tuple[TriggerSettings, ...] = ()
    # Every key that some file states, the most trusted file first.
    origins: tuple[Origin, ...] = ()

    @property
    def approver_keys(self) -> Mapping[str, str]:
        return dict(self.approvers)

    def agent(self, name: str) -> AgentSettings | None:
        return next((agent for agent in self.agents if agent.name == name), None)

    def provider(self, name: str) -> ProviderSettings | None:
        return next((provider for provider in self.providers if provider.name == name), None)
