"""Recovery: what an attempt that did not land came to, and what is done next. Two tables; no model, no clock.

    Seen ──diagnosis_of──▶ Diagnosis ──strategy_for(tried, policy, means)──▶ Choice

Invariants
  V1  What a gate, policy or a person must settle is never tried again: that would be a way around them. Also what may
      have changed the workspace, and what we do not know at all.
  V2  A strategy that was used against a failure, and the failure is back unchanged, is not used against it again.
      The same words to another agent are another strategy.
  V3  Never more than `attempts` attempts, whatever fails; then a person is needed, or an optional task is skipped.
  V4  Every code of an error has a row, every category has a ladder, every ladder ends.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from holdfast.errors import AgentFailed, HoldfastError
from holdfast.model.execution import Receipt
from holdfast.model.fix import Category, Failure
from holdfast.model.path import parent_of, printable
from holdfast.model.run import Adaptive, OnTaskFailure, RecoveryApproval
from holdfast.model.task import Strategy, Task, TaskState, Tried
from holdfast.planning.failures import understood

BUDGET, TIME = "budget", "time"
_RETRY_MS, _LONGEST_RETRY_MS = 1_000, 60_000
_DEFER_MS, _LONGEST_DEFER_MS = 60_000, 3_600_000
_COMPARED = 4_000
_CHANGING = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,64}\b|\d+(?:\.\d+)?|/tmp/\S+")
_OPTIONAL = re.compile(r"(?i)\boptional\b|\bnice[ -]to[ -]have\b|\bcould[ -]have\b")


class Seen(NamedTuple):
    """An attempt that did not land: the error it ended with, and what was measured."""

    code: str
    message: str = ""
    # The agent, its model or its key failed, and not its work.
    ill: bool = False
    # The limit that ended it, as the sandbox or the proxy names it.
    limit: str = ""
    # What the agent changed in its shadow, and what was asked for and is not there.
    changed: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    failures: tuple[Failure, ...] = ()
    evidence: str = ""
    agent: str = ""
    # The workspace itself was changed: nothing more is done without a person.
    landed: bool = False


class Diagnosis(NamedTuple):
    """`final`: another attempt is no answer to it (V1)."""

    category: Category
    because: str
    evidence: str = ""
    final: bool = False
    agent: str = ""


class RecoveryPolicy(NamedTuple):
    """`approval`: auto does it and it is told, for which log is another word; ask waits for a person, as does the last
    for a split only."""

    mode: Adaptive = "auto"
    approval: RecoveryApproval = "auto"
    attempts: int = 3
    on_failure: OnTaskFailure = "continue"


class Means(NamedTuple):
    """What can be done with this task: the parts it falls into, the agents it may have, whether it may be left out."""

    parts: int = 0
    agents: tuple[str, ...] = ()
    optional: bool = False


_NO_MEANS = Means()


class Choice(NamedTuple):
    strategy: Strategy
    reason: str
    # A person decides whether it is done.
    ask: bool = False
    # The longest pause before it; who waits may draw a shorter one.
    wait_ms: int = 0
    # Another agent takes it; empty leaves the one before.
    agent: str = ""
    # Nothing new is started any more.
    stop: bool = False
    state: TaskState = "PENDING"


def seen_in(error: HoldfastError) -> Seen:
    ill = isinstance(error, AgentFailed) and error.ill
    return Seen(error.code, error.message, ill, evidence=error.message, landed=error.changed)


# ── what it was ──


class _Row(NamedTuple):
    """Without a category, what was measured decides; `otherwise` where that says nothing."""

    category: Category | None
    why_final: str = ""
    otherwise: Category = "unknown"


_GATE = "nothing is tried around a gate"
_SETUP = "what was asked, or how it is set up, must be put right first"
_DAMAGE = "a person must look before anything else happens"
CODES: dict[str, _Row] = {
    "internal": _Row(None),
    "invalid_input": _Row("unknown", _SETUP),
    "invalid_path": _Row("wrong path"),
    "invalid_change_file": _Row("unknown", _SETUP),
    "not_a_workspace": _Row("environment", _SETUP),
    "unknown_id": _Row("unknown", _SETUP),
    "unsupported": _Row("environment", _SETUP),
    "approval_needed": _Row("unknown", _GATE),
    "denied": _Row("unknown", _GATE),
    "blocked": _Row(None, _GATE),
    "sandbox_unavailable": _Row("environment"),
    "branch_lost": _Row("environment", "the branch must be there first"),
    "disk_full": _Row("environment", "there must be room on the disk first"),
    "database_away": _Row("environment"),
    "verification_failed": _Row(None, otherwise="test"),
    "needs_human": _Row("environment", _DAMAGE),
    "conflict": _Row("conflict"),
    "locked": _Row("environment"),
    "limit_reached": _Row("time-out"),
    "agent_failed": _Row(None),
    "tampering": _Row("environment", _DAMAGE),
    "state_lost": _Row("environment", _DAMAGE),
    "partly_done": _Row("environment", _DAMAGE),
    "interrupted": _Row("environment"),
}
_UNHEARD_OF = _Row("unknown", "nobody knows what that means")
# Which of several failures names the attempt: a cause comes before its effects.
_TELLING: tuple[Category, ...] = (
    "conflict", "environment", "agent error", "syntax", "import", "missing dependency", "wrong path", "type",
    "missing file", "lint", "time-out", "limit", "test", "unknown",
)  # fmt: skip


def diagnosis_of(seen: Seen) -> Diagnosis:
    row = CODES.get(seen.code, _UNHEARD_OF)
    final = row.why_final or (_DAMAGE if seen.landed else "")
    if seen.limit == BUDGET:
        final = final or "the next attempt would have the same budget"
    category, because = _measured(seen) if row.category is None else (row.category, "")
    if row.category == "time-out":
        category = _kind_of_limit(seen.limit)
    if category == "unknown" and row.category is None:
        category = row.otherwise
    because = because or _first_line(seen.message) or seen.code
    told = _told(seen.evidence, category, because)
    return Diagnosis(category, f"{because}: {final}" if final else because, told, bool(final), seen.agent)


def _told(evidence: str, category: Category, because: str) -> str:
    """What is missing says nothing about where it was made, and without that it is made there again."""
    if category != "wrong path" or because in evidence:
        return evidence
    return f"{evidence}\n{printable(because)}.".strip()


def _measured(seen: Seen) -> tuple[Category, str]:
    if seen.ill:
        return "agent error", ""
    if seen.limit:
        return _kind_of_limit(seen.limit), f"it reached its limit: {seen.limit}"
    if seen.missing:
        found = misplaced(seen.missing, seen.changed)
        if found:
            return "wrong path", "; ".join(f"{asked} was asked for, and {made} was made" for asked, made in found)
        return "missing file", f"not there: {', '.join(seen.missing)}"
    failures = seen.failures or ((understood_evidence(seen.evidence, seen.changed),) if seen.evidence else ())
    if failures:
        telling = min(failures, key=lambda failure: _TELLING.index(failure.category))
        return telling.category, telling.because
    return "unknown", ""


def _kind_of_limit(limit: str) -> Category:
    """Who was slow needs other words than who wanted too much of something else."""
    return "time-out" if limit in ("", TIME) else "limit"


def understood_evidence(evidence: str, known: Collection[str] = ()) -> Failure:
    """From the words alone, where no receipt is at hand any more. `known` are paths of the workspace; so are the places
    that the words name, and a module that stands beside them is ours, and no missing dependency."""
    said, log = Receipt(("evidence",), "verify", False, None, 0, "", "", ""), evidence.encode("utf-8", "surrogatepass")
    found = understood(said, log, known)
    named = {place.path for place in found.places}.difference(known)
    return understood(said, log, named.union(known)) if named else found


def misplaced(missing: Sequence[str], changed: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of what was asked for and what seems to have been made in its stead.

    That has the same name in another folder, or stands in the same folder with another ending.
    """
    by_name: dict[str, str] = {}
    by_stem: dict[tuple[str, str], str] = {}
    for path in sorted(set(changed) - set(missing), reverse=True):
        name = path.rpartition("/")[2].lower()
        by_name[name] = path
        by_stem[parent_of(path), name.partition(".")[0]] = path
    pairs = []
    for asked in missing:
        name = asked.rpartition("/")[2].lower()
        made = by_name.get(name) or by_stem.get((parent_of(asked), name.partition(".")[0]))
        if made is not None:
            pairs.append((asked, made))
    return tuple(pairs)


