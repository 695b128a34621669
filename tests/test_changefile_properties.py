"""What holds for every change file, not only for those somebody thought of."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import HoldfastError, InvalidChangeFile, InvalidPath
from holdfast.intake.changefile import parse_change_file
from holdfast.model.check import (
    CommandCheck,
    DatabaseCheck,
    HealthCheck,
    HttpCheck,
    ProcessCheck,
    ServiceCheck,
    SuiteCheck,
    TcpCheck,
    VerifyCheck,
    masked_words,
)
from holdfast.model.path import checked_path
from holdfast.model.plan import (
    RISKS,
    Chmod,
    Create,
    Delete,
    Inline,
    Move,
    Plan,
    Read,
    Step,
    Symlink,
    Update,
    Write,
)

SEEDS = (
    b'{"intent": "x", "steps": [{"write": "a", "content": "b", "mode": "0644"}], "verify": [{"run": ["c"]}]}',
    b"intent: x\nsteps:\n  - write: a\n    content: |\n      b\n  - move: {from: a, to: b}\nhealth: [{http: 'http://a'}]\n",
)
WORDS = (
    "intent objective rationale steps risk verify health on_failure write update create delete move chmod symlink read "
    "run service agent content content_base64 content_from old old_base64 mode recursive from to path http expect "
    "contains within settle every tcp database process name pid_file tests junit coverage skip"
).split()


def _parse(data: bytes) -> Plan:
    return parse_change_file(data, source="c", directory="/nonexistent")


def _outcome(data: bytes) -> str:
    """The digest of the plan, or the fact that there is none; any other exception is a failure."""
    try:
        return _parse(data).digest
    except HoldfastError as error:
        return f"refused with {error.exit_status}"


def _is_path(text: str) -> bool:
    try:
        return checked_path(text) == text
    except InvalidPath:
        return False


def _settled(text: str) -> bool:
    """True for a name as the disk would give it: no escapes that together spell UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape") == text


within = st.integers(1, 86_400_000)
prose = st.text(st.characters(exclude_categories=["Cc", "Cs"], include_characters="\n\t"))
mode = st.one_of(st.none(), st.integers(0, 0o777))
content = st.binary().map(Inline)
# Before it is healthy, for how long it must stay so, and the pause between two looks.
times = (within, st.one_of(st.just(0), within), st.one_of(st.just(0), within))
http = st.builds(
    HttpCheck,
    st.sampled_from(["http://127.0.0.1:8080/health", "https://host/?q=1"]),
    st.integers(100, 599),
    st.text(st.characters(exclude_categories=["Cs"])),
    *times,
)
others = st.one_of(
    st.builds(TcpCheck, st.sampled_from(["127.0.0.1", "::1", "db.example"]), st.integers(1, 65535), *times),
    st.builds(
        DatabaseCheck,
        st.sampled_from(["postgresql://a@h/c", "redis://h/1", "sqlite:data/a b.db"]),
        st.sampled_from(["", "/run/secrets/db"]),
        *times,
    ),
    st.builds(ServiceCheck, st.sampled_from(["nginx", "getty@tty1.service"]), *times),
    st.builds(ProcessCheck, st.sampled_from(["nginx", "a b"]), st.sampled_from(["", "/run/x.pid"]), *times),
)
tests_check = st.builds(
    SuiteCheck,
    st.just(("pytest", "-q")),
    st.just("out/junit.xml"),
    st.just("coverage.json"),
    st.one_of(st.none(), st.integers(0, 10_000)),
    st.integers(0, 1_000_000),
    st.lists(st.sampled_from(["a", "b::c"])).map(tuple),
    within,
)


