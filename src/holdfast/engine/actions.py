"""The service actions of one execution: performed after the files, taken back after them, also after a crash.

    plan ─▶ actions ─▶ header of the log, durable before the first path moves ─▶ performed, fact by fact (`effects`)
                             └─▶ recovery and undo read them there; the ledger vouches for the log

An undo takes away what the executions that go did, newest first, and has again what those that return did.
Only plans have actions of their own; what an undo did is told by which executions stand after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from holdfast.errors import HoldfastError, NeedsHuman, Tampering, VerificationFailed
from holdfast.execution.services import Action, Deed, Host, Program, Returned, perform_all, take_back_all
from holdfast.model.canonical import Json
from holdfast.model.configuration import Settings
from holdfast.model.execution import Divergence
from holdfast.model.plan import Plan, Service, described, worded
from holdfast.model.saved_plan import step_from
from holdfast.sandbox.process import DEFAULT_PATH
from holdfast.store.effects import Effects
from holdfast.store.running import Running
from holdfast.workspace.recovery import Unsettled, leave
from holdfast.workspace.site import JOURNAL, KEPT, Site
from holdfast.workspace.turns import Past

_SYSTEMD = "/run/systemd/system"
HEADER = "services"
_AGAIN = "Put right what is in its way and run 'holdfast recover', or leave it so with 'holdfast recover --accept'."
_BY_HAND = "Not all of that can be taken back: put it right by hand, and close it with 'holdfast recover --accept'."


class ServiceActions:
    """What a transaction does outside the files; see `execution.carry_out.Actions`."""

    def __init__(self, site: Site, txn: str, actions: Sequence[Action], on_failure: str, settings: Settings) -> None:
        self._site = site
        self._txn = txn
        self._actions = named(actions, txn)
        self._on_failure = on_failure
        self._host = host_of(site, settings)
        self.deeds: list[Deed] = []

    def perform(self) -> tuple[str, ...]:
        try:
            with _effects(self._site, f"{JOURNAL}/{self._txn}") as effects:
                perform_all(self._host, effects, self._actions, self._on_failure, self.deeds.append)
        except OSError as error:
            # Nothing is done that is not known: what cannot be noted is not begun.
            raise VerificationFailed(f"the service actions could not be noted: {error}") from error
        return tuple(deed.failure for deed in self.deeds if deed.failure)

    def take_back(self, *, files_settled: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What was done, and what stands, in words; never raises, since whoever asks is on the way back already."""
        try:
            with _effects(self._site, f"{JOURNAL}/{self._txn}") as effects:
                done, stands = take_back_all(
                    self._host, effects, self._actions, self._note_return, files_settled=files_settled
                )
        except (OSError, HoldfastError) as error:
            return (), (f"what was done outside the files may stand: {error}",)
        return done, tuple(item.sentence for item in stands)

    def _note_return(self, returned: Returned) -> None:
        """Each action that was reached has its deed, in order; and one that is taken back had been begun."""
        _, taken_back, stands = returned
        deed = self.deeds[returned.number]
        self.deeds[returned.number] = deed._replace(is_begun=True, taken_back=taken_back, stands=stands)


def host_of(site: Site, settings: Settings) -> Host:
    programs = {service.name: Program(service.name, service.start) for service in settings.services if service.start}
    return Host(Running(site.state), site.path, programs, systemctl())


def systemctl() -> str:
    """Where systemd is in charge, the program to ask it with; otherwise nothing."""
    if not os.path.isdir(_SYSTEMD):
        return ""
    candidates = (os.path.join(folder, "systemctl") for folder in DEFAULT_PATH.split(":"))
    return next((path for path in candidates if os.access(path, os.X_OK)), "")


def actions_of(plan: Plan) -> tuple[Action, ...]:
    """Of a plan; each gets its name from the execution that does it first (`named`)."""
    return tuple(Action(service, "") for service in services_of(plan))


def services_of(plan: Plan) -> tuple[Service, ...]:
    return tuple(step for step in plan.steps if isinstance(step, Service))


def named(actions: Sequence[Action], txn: str) -> tuple[Action, ...]:
    return tuple(
        action if action.origin else action._replace(origin=f"{txn}-{number}") for number, action in enumerate(actions)
    )