# ── what is done ──


class Rung(NamedTuple):
    strategy: Strategy
    times: int = 1
    other_agent: bool = False


_AGAIN = Rung("retry with context", 2)
_MEND = (_AGAIN, Rung("rewrite"), Rung("decompose"))
# From the least to the most; below the last rung a person is needed.
LADDERS: dict[Category, tuple[Rung, ...]] = {
    "syntax": _MEND,
    "import": _MEND,
    "type": _MEND,
    "test": _MEND,
    "lint": _MEND,
    "missing file": _MEND,
    "unknown": _MEND,
    # It says which path is meant; then the paths become the acceptance.
    "wrong path": (_AGAIN, Rung("rewrite")),
    # The same work takes the same time: told what it had done, or less of it.
    "time-out": (Rung("retry with context"), Rung("decompose")),
    # It is told what it did too much of; a smaller piece of the work needs less of it.
    "limit": (Rung("retry with context"), Rung("decompose")),
    # It is told what may be declared and where; to install is not for an agent.
    "missing dependency": (Rung("retry with context"),),
    # On the new base, with the collision; then after the others.
    "conflict": (_AGAIN, Rung("defer")),
    # What ails an agent or its model passes, or another one does it.
    "agent error": (Rung("retry", 2), Rung("retry", 9, other_agent=True), Rung("defer")),
    "environment": (Rung("defer", 2),),
}
# What only a person can bring: the task is no failure, it waits for them.
_FOR_A_PERSON: tuple[Category, ...] = ("missing dependency",)
_REASONS: dict[Strategy, str] = {
    "retry": "the same again, after a pause",
    "retry with context": "it is told what failed",
    "rewrite": "the task is restated, with what must hold at the end",
    "decompose": "it is done in parts",
    "skip": "it is optional, and the rest goes on without it",
    "defer": "it is tried again later",
    "escalate": "a person is needed",
}


