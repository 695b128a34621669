"""Agents as nouns: what one is asked, what it says it did, and what was measured beside it.

    Request ──agent in a sandboxed shadow──▶ Result(Claim, measured Usage) ──capture, checks──▶ Attempt ──▶ Delegation

Invariant B1: nothing in a Claim is evidence. What changed is known from capture, what was spent from the proxy,
whether it works from receipts; a claim is stored beside them, so that everybody can compare.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from holdfast.model.execution import Receipt

# What an agent can do, as far as routing and the live view care.
Capability = Literal["edit", "shell", "resume", "permission", "usage", "offline", "person"]
CAPABILITIES: tuple[Capability, ...] = ("edit", "shell", "resume", "permission", "usage", "offline", "person")
# The wire on which a program asks its model.
Api = Literal["openai", "responses", "anthropic", "gemini"]
APIS: tuple[Api, ...] = ("openai", "responses", "anthropic", "gemini")
# How the work of an agent ended, as we saw it. `limit`: Result.limit names which.
Ending = Literal["finished", "failed", "unauthorized", "model_error", "limit", "killed"]


class Usage(NamedTuple):
    """Tokens and money; `micro_usd` is None where no price is known."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    micro_usd: int | None = 0

    def plus(self, other: Usage) -> Usage:
        money = None if self.micro_usd is None or other.micro_usd is None else self.micro_usd + other.micro_usd
        return Usage(
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            money,
        )

    def since(self, before: Usage) -> Usage:
        """What was used after that."""
        money = None if self.micro_usd is None or before.micro_usd is None else self.micro_usd - before.micro_usd
        return Usage(
            self.requests - before.requests,
            self.input_tokens - before.input_tokens,
            self.output_tokens - before.output_tokens,
            money,
        )


class Request(NamedTuple):
    """One task for one agent. Nothing here is secret: it is written into files the agent can read."""

    task: str
    # What helps to do it: hints of the project, the surroundings of the task. Untrusted text, quoted as such.
    context: str = ""
    # Files worth looking at, and files that must exist afterwards; relative to the workspace.
    files: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    # The commands that check the work, and what they print of failures before it begins.
    checks: tuple[str, ...] = ()
    failing: str = ""
    # A short map of the repository, where no file is named; what its own files say to agents; both untrusted.
    outline: str = ""
    conventions: str = ""
    # What the policy forbids this agent to change.
    protected: tuple[str, ...] = ()
    # What was measured after the attempt before: failed checks, missing files. Empty at the first one.
    evidence: str = ""
    # The session of the attempt before, for agents that can resume one.
    session: str = ""
    # The model by the name its provider knows; empty leaves the agent's default.
    model: str = ""
    turns: int = 0
    # How often the newest attempts came to the same change for the same reason: something must be done otherwise.
    repeats: int = 0


class Claim(NamedTuple):
    """What the agent says of its work. Bounded in size, escaped where shown, and never believed (B1)."""

    words: str = ""
    success: bool | None = None
    error: str = ""
    session: str = ""
    stopped_because: str = ""
    usage: Usage | None = None
    tool_calls: int = 0


class Result(NamedTuple):
    """One run of one agent: its claim, and what we saw ourselves."""

    agent: str
    transport: str
    ending: Ending
    claim: Claim
    # Why it did not finish, in our words; empty when it did.
    detail: str = ""
    limit: str = ""
    exit_code: int | None = None
    signal: int | None = None
    duration_ms: int = 0
    # Counted by the proxy; zero for agents that used no model of ours.
    usage: Usage = Usage()
    # Digest of the kept transcript, secrets masked.
    transcript: str = ""
    enforced: tuple[str, ...] = ()
    left_behind: int = 0


class AdapterResult(NamedTuple):
    """What one call of a tool came to, under the names that other tools use. `success` is measured, never claimed.

    `output` is what the tool said or printed; `artifacts` are the files it made or changed.
    """

    success: bool
    output: str
    error: str
    duration_ms: int
    artifacts: tuple[str, ...] = ()


class Attempt(NamedTuple):
    """A run and what was found afterwards. `evidence` is why the work is not good."""

    number: int
    result: Result
    # What this task has changed so far, not only this attempt; earlier steps of the plan are left out.
    changed: tuple[str, ...]
    missing: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    evidence: str = ""
    # What the task names and the change lacks, a sentence each: a reason to ask, not to refuse.
    unmet: tuple[str, ...] = ()
    # Caches, and what the repository ignores: made, and not landed.
    left_out: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        """Something changed, nothing expected is missing, and every check passed: measured, not claimed."""
        return not self.evidence

    @property
    def complete(self) -> bool:
        """Good, and nothing of what the task names was found lacking."""
        return self.good and not self.unmet

    @property
    def feedback(self) -> str:
        """What the agent is told if it tries again; empty for complete work."""
        lacks = "\n".join(("The change is not what the task asks for yet:", *(f"- {one}" for one in self.unmet)))
        return "\n\n".join(filter(None, (self.evidence, lacks if self.unmet else "")))

    def adapter_result(self) -> AdapterResult:
        result = self.result
        error = result.detail or result.claim.error or self.evidence
        return AdapterResult(
            self.good, result.claim.words, "" if self.good else error, result.duration_ms, self.changed
        )


class Delegation(NamedTuple):
    """All attempts at one task."""

    agent: str
    task: str
    attempts: tuple[Attempt, ...]
    # Digest of what was asked of its model and answered, as the proxy saw it, secrets masked; empty without a model.
    asked: str = ""

    @property
    def good(self) -> bool:
        return bool(self.attempts) and self.attempts[-1].good

    @property
    def usage(self) -> Usage:
        total = Usage()
        for attempt in self.attempts:
            total = total.plus(attempt.result.usage)
        return total


# ── what a person watching sees, as it happens ──


class Said(NamedTuple):
    """A piece of what the agent says."""

    text: str
    kind: Literal["said"] = "said"


class Used(NamedTuple):
    """A tool call, when it begins and when it ends."""

    call: str
    title: str
    status: Literal["begun", "done", "failed"]
    paths: tuple[str, ...] = ()
    kind: Literal["used"] = "used"


class Asked(NamedTuple):
    """A permission the agent asked for, and the answer that policy gave."""

    title: str
    answer: Literal["allowed", "denied"]
    kind: Literal["asked"] = "asked"


class Spent(NamedTuple):
    """The running total, as the proxy counts it."""

    usage: Usage
    kind: Literal["spent"] = "spent"


class Began(NamedTuple):
    """A new attempt, and why the one before it was not enough."""

    agent: str
    attempt: int
    because: str = ""
    kind: Literal["began"] = "began"


class Escalated(NamedTuple):
    """Something about the agent that a person should hear of without having asked, in our words."""

    text: str
    kind: Literal["escalated"] = "escalated"


Happening: TypeAlias = Said | Used | Asked | Spent | Began | Escalated


def fields_of(happening: Happening) -> dict[str, object]:
    """As an object of plain values, for a stream of events or a transcript."""
    fields: dict[str, object] = dict(happening._asdict())
    if isinstance(happening, Spent):
        fields["usage"] = happening.usage._asdict()
    return fields


def reworded(happening: Happening, word: Callable[[str], str]) -> Happening:
    """With other words in place of what an agent said, such as masked ones."""
    match happening:
        case Said() | Escalated():
            return happening._replace(text=word(happening.text))
        case Used():
            return happening._replace(title=word(happening.title), paths=tuple(map(word, happening.paths)))
        case Asked():
            return happening._replace(title=word(happening.title))
        case Began() | Spent():
            return happening