def _plans(characters: st.SearchStrategy[str]) -> st.SearchStrategy[Plan]:
    """Plans whose names are made of these characters."""
    argument = st.text(characters, min_size=1).filter(_settled)
    path = st.lists(argument, min_size=1, max_size=3).map("/".join).filter(_settled).filter(_is_path)
    argv = st.lists(argument, min_size=1).map(tuple)
    command = st.builds(CommandCheck, argv, within, st.just(0), st.just(0))
    step = st.one_of(
        st.builds(Write, path, content, mode),
        st.builds(Update, path, st.binary(), content, mode),
        st.builds(Create, path, st.booleans(), mode),
        st.builds(Delete, path, st.booleans()),
        st.builds(Move, path, path).filter(lambda move: not f"{move.to}/".startswith(f"{move.path}/")),
        st.builds(Chmod, path, st.integers(0, 0o777)),
        st.builds(Symlink, path, argument),
        st.builds(Read, path),
    )
    return st.builds(
        Plan,
        prose.filter(lambda text: text.strip() != ""),
        st.lists(step, min_size=1).map(tuple),
        prose,
        prose,
        st.sampled_from(RISKS),
        st.lists(st.one_of(command, tests_check)).map(tuple),
        st.lists(st.one_of(st.builds(CommandCheck, argv, *times), http, others)).map(tuple),
        st.sampled_from(["rollback", "stop", "continue"]),
        st.lists(prose.filter(lambda text: text.strip() != "" and masked_words(text) == text), max_size=2).map(tuple),
        st.just(""),
    )


readable = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
# Bytes that are not UTF-8 travel as these.
raw_byte = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
plans = _plans(st.one_of(readable, raw_byte))
# YAML has no way to spell raw bytes.
readable_plans = _plans(readable)


def _bytes_field(name: str, data: bytes, *, plain: bool) -> dict[str, object]:
    if plain:
        return {name: data.decode("utf-8", "surrogateescape")}
    return {f"{name}_base64": b64encode(data).decode()}


def _step_document(step: Step, *, plain: bool) -> dict[str, object]:
    """A step as a tool would write it; bytes as text where `plain`, else as base64."""
    match step:
        case Move():
            return {"move": {"from": step.path, "to": step.to}}
        case Chmod():
            return {"chmod": {"path": step.path, "mode": f"{step.mode:04o}"}}
        case Symlink():
            return {"symlink": {"path": step.path, "to": step.target}}
    made: dict[str, object] = {step.action: step.path}
    if isinstance(step, Create) and step.directory:
        made["create"] = f"{step.path}/"
    if isinstance(step, Delete):
        made["recursive"] = step.recursive
    if isinstance(step, Update):
        made |= _bytes_field("old", step.old, plain=plain)
    if isinstance(step, (Write, Update)) and isinstance(step.content, Inline):
        made |= _bytes_field("content", step.content.data, plain=plain)
    if isinstance(step, (Write, Update, Create)) and step.mode is not None:
        made["mode"] = f"{step.mode:03o}"
    return made


def _check_document(check: VerifyCheck | HealthCheck) -> dict[str, object]:
    made: dict[str, object] = {"within": f"{check.within_ms}ms"}
    if isinstance(check, SuiteCheck):
        made |= {"tests": list(check.argv), "junit": check.junit, "coverage": check.coverage}
        made |= {"maximum_failures": check.maximum_failures}
        if check.minimum_coverage is not None:
            made["minimum_coverage"] = f"{check.minimum_coverage // 100}.{check.minimum_coverage % 100:02d}%"
        return made | ({"required_tests": list(check.required)} if check.required else {})
    if check.settle_ms:
        made["settle"] = f"{check.settle_ms}ms"
    if check.every_ms:
        made["every"] = f"{check.every_ms}ms"
    match check:
        case CommandCheck():
            return made | {"run": list(check.argv)}
        case TcpCheck():
            return made | {"tcp": f"[{check.host}]:{check.port}" if ":" in check.host else f"{check.host}:{check.port}"}
        case DatabaseCheck():
            return (
                made | {"database": check.url} | ({"password_file": check.password_file} if check.password_file else {})
            )
        case ServiceCheck():
            return made | {"service": check.unit}
        case ProcessCheck():
            by_file = {"pid_file": check.pid_file} if check.pid_file else {}
            return made | {"process": {"name": check.name, **by_file} if by_file else check.name}
    made |= {"http": check.url, "expect": check.status}
    return {**made, "contains": check.contains} if check.contains else made


def _document(plan: Plan, *, plain: bool) -> dict[str, object]:
    return {
        "intent": plan.intent,
        "objective": plan.objective,
        "rationale": plan.rationale,
        "risk": plan.risk,
        "steps": [_step_document(step, plain=plain) for step in plan.steps],
        "verify": [*(_check_document(check) for check in plan.verify), *plan.words],
        "health": [_check_document(check) for check in plan.health],
        "on_failure": plan.on_failure,
    }