def means_of(task: Task, parts: int = 0, agents: Sequence[str] = ()) -> Means:
    """Optional is what the file calls so."""
    return Means(parts, tuple(agents), bool(_OPTIONAL.search(task.priority) or "(optional)" in task.title.lower()))


def strategy_for(
    diagnosis: Diagnosis, tried: Sequence[Tried], policy: RecoveryPolicy, means: Means = _NO_MEANS
) -> Choice:
    """`tried` are the attempts before the one diagnosed, with what was decided after each."""
    what = f"{diagnosis.category}: {_first_line(diagnosis.because)}"
    if diagnosis.final:
        return _given_up("escalate", what, diagnosis, policy)
    if policy.mode == "off":
        return _given_up("escalate", f"{what}; recovery is off", diagnosis, policy)
    last: Strategy = "skip" if means.optional else "escalate"
    number = len(tried) + 1
    if number >= policy.attempts:
        of_them = f" of {policy.attempts}" if number == policy.attempts else ""  # `retry` gives one more
        return _given_up(last, f"{what}; {number}{of_them} attempts are used", diagnosis, policy)
    for rung in LADDERS[diagnosis.category]:
        agent = _other_agent(diagnosis, tried, means) if rung.other_agent else ""
        if agent if rung.other_agent else _possible(rung, diagnosis, tried, means):
            return _chosen(rung.strategy, agent, what, tried, policy)
    return _given_up(last, f"{what}; nothing is left to try against it", diagnosis, policy)


