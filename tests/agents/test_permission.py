"""What an agent that asks is answered: by the place it names, and by the kind of the options it offers."""

from __future__ import annotations

import pytest

from holdfast.agents.events import Event
from holdfast.agents.permission import answer

OWN = ("/work/app", "/run/holdfast/home")
OPTIONS = [
    {"optionId": "always", "kind": "allow_always"},
    {"optionId": "yes", "kind": "allow_once"},
    {"optionId": "never", "kind": "reject_always"},
    {"optionId": "no", "kind": "reject_once"},
]

ALLOWED = {
    "nothing named": {},
    "a file of the workspace": {"locations": [{"path": "/work/app/a.py"}]},
    "the workspace": {"locations": [{"path": "/work/app"}]},
    "a relative path": {"locations": [{"path": "src/a.py"}]},
    "its home": {"content": [{"type": "diff", "path": "/run/holdfast/home/notes"}]},
    "its scratch space": {"rawInput": {"file_path": "/tmp/x"}},
    "a name with dots in it": {"locations": [{"path": "/work/app/..a/b..c"}]},
    "a command line": {"rawInput": {"command": "cat /etc/passwd"}},
    "places of a wrong kind": {"locations": "here", "content": [7, {"path": 9}], "rawInput": ["path"]},
}
DENIED = {
    "a place of the host": {"locations": [{"path": "/etc/passwd"}]},
    "a neighbour whose name begins alike": {"locations": [{"path": "/work/application/a"}]},
    "the way up": {"locations": [{"path": "/work/app/../other"}]},
    "the way up, relative": {"content": [{"type": "diff", "path": "../x"}]},
    "what is Holdfast's": {"locations": [{"path": "/work/app/.holdfast/ledger.jsonl"}]},
    "what is Holdfast's, relative": {"rawInput": {"path": ".holdfast"}},
    "one of many": {"locations": [{"path": "a"}, {"path": "/root/.ssh/id"}]},
    "in the input only": {"locations": [{"path": "a"}], "rawInput": {"filePath": "/root/x"}},
}


def asked(call: object, options: object = OPTIONS) -> Event:
    return Event({"toolCall": call, "options": options})


@pytest.mark.parametrize("call", ALLOWED.values(), ids=ALLOWED)
def test_what_happens_inside_may_happen(call: object) -> None:
    """The sandbox is the border: it is allowed, once."""
    given = answer(asked(call), OWN)
    assert (given.allowed, given.option) == (True, "yes")


@pytest.mark.parametrize("call", DENIED.values(), ids=DENIED)
def test_what_reaches_elsewhere_is_denied(call: object) -> None:
    """It could not be done either, and so the record shows that it was tried."""
    given = answer(asked(call), OWN)
    assert (given.allowed, given.option) == (False, "no")


@pytest.mark.parametrize(
    ("options", "allowed", "option"),
    [
        ([{"optionId": "x", "kind": "allow_always"}], True, "x"),
        ([{"optionId": "1", "kind": "allow_always"}, {"optionId": "2", "kind": "allow_always"}], True, "1"),
        ([{"optionId": "allow", "kind": "reject_once"}], False, ""),
        ([{"optionId": 7, "kind": "allow_once"}], False, ""),
        ([{"kind": "allow_once"}, "allow_once", None], False, ""),
        ("all", False, ""),
        ([], False, ""),
    ],
)
def test_options_are_chosen_by_kind(options: object, allowed: bool, option: str) -> None:
    """Where none fits, nothing is chosen, and it is not told as allowed."""
    given = answer(asked({}, options), OWN)
    assert (given.allowed, given.option) == (allowed, option)


def test_a_denial_without_a_way_to_say_no_is_no_yes() -> None:
    """An agent that offers only to allow gets no option at all."""
    given = answer(asked(DENIED["the way up"], [{"optionId": "yes", "kind": "allow_once"}]), OWN)
    assert (given.allowed, given.option) == (False, "")


@pytest.mark.parametrize("title", [None, 7, "", "x" * 1_000, "\ud800"])
def test_a_title_is_short_and_can_be_shown(title: object) -> None:
    """Whatever it is called."""
    given = answer(asked({"title": title}), OWN)
    assert 0 < len(given.title.encode()) <= 310