def in_header(actions: Sequence[Action]) -> dict[str, Json]:
    """For the header of the log: nothing when there are none."""
    rows: list[Json] = [
        {"step": _json(described(a.service)), "origin": a.origin, "back": a.back, "ran": a.ran} for a in actions
    ]
    return {HEADER: rows} if rows else {}


def from_header(header: Mapping[str, Json], txn: str) -> tuple[Action, ...]:
    """The actions that a log announces, or Tampering."""
    rows = header.get(HEADER, [])
    try:
        return named([_action(row) for row in rows], txn)  # type: ignore[union-attr]
    except (KeyError, TypeError, AttributeError) as error:
        raise Tampering(f"the service actions of {txn} are not ones of ours: {error!r}") from error


def take_back_after_crash(
    site: Site, found: Unsettled, settings: Callable[[], Settings], is_recorded: Callable[[], bool], *, accepted: bool
) -> Unsettled:
    """Run the compensations that a crash left open. NeedsHuman for what stands, unless a person leaves it so.

    What the ledger knows already was told by whoever wrote it.
    """
    actions = from_header(found.header, found.txn)
    if not actions or found.outcome == "COMMITTED":
        return found
    with _effects(site, f"{JOURNAL}/{found.txn}") as effects:
        if not effects.standing(len(actions)) or is_recorded():
            return found
        done, stands = take_back_all(host_of(site, settings()), effects, actions)
    found = found._replace(taken_back=done)
    if not stands:
        return found
    if accepted or found.outcome == "LEFT":
        return leave(site, found, [Divergence(item.what, item.why) for item in stands])
    raise NeedsHuman(
        f"{found.txn} is not settled: its files are as before, but {'; '.join(item.sentence for item in stands)}",
        hint=_BY_HAND if any(item.is_final for item in stands) else _AGAIN,
        changed=True,
    )


def taken_away(site: Site, past: Past) -> tuple[list[Action], list[Divergence]]:
    """What an undo of this execution has to do, newest first, and what it cannot take back."""
    back: list[Action] = []
    left: list[Divergence] = []
    for standing in _standing(site, past):
        if standing.action.is_final:
            how = "was done and" if standing.done else "was begun and failed; what it did, if anything,"
            left.append(Divergence(worded(standing.action.service.effect), f"{how} cannot be taken back; it stays"))
        else:
            back.append(standing.action._replace(back=True, ran=standing.ran))
    return back, left


def had_again(site: Site, past: Past) -> list[Action]:
    """What has to be done again when this execution returns, in order."""
    return [standing.action for standing in reversed(_standing(site, past))]


class _Standing(NamedTuple):
    """`ran`: did the service run before? `done`: a failed one may have had its effect, and nobody knows."""

    action: Action
    ran: bool | None
    done: bool


def _standing(site: Site, past: Past) -> list[_Standing]:
    """What a finished execution did outside the files, newest first."""
    actions = from_header(past.log.header, past.txn)
    if not actions:
        return []
    with _effects(site, f"{KEPT}/{past.txn}") as effects:
        standing = effects.standing(len(actions))
        is_known = bool(standing) or effects.has_facts()
        done = effects.done_numbers()
    if not is_known:
        raise Tampering(f"what {past.txn} did outside the files is no longer known", hint="Nothing was changed.")
    return [_Standing(actions[item.number], item.ran, item.number in done) for item in standing]


@contextmanager
def _effects(site: Site, folder: str) -> Iterator[Effects]:
    directory = site.state.open_directory(folder)
    try:
        yield Effects(site.calls, directory)
    finally:
        site.calls.close(directory)


def _action(row: Any) -> Action:
    step, ran = step_from(row["step"]), row["ran"]
    if not isinstance(step, Service) or not isinstance(row["origin"], str):
        raise TypeError("another step")
    return Action(step, row["origin"], row["back"] is True, ran if isinstance(ran, bool) else None)


def _json(value: object) -> Json:
    """Named tuples and tuples as JSON has them."""
    if isinstance(value, dict):
        return {str(key): _json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    return value if value is None or isinstance(value, (bool, int)) else str(value)