def wants_another(category: Category) -> bool:
    """Whether another agent may be the answer to it."""
    return any(rung.other_agent for rung in LADDERS[category])


def same_failure(diagnosis: Diagnosis, before: Tried) -> bool:
    """The same category and the same words, but for what differs from run to run."""
    return diagnosis.category == before.category and _bare(diagnosis.evidence) == _bare(before.evidence)


def repeats_in(tried: Sequence[Tried], agent: str) -> int:
    """How often in a row, at the end, this agent failed as it had failed before."""
    newest = [item for item in tried if item.agent == agent]
    times = 0
    for item, before in zip(reversed(newest), reversed(newest[:-1]), strict=False):
        if item.category != before.category or _bare(item.evidence) != _bare(before.evidence):
            break
        times += 1
    return times


def _possible(rung: Rung, diagnosis: Diagnosis, tried: Sequence[Tried], means: Means) -> bool:
    used = [item for item in tried if item.strategy == rung.strategy]
    if any(same_failure(diagnosis, item) for item in used):
        return False  # V2
    if rung.strategy == "decompose":
        return means.parts > 1 and not used
    return sum(item.category == diagnosis.category for item in used) < rung.times


def _other_agent(diagnosis: Diagnosis, tried: Sequence[Tried], means: Means) -> str:
    had = {diagnosis.agent, *(item.agent for item in tried)}
    return next((agent for agent in means.agents if agent not in had), "")


def _chosen(strategy: Strategy, agent: str, what: str, tried: Sequence[Tried], policy: RecoveryPolicy) -> Choice:
    reason = f"{what}; {agent} takes it" if agent else f"{what}; {_REASONS[strategy]}"
    ask = _asks(strategy, policy)
    state: TaskState = "NEEDS_REVIEW" if ask else "DEFERRED" if strategy == "defer" else "PENDING"
    wait_ms = 0 if agent else _wait_ms(strategy, sum(item.strategy == strategy for item in tried))
    return Choice(strategy, reason, ask, wait_ms, agent, state=state)


def _given_up(strategy: Strategy, what: str, diagnosis: Diagnosis, policy: RecoveryPolicy) -> Choice:
    """To escalate is to ask already; to skip is a recovery like others."""
    ask = strategy == "skip" and _asks(strategy, policy)
    waits = diagnosis.final or diagnosis.category in _FOR_A_PERSON
    failed: TaskState = "TIMEOUT" if diagnosis.category == "time-out" else "FAILED"
    state: TaskState = "SKIPPED" if strategy == "skip" else "NEEDS_REVIEW" if waits else failed
    return Choice(
        strategy,
        f"{what}; {_REASONS[strategy]}",
        ask,
        stop=strategy == "escalate" and policy.on_failure == "stop",
        state="NEEDS_REVIEW" if ask else state,
    )


def _asks(strategy: Strategy, policy: RecoveryPolicy) -> bool:
    if policy.mode == "suggest" or policy.approval == "ask":
        return True
    return policy.approval == "ask for decompose" and strategy == "decompose"


def _wait_ms(strategy: Strategy, before: int) -> int:
    """Doubled for each time before; beyond twenty doublings it is the longest anyway."""
    if strategy == "retry":
        return min(_RETRY_MS << min(before, 20), _LONGEST_RETRY_MS)
    return min(_DEFER_MS << min(before, 20), _LONGEST_DEFER_MS) if strategy == "defer" else 0


def _bare(evidence: str) -> str:
    return " ".join(_CHANGING.sub("#", evidence[:_COMPARED].lower()).split())


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
