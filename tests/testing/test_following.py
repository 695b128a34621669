"""Where a conversation stands in its script: properties over arbitrary scripts and histories."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.testing.conversation import Call, Conversation, Event, Model, Outcome, Tool, User, Words
from holdfast.testing.following import Turn, next_turn
from holdfast.testing.schema import example
from holdfast.testing.script import Book, EditFile, Loop, Reply, Say, Script, Shell, Stop, WriteFile

TEXT = st.text(min_size=1, max_size=20)
WORDS = TEXT.filter(lambda text: bool(text.strip()))
REPLIES = st.one_of(
    st.builds(Say, WORDS),
    st.builds(Stop, WORDS),
    st.builds(WriteFile, TEXT, TEXT),
    st.builds(EditFile, TEXT, TEXT, TEXT),
    st.builds(Shell, WORDS),
)
PATH = {"type": "string"}
TOOLS = (
    Tool("Write", {"file_path": PATH, "content": PATH}, ("file_path", "content")),
    Tool(
        "Edit", {"file_path": PATH, "old_string": PATH, "new_string": PATH}, ("file_path", "old_string", "new_string")
    ),
    Tool("Bash", {"command": PATH}, ("command",)),
)
EVENTS = st.one_of(
    st.builds(User, TEXT, TEXT),
    st.builds(Model, TEXT, st.sampled_from(["", "Write", "Read"])),
    st.builds(Outcome, TEXT),
)


def answered(turn: Turn) -> list[Event]:
    """What a program adds to its history for an answer."""
    if isinstance(turn.answer, Call):
        return [Model("", turn.answer.tool.name), Outcome("ok")]
    return [Model(turn.answer.text), User("go on", "go on")]


def follow(replies: list[Reply], *, tools: tuple[Tool, ...], turns: int, loops: bool = False) -> list[Turn]:
    book = Book(Script((*replies, Loop()) if loops else tuple(replies)))
    history: list[Event] = [User("please", "please")]
    found = []
    for _ in range(turns):
        turn = next_turn(Conversation("m", "SEARCH/REPLACE", tuple(history), tools), book)
        found.append(turn)
        history += answered(turn)
    return found


@given(st.lists(REPLIES, max_size=8))
def test_every_step_is_answered_once_and_in_order(replies: list[Reply]) -> None:
    """A conversation that only grows gets every step of its script, in order, and then the end."""
    turns = follow(replies, tools=TOOLS, turns=len(replies) + 2)
    assert [turn.beat.replies for turn in turns] == [(reply,) for reply in (*replies, Stop(), Stop())]
    for reply, turn in zip(replies, turns, strict=False):
        assert isinstance(turn.answer, Words if isinstance(reply, (Say, Stop)) else Call)


@given(st.lists(REPLIES, max_size=8))
def test_without_tools_no_step_is_lost(replies: list[Reply]) -> None:
    """In plain text several steps share an answer, and together the answers hold all of them, in order."""
    turns = follow(replies, tools=(), turns=len(replies))
    told = [reply for turn in turns for reply in turn.beat.replies if reply != Stop()]
    assert told == [reply for reply in replies if reply != Stop()]


@given(st.lists(REPLIES, min_size=1, max_size=5), st.integers(1, 10))
def test_a_loop_repeats_its_last_answer(replies: list[Reply], more: int) -> None:
    """Past the end of a script that loops, the last answer comes for ever."""
    turns = follow(replies, tools=TOOLS, turns=len(replies) + more, loops=True)
    assert {turn.beat.replies for turn in turns[len(replies) :]} == {(replies[-1],)}


@given(st.lists(EVENTS, max_size=12), st.lists(REPLIES, max_size=6), st.sampled_from([(), TOOLS]))
def test_the_same_history_gives_the_same_answer(
    events: list[Event], replies: list[Reply], tools: tuple[Tool, ...]
) -> None:
    """Whatever stands in a history, also what no script said: one history, one answer, and never an exception."""
    conversation = Conversation("m", "", tuple(events), tools)
    book = Book(Script(tuple(replies)), {"task-1": Script.of(Say("one"))})
    assert next_turn(conversation, book) == next_turn(conversation, book)


SCHEMAS = st.recursive(
    st.sampled_from([{"type": kind} for kind in "string integer number boolean null STRING BOOLEAN".split()])
    | st.builds(lambda values: {"enum": values}, st.lists(st.text(), min_size=1)),
    lambda inner: (
        st.builds(lambda given: {"type": "object", "properties": given, "required": list(given)},
                  st.dictionaries(st.text(max_size=5), inner, max_size=4))
        | st.builds(lambda items: {"type": "array", "items": items}, inner)
        | st.builds(lambda items: {"anyOf": items}, st.lists(inner, min_size=1, max_size=3))
    ),
    max_leaves=10,
)  # fmt: skip


def fits(value: object, schema: dict[str, object]) -> bool:
    """A judge that shares nothing with what it judges."""
    if "enum" in schema:
        return value in schema["enum"]  # type: ignore[operator]
    if "anyOf" in schema:
        return any(fits(value, choice) for choice in schema["anyOf"])  # type: ignore[attr-defined]
    kind = str(schema["type"]).lower()
    if kind == "object":
        properties: dict[str, dict[str, object]] = schema["properties"]  # type: ignore[assignment]
        return isinstance(value, dict) and all(name in value and fits(value[name], s) for name, s in properties.items())
    kinds = {"string": str, "integer": int, "number": int, "boolean": bool, "array": list, "null": type(None)}
    return isinstance(value, kinds[kind])


@given(SCHEMAS)
def test_an_example_fits_its_schema(schema: dict[str, object]) -> None:
    """What is made up for a schema is of that schema."""
    assert fits(example(schema), schema)