@given(st.binary())
@example(b"\xff\xfe{")
@example(b"{" * 100_000)
@example(b"[" * 100_000)
@example(b"- " * 50_000)
@example(b'{"a":' * 50_000)
@example(b"%TAG ! tag:x,2000:\n--- !y\n")
@example(b'"\\U00110000"')
@example(b"? " * 10_000)
@example(b"intent: x\nsteps: !!timestamp 2024-99-99\n")
def test_any_bytes_are_a_plan_or_a_refusal(data: bytes) -> None:
    """Whatever the bytes, the outcome is a plan or an error for people."""
    assert len(_outcome(data)) == 64 or _outcome(data) == "refused with 2"


@given(st.sampled_from(SEEDS), st.data())
def test_a_damaged_file_is_a_plan_or_a_refusal(seed: bytes, data: st.DataObject) -> None:
    """A correct file with a few bytes cut out and others put in is a plan or is refused."""
    start = data.draw(st.integers(0, len(seed)))
    end = data.draw(st.integers(start, min(len(seed), start + 8)))
    outcome = _outcome(seed[:start] + data.draw(st.binary(max_size=8)) + seed[end:])
    assert len(outcome) == 64 or outcome == "refused with 2"


leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.sampled_from([*WORDS, "0644", "10s", "a/b", ""])
)
documents = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)),
)
wild = st.fixed_dictionaries({"intent": st.just("x"), "steps": st.lists(documents, min_size=1, max_size=3)})


@given(st.one_of(documents, wild))
def test_json_and_yaml_agree_about_any_document(document: object) -> None:
    """The same document in JSON and in YAML gives the same plan, or none in either."""
    in_yaml = yaml.safe_dump(document, allow_unicode=True, sort_keys=False)
    in_json = json.dumps(document)
    if in_json.startswith("{"):
        assert _outcome(in_json.encode()) == _outcome(b"# YAML\n" + in_yaml.encode())
    else:
        assert _outcome(in_json.encode()) == _outcome(in_yaml.encode()) == "refused with 2"


@pytest.mark.long
@given(plans, st.booleans(), st.sampled_from([None, 1]))
def test_a_plan_written_as_json_is_read_back_equal(plan: Plan, plain: bool, indent: int | None) -> None:
    """What a tool writes as JSON is read back as the same plan, raw bytes in names and contents included."""
    read = _parse(json.dumps(_document(plan, plain=plain), indent=indent).encode())
    assert read == plan
    assert read.digest == plan.digest


@given(readable_plans.map(lambda plan: _document(plan, plain=False)), st.booleans(), st.booleans())
def test_yaml_and_json_of_one_plan_have_one_digest(document: dict[str, object], flow: bool, unicode: bool) -> None:
    """A plan has the same digest whether it was written as YAML or as JSON."""
    if any(escape in json.dumps(document) for escape in ("\\u0085", "\\u2028", "\\u2029")):
        unicode = False  # refused unless escaped, since YAML 1.1 and 1.2 read them differently
    in_yaml = yaml.safe_dump(document, default_flow_style=flow, allow_unicode=unicode, sort_keys=False)
    assert _parse(b"# YAML\n" + in_yaml.encode()).digest == _parse(json.dumps(document).encode()).digest


@given(readable_plans.map(lambda plan: _document(plan, plain=False)), st.data())
def test_an_unknown_step_is_found_at_its_line(document: dict[str, object], data: st.DataObject) -> None:
    """Wherever a mistyped step stands, in JSON or YAML, the error gives the line it is written on."""
    steps = document["steps"]
    assert isinstance(steps, list)
    steps.insert(data.draw(st.integers(0, len(steps))), {"wriite": "a", "content": "b"})
    in_json = json.dumps(document, indent=1)
    in_yaml = "# YAML\n" + yaml.safe_dump(document, allow_unicode=False, sort_keys=False)
    for text in (in_json, in_yaml):
        with pytest.raises(InvalidChangeFile) as caught:
            _parse(text.encode())
        assert caught.value.message.endswith('unknown step "wriite"; did you mean "write"?')
        assert "wriite" in text.split("\n")[caught.value.line - 1]
