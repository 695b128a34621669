"""What `doctor` says about keys and people: which are there, whose they are, and what a colleague needs to know."""

from __future__ import annotations

import json
import os
import re
from typing import NamedTuple

from holdfast.cli.reports import Report
from holdfast.cli.words import count
from holdfast.errors import HoldfastError
from holdfast.gates.approvals import Office, electorate_of
from holdfast.gates.policy import Policy
from holdfast.model.configuration import Settings
from holdfast.model.path import printable
from holdfast.store.keys import key_path, load_key
from holdfast.store.signing import load_signer, signing_key_path
from holdfast.wiring import user

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class Keys(NamedTuple):
    """`public` is empty where there is no signing key yet, or it cannot be trusted."""

    reports: tuple[Report, ...]
    public: str

    def document(self, settings: Settings | None) -> dict[str, object]:
        me = (settings.me if settings is not None else "") or user()
        return {"ledger": key_path(), "signing": signing_key_path(), "public": self.public, "me": me}


def keys() -> Keys:
    signing, public = _signing_key()
    return Keys((_ledger_key(), signing), public)


def _ledger_key() -> Report:
    path = key_path()
    if not os.path.lexists(path):
        return Report("Ledger key", "none yet; made by: holdfast init", None)
    try:
        load_key(path)
    except HoldfastError as error:
        return Report("Ledger key", error.message, False, needed=True)
    return Report("Ledger key", f"{printable(path)}, yours alone", True)


def _signing_key() -> tuple[Report, str]:
    path = signing_key_path()
    if not os.path.lexists(path):
        return Report("Signing key", "none yet; it is made when you first approve something", None), ""
    try:
        public = load_signer(path).public
    except HoldfastError as error:
        return Report("Signing key", error.message, False, needed=True), ""
    return Report("Signing key", f"{printable(path)}, yours alone", True), public


def people(settings: Settings, policy: Policy, public: str) -> Report:
    """Who may approve, whether this user is one of them, and whether they are as many as policy wants."""
    found = _named(settings, policy, public)
    short = _too_few(settings, policy)
    return found._replace(ok=False, more=(short, *found.more)) if short else found


def _named(settings: Settings, policy: Policy, public: str) -> Report:
    me = settings.me or user()
    line = f'{me if _BARE.fullmatch(me) else json.dumps(me)} = "{public}"'
    mine = (f"yours, for a colleague's [approvers]: {printable(line)}",) if public else ()
    if not settings.approvers:
        detail = f"none are named: you ({printable(me)}) alone, also where the risk is high"
        return Report("Approvers", detail, None, more=mine)
    names = ", ".join(printable(name) + (" (you)" if key == public else "") for name, key in settings.approvers)
    different = _electorate(settings)
    several = f"; from {policy.scalars.people_from} on, {policy.scalars.people} of them" if different > 1 else ""
    detail = f"{count(different, 'person', 'people')}: {names}{several}"
    return _own_place(detail, settings.approver_keys.get(me), public, mine)


def _too_few(settings: Settings, policy: Policy) -> str:
    """Fewer different keys than policy wants people; empty where nobody could have meant more.

    A single user who says nothing about people decides alone, as documented. Two names with one key are no two people.
    """
    wanted, there = policy.scalars.people, _electorate(settings)
    if there >= wanted:
        return ""
    wants = f"policy wants {count(wanted, 'person', 'people')} from {policy.scalars.people_from} on"
    keys = f"there {'is' if there == 1 else 'are'} {count(there, 'different key')} of people"
    if there > 1:
        return f"{wants}, and {keys}: such changes cannot be approved by anybody"
    if len(settings.approvers) > 1 or any("people" in layer.values for layer in settings.policy):
        return f"{wants}, and {keys}: one person decides such changes alone"
    return ""


def _electorate(settings: Settings) -> int:
    """How many people could answer, as the gate counts them: by key, agents left out."""
    agents = frozenset(agent.name for agent in settings.agents)
    return electorate_of(Office(settings.approver_keys, 0, agents=agents)).all


def _own_place(detail: str, named: str | None, public: str, mine: tuple[str, ...]) -> Report:
    """Not to be an approver is no trouble; to be named with a key that one does not have is."""
    if named is None:
        return Report("Approvers", detail, None, more=("you are not one of them", *mine))
    if not public:
        return Report("Approvers", detail, None, more=("you are named, but have no signing key yet",))
    if named != public:
        wrong = "you are named with a key that is not yours: your yes counts for nothing"
        return Report("Approvers", detail, False, more=(wrong, *mine))
    return Report("Approvers", detail, True, more=mine)
