"""The transcript of an agent's work, as a person reads it: what it was told, said and did, and what was measured.

What stands in it is somebody else's words: escape sequences are taken out, what else would not be seen is spelled out.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.cli.moments import clock_time, for_people, for_programs
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import left_out
from holdfast.cli.words import count, duration
from holdfast.errors import UnknownId

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.engine.transcript import Round, Row, Work
    from holdfast.model.canonical import Json
    from holdfast.wiring import Holdfast

# Of a round: so many lines from its beginning, and so many from its end.
_HEAD, _TAIL = 60, 120
_MOST_OF_A_ROW = 24
_WIDEST = 400
_INDENT = " " * 20
# Control sequences, strings for the terminal (titles, links, the clipboard) with what ends them, other escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
_ENDS = re.compile(r"\r\n|[\r\n\x0b\x0c\x85\u2028\u2029]")


def plain_lines(text: str) -> list[str]:
    """The lines without what a terminal would obey; a line that was written over by another is a line of its own."""
    lines = (shown(line.rstrip()) for line in _ENDS.split(_ESCAPES.sub("", text)))
    return [line for line in lines if line.strip()]


def show_transcript(screen: Screen, hf: Holdfast, id: str, name: str, status: str, *, everything: bool) -> None:
    """Of all work of agents that is about this id. `name` is how the person named it."""
    from holdfast.engine.tracing import delegations_about
    from holdfast.engine.transcript import work_in

    works = [work_in(hf.site.state, entry, everything=everything) for entry in delegations_about(hf.ledger, id)]
    if not works:
        raise UnknownId(
            f"no agent's work is recorded for {shown(name)}",
            hint="See what is known of it: holdfast trace " + shown(id),
        )
    screen.answer({"kind": "transcript", "id": id, "status": status, "works": [_document(work) for work in works]})
    for work in works:
        for line in _lines(screen, work, name, everything=everything):
            screen.say(line)


def _lines(screen: Screen, work: Work, name: str, *, everything: bool) -> Iterator[str]:
    yield screen.style(f"{work.id}  {for_people(work.at_ns)}  {shown(work.agent)}: {_how_good(work)}", "bold")
    of_run = f" of run {work.run}, task {shown(work.task)}" if work.run else ""
    yield f"Plan {work.plan}{of_run}"
    for one in work.rounds:
        lines = list(_of_round(one, everything=everything))
        first = next((row.at_ns for row in one.rows if row.at_ns), 0)
        yield ""
        yield screen.style(f"Round {one.number}" + (f", begun {for_people(first)}" if first else ""), "bold")
        if one.missing:
            yield f"  No transcript: {shown(one.missing)}"
        if everything or len(lines) <= _HEAD + _TAIL + 1:
            yield from lines
        else:
            yield from lines[:_HEAD]
            left = count(len(lines) - _HEAD - _TAIL, "line")
            yield f"  … {left} left out; all of it: holdfast show {shown(name)} --transcript --all"
            yield from lines[-_TAIL:]
        yield from _measured(one)


def _of_round(one: Round, *, everything: bool) -> Iterator[str]:
    """What follows in the same second on something of its kind is not headed again."""
    before = ""
    for row in one.rows:
        for number, line in enumerate(_of_row(row, everything=everything)):
            head = line[: len(_INDENT)]
            yield line if number or head != before else _INDENT + line[len(_INDENT) :]
            before = before if number else head


def _of_row(row: Row, *, everything: bool) -> Iterator[str]:
    when = clock_time(row.at_ns) if row.at_ns else "        "
    yield from _block(f"  {when}  {row.kind:<8}", plain_lines(row.text), everything=everything)
    for word, text in row.more:
        yield from _block(f"            {word:<8}", plain_lines(text), everything=everything)


def _block(head: str, lines: Sequence[str], *, everything: bool) -> Iterator[str]:
    kept = lines if everything else lines[:_MOST_OF_A_ROW]
    for number, line in enumerate(kept):
        cut = line if everything or len(line) <= _WIDEST else line[: _WIDEST - 1] + "…"
        yield f"{head if not number else _INDENT} {cut}".rstrip()
    if len(kept) < len(lines):
        yield f"{_INDENT} … {count(len(lines) - len(kept), 'more line')}"


def _measured(one: Round) -> Iterator[str]:
    from holdfast.engine.transcript import words_in

    measured, claimed = one.measured, one.claimed
    took, changed = measured.get("duration_ms"), measured.get("changed")
    paths = [shown(str(path)) for path in changed] if isinstance(changed, list) else []
    parts = [
        str(measured.get("ending", "")),
        f"after {duration(took)}" if isinstance(took, int) else "",
        f"changed {', '.join(paths)}" if paths else "changed nothing",
    ]
    yield "  Measured  " + shown(" ".join(filter(None, (parts[0], parts[1]))) + "; " + parts[2])
    if made := _texts(measured.get("left_out")):
        total = measured.get("left_out_count")
        yield f"            {left_out(made, total if isinstance(total, int) else 0)}"
    detail = plain_lines(str(measured.get("detail", "")))
    for line in detail[:_MOST_OF_A_ROW]:
        yield f"            {line}"
    said = {line for row in one.rows if row.kind in ("said", "printed") for line in plain_lines(row.text)}
    words = [plain_lines(words_in(line)) for line in str(claimed.get("words", "")).splitlines()]
    unheard = [line for lines in words for line in lines if line not in said]  # the rest stands above
    for number, line in enumerate(unheard[:_MOST_OF_A_ROW]):
        yield f"  {'Claimed' if not number else '':<8}  {line[:_WIDEST]}"
    for number, text in enumerate(unmet_in(measured)[:_MOST_OF_A_ROW]):
        yield f"  {'Lacks' if not number else '':<8}  {shown(text)[:_WIDEST]}"
    for number, line in enumerate(plain_lines(one.evidence)[:_MOST_OF_A_ROW]):
        yield f"  {'Wrong' if not number else '':<8}  {line[:_WIDEST]}"


def _how_good(work: Work) -> str:
    return told_good(work.good, unmet_in(work.rounds[-1].measured) if work.rounds else ())


def told_good(good: bool, unmet: Sequence[str]) -> str:
    """Good is what passed; that it lacks what its task names makes it no worse, and is said (G2 of `measuring`)."""
    if not good:
        return "not good"
    more = f" and {len(unmet) - 1:,} more" if len(unmet) > 1 else ""
    return f"good, but {shown(unmet[0])}{more}" if unmet else "good"


def unmet_in(measured: Mapping[str, Json]) -> list[str]:
    """What the task names and the work lacked, a sentence each."""
    return _texts(measured.get("unmet"))


def _texts(value: Json) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _document(work: Work) -> dict[str, object]:
    return {
        "kind": "delegation",
        "id": work.id,
        "status": "GOOD" if work.good else "NOT_GOOD",
        "at": for_programs(work.at_ns),
        "plan_id": work.plan,
        "run_id": work.run or None,
        "task_id": work.task or None,
        "agent": work.agent,
        "task": work.words,
        "usage": dict(work.usage),
        "rounds": [
            {
                "number": one.number,
                "missing": one.missing,
                "claimed": dict(one.claimed),
                "measured": dict(one.measured),
                "evidence": one.evidence,
                "rows": [
                    {
                        "at": for_programs(row.at_ns) if row.at_ns else None,
                        "kind": row.kind,
                        "text": row.text,
                        **dict(row.more),
                    }
                    for row in one.rows
                ],
            }
            for one in work.rounds
        ],
    }


def show_delegation(screen: Screen, hf: Holdfast, id: str) -> None:
    """A delegation by its own id: its rounds in a line each, and where to read more."""
    from holdfast.engine.tracing import delegations_about
    from holdfast.engine.transcript import work_in

    (entry,) = (one for one in delegations_about(hf.ledger, id) if one.body["id"] == id)
    work = work_in(hf.site.state, entry)
    screen.answer({**_document(work), "rounds": [_summed(one) for one in work.rounds]})
    screen.say(f"{work.id}  {_how_good(work)}  {for_people(work.at_ns)}  by {shown(work.agent)}  about {work.plan}")
    if work.run:
        screen.say(f"Run       {work.run}, task {shown(work.task)}")
    for number, line in enumerate(plain_lines(work.words)[:_MOST_OF_A_ROW]):
        screen.say(f"{'Task' if not number else '':<8}  {line[:_WIDEST]}")
    for one in work.rounds:
        screen.say(f"Round {one.number}")
        for line in _measured(one):
            screen.say(line)
    screen.say(f"What it said and did: holdfast show {work.id} --transcript")


def _summed(one: Round) -> dict[str, object]:
    return {
        "number": one.number,
        "claimed": dict(one.claimed),
        "measured": dict(one.measured),
        "evidence": one.evidence,
    }
