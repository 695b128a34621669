"""Patterns in a workspace: found in three places, given facts of the real tree, and landed like any other plan."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground, contents, guard
from holdfast.engine.pattern_facts import facts_of
from holdfast.engine.pattern_inputs import MOST_BYTES, inputs_from_json, inputs_from_words, validated
from holdfast.engine.patterns import MOST_PATTERNS, find_pattern, list_patterns, plan_from_pattern
from holdfast.errors import Blocked, HoldfastError, InvalidInput, UnknownId
from holdfast.model.plan import Inline, Read, Update
from holdfast.planning.patterns.catalogue import BUILT_IN
from holdfast.planning.patterns.pattern import Facts, Pattern

PACKAGE = "module_creation_python_package"
NOTE_TOML = """
id = "note"
description = "A note"
[inputs]
required = ["name"]
[inputs.properties.name]
type = "string"
[[files]]
path = "notes/${name}.md"
content = "# ${name}\\n"
"""
NOTE_YAML = """
id: yaml_note
description: A note
inputs:
  properties:
    name: {type: string}
  required: [name]
files:
  - path: notes/${name}.md
    content: |
      # ${name}
"""


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = guard(tmp_path / "workspace", {"README.md": b"# x\n"})
    yield made
    made.hf.close()


def _user_file(home: Path, name: str, text: str) -> Path:
    folder = home / "xdg_config_home" / "holdfast" / "patterns"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / name
    path.write_text(text)
    path.chmod(0o600)
    return path


def _project_file(ground: Ground, name: str, text: str) -> None:
    (ground / "holdfast-patterns").mkdir(exist_ok=True)
    (ground / "holdfast-patterns" / name).write_text(text)


def _ids(ground: Ground) -> dict[str, str]:
    built_in = {pattern.id for pattern in BUILT_IN}
    return {item.id: item.origin for item in list_patterns(ground.hf.site).patterns if item.id not in built_in}


# ── landing ──


def test_a_pattern_lands_verified_and_can_be_undone(ground: Ground) -> None:
    """The package is simulated, its generated test runs in the sandbox, it lands, and undo takes all of it away."""
    before = contents(ground.tree())
    plan = plan_from_pattern(ground.hf.site, PACKAGE, {"name": "tool", "summary": "A tool."})
    simulated = ground.hf.simulate(plan)
    verified = ground.hf.verify(simulated)
    assert [receipt.passed for receipt in verified.receipts if "unittest" in " ".join(receipt.command)] == [True]
    done = ground.hf.execute(simulated, approved_by=ME, verified=verified)
    assert done.status == "COMPLETED"
    assert (ground / "tool/__init__.py").read_text() == '"""A tool."""\n\n__all__: list[str] = []\n'
    assert set(contents(ground.tree())) - set(before) == {"tool/__init__.py", "tool/py.typed", "tests/test_tool.py"}
    ground.hf.undo(done.id, approved_by=ME)
    assert contents(ground.tree()) == before


def test_the_example_of_the_reference_lands(ground: Ground, home: Path) -> None:
    """Whoever copies the pattern that the reference shows gets one that works, its checks in plain words too."""
    reference = Path(__file__).parents[2] / "docs/reference/patterns.md"
    _user_file(home, "service.toml", reference.read_text().partition("```toml\n")[2].partition("```")[0])
    simulated = ground.hf.simulate(plan_from_pattern(ground.hf.site, "service_unit", {"name": "web"}))
    verified = ground.hf.verify(simulated)
    assert verified.receipts and all(receipt.passed for receipt in verified.receipts)
    assert ground.hf.execute(simulated, approved_by=ME, verified=verified).status == "COMPLETED"
    assert tomllib.loads((ground / "services/web.toml").read_text()) == {"command": "/usr/bin/web", "port": 8080}


def test_a_file_that_came_in_between_is_not_overwritten(ground: Ground) -> None:
    """Somebody writes the file after the plan was made: the simulation refuses, and their bytes stay."""
    plan = plan_from_pattern(ground.hf.site, PACKAGE, {"name": "tool", "summary": "A tool."})
    (ground / "tool").mkdir()
    (ground / "tool/__init__.py").write_text("theirs")
    with pytest.raises(HoldfastError):
        ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
    assert (ground / "tool/__init__.py").read_text() == "theirs"


def test_a_status_is_refreshed_from_exactly_what_was_there(ground: Ground) -> None:
    """The second run updates the document; a third finds it up to date and changes nothing."""
    (ground / "Makefile").write_text("test:\n\ttrue\n")
    for number in range(2):
        plan = plan_from_pattern(ground.hf.site, "automation_enabled_status", {})
        ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
        if number == 0:
            (ground / "Makefile").write_text("test:\n\ttrue\nlint:\n\ttrue\n")
    assert "make lint" in (ground / "docs/automation-status.json").read_text()
    plan = plan_from_pattern(ground.hf.site, "automation_enabled_status", {})
    assert plan.steps == (Read("docs/automation-status.json"),)
    assert ground.hf.simulate(plan).change_set.changes == ()


def test_a_project_pattern_into_a_start_up_file_is_gated_like_any_plan(ground: Ground) -> None:
    """An untrusted pattern yields a plan, and the write gate judges what it would land: high risk needs a person."""
    hostile = NOTE_TOML.replace("notes/${name}.md", ".github/workflows/${name}.yml").replace('"note"', '"hostile"')
    _project_file(ground, "hostile.toml", hostile)
    plan = plan_from_pattern(ground.hf.site, "hostile", {"name": "x"})
    assert "(project)" in plan.rationale
    simulated = ground.hf.simulate(plan)
    decision = ground.hf.evaluate(simulated)
    assert decision.verdict != "ALLOW"
    assert not (ground / ".github").exists()


# ── three places ──


def test_patterns_are_found_in_both_folders(ground: Ground, home: Path) -> None:
    """TOML and YAML, the user's and the project's, beside ours; other files there are not looked at."""
    _user_file(home, "note.toml", NOTE_TOML)
    _user_file(home, "README.md", "hello")
    _project_file(ground, "yaml.yaml", NOTE_YAML)
    assert _ids(ground) == {"note": "user", "yaml_note": "project"}
    assert list_patterns(ground.hf.site).refused == ()
    for id in ("note", "yaml_note"):
        step = plan_from_pattern(ground.hf.site, id, {"name": "a"}).steps[1]
        assert isinstance(step, Update) and step.content == Inline(b"# a\n")


def test_no_folders_no_patterns_but_ours(ground: Ground) -> None:
    """Without any folder the built-in patterns are listed, and nothing is refused."""
    listed = list_patterns(ground.hf.site)
    assert (listed.patterns, listed.refused) == (BUILT_IN, ())


def test_a_project_cannot_take_a_name(ground: Ground, home: Path) -> None:
    """A repository cannot replace a built-in pattern or the user's own: its file is refused by name."""
    _user_file(home, "note.toml", NOTE_TOML)
    _project_file(ground, "a.toml", NOTE_TOML.replace("# ${name}", "evil"))
    _project_file(ground, "b.toml", NOTE_TOML.replace('"note"', f'"{PACKAGE}"'))
    listed = list_patterns(ground.hf.site)
    assert len(listed.refused) == 2
    assert find_pattern(ground.hf.site, "note").origin == "user"
    assert find_pattern(ground.hf.site, PACKAGE).origin == "built-in"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.toml", "id = ", "cannot be understood"),
        ("a.yaml", "a: [", "not valid YAML"),
        ("a.yaml", "a: 1\na: 2\n", "appears twice"),
        ("a.yaml", "- 1\n", "must be a table"),
        ("a.yaml", "x: &a [1]\ny: *a\n", "alias"),
        ("a.toml", 'id = "abc"\n', "description is missing"),
        ("a.toml", NOTE_TOML.replace("${name}.md", "${nmae}.md"), "uses ${nmae}"),
        ("a.toml", NOTE_TOML + "mdoe = '1'\n", "mdoe is not known here"),
        ("a.toml", NOTE_TOML.replace('"string"', "1.5"), "type must be a text, not a fraction"),
        ("a.toml", "x = " + "[" * 100_000, "cannot be understood"),
        ("a.toml", "#" * (1 << 20) + "#", "cannot be read"),
    ],
)
def test_a_wrong_file_is_refused_and_hides_nothing(ground: Ground, name: str, text: str, why: str) -> None:
    """A file that is no pattern is listed with its reason; the others still work."""
    _project_file(ground, name, text)
    _project_file(ground, "good.toml", NOTE_TOML)
    listed = list_patterns(ground.hf.site)
    assert [(refused.file, why in refused.why) for refused in listed.refused] == [(f"holdfast-patterns/{name}", True)]
    assert "note" in _ids(ground)


def test_a_name_that_there_is_not_says_what_is_near_and_what_was_refused(ground: Ground) -> None:
    """An unknown id is exit status 2, with the nearest one, and with the files that are no patterns."""
    _project_file(ground, "broken.toml", "id = ")
    with pytest.raises(UnknownId) as caught:
        find_pattern(ground.hf.site, "config_setup_002")
    assert caught.value.hint == "Did you mean config_setup_001?"
    assert "holdfast-patterns/broken.toml" in caught.value.message


def test_a_user_pattern_that_others_may_write_is_refused(ground: Ground, home: Path) -> None:
    """The user's folder is trusted, so nobody else may write it or a file in it."""
    path = _user_file(home, "note.toml", NOTE_TOML)
    path.chmod(0o622)
    assert "can be written by other users" in list_patterns(ground.hf.site).refused[0].why
    path.chmod(0o600)
    path.parent.chmod(0o777)
    assert "can be written by other users" in list_patterns(ground.hf.site).refused[0].why
    assert _ids(ground) == {}
    path.parent.chmod(0o700)
    assert _ids(ground) == {"note": "user"}


@pytest.mark.parametrize("origin", ["user", "project"])
def test_links_and_devices_are_not_read(ground: Ground, home: Path, tmp_path: Path, origin: str) -> None:
    """A link to a pattern elsewhere, or a FIFO, is refused and blocks nobody."""
    outside = tmp_path / "outside.toml"
    outside.write_text(NOTE_TOML)
    folder = _user_file(home, "x.md", "").parent if origin == "user" else ground / "holdfast-patterns"
    folder.mkdir(exist_ok=True)
    (folder / "link.toml").symlink_to(outside)
    os.mkfifo(folder / "pipe.toml", 0o600)
    assert len(list_patterns(ground.hf.site).refused) == 2
    assert _ids(ground) == {}


def test_a_folder_that_is_a_link_is_not_entered(ground: Ground, tmp_path: Path) -> None:
    """A repository cannot point its folder of patterns outside of itself."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.toml").write_text(NOTE_TOML)
    (ground / "holdfast-patterns").symlink_to(tmp_path / "elsewhere")
    assert _ids(ground) == {}
    assert [refused.file for refused in list_patterns(ground.hf.site).refused] == ["holdfast-patterns"]


def test_too_many_patterns_are_told(ground: Ground) -> None:
    """What is not read any more is not passed over in silence."""
    for number in range(MOST_PATTERNS + 1):
        _project_file(ground, f"p{number:03}.toml", NOTE_TOML.replace('"note"', f'"note_{number}"'))
    listed = list_patterns(ground.hf.site)
    assert len(_ids(ground)) == MOST_PATTERNS
    assert "were not read" in listed.refused[0].why


# ── facts ──


def _all(inputs: object, files: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(files))


def _facts(ground: Ground) -> Facts:
    return facts_of(ground.hf.site, Pattern("x", "", "", {"properties": {}}, {}, lambda a, b: None, _all), {})  # type: ignore[arg-type, return-value]


def test_facts_are_the_files_of_the_tree_and_no_more(ground: Ground, tmp_path: Path) -> None:
    """Regular files, at any depth; no links, no state, no git, and nothing that git ignores."""
    subprocess.run(["git", "init", "-q", str(ground.path)], check=True)
    (ground / ".gitignore").write_text("node_modules/\n*.log\n")
    for name in ("a/b/c.txt", "node_modules/x/y.js", "a/debug.log", ".github/workflows/t.yml"):
        (ground / name).parent.mkdir(parents=True, exist_ok=True)
        (ground / name).write_text(name)
    (ground / "link").symlink_to(tmp_path)
    os.mkfifo(ground / "pipe")
    facts = _facts(ground)
    assert facts.files == {"README.md", ".gitignore", "a/b/c.txt", ".github/workflows/t.yml"}
    assert facts.contents["a/b/c.txt"] == b"a/b/c.txt"


def test_a_large_file_is_known_by_name_only(ground: Ground) -> None:
    """More than a mebibyte is not read; a status that would have to replace such a file says so."""
    (ground / "docs").mkdir()
    (ground / "docs/automation-status.json").write_bytes(b"x" * (MOST_BYTES + 1))
    assert "docs/automation-status.json" in _facts(ground).files
    assert "docs/automation-status.json" not in _facts(ground).contents
    with pytest.raises(Blocked, match="too large to be brought up to date"):
        plan_from_pattern(ground.hf.site, "automation_enabled_status", {})
    item = {"id": "1", "symbols": ["docs/automation-status.json::x"]}
    with pytest.raises(Blocked, match="too large to be looked through"):
        plan_from_pattern(ground.hf.site, "implementation_status", {"items": [item]})


# ── inputs from outside ──

CONFIG = next(pattern for pattern in BUILT_IN if pattern.id == "config_setup_001")
PYTHON = next(pattern for pattern in BUILT_IN if pattern.id == PACKAGE)


def test_words_become_inputs_by_the_schema() -> None:
    """Text is taken as it is, everything else is read as JSON."""
    words = ["name=true", "summary=a=b", "typed=false", 'modules=[{"name": "a", "summary": "b"}]']
    found = inputs_from_words(PYTHON, words)
    expected = {"name": "true", "summary": "a=b", "typed": False, "modules": [{"name": "a", "summary": "b"}]}
    assert found == expected
    assert validated(PYTHON, found)["tests"] == "tests"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["name"], "is not of the form name=value"),
        (["=x"], "is not of the form name=value"),
        (["name=a", "name=b"], "name is given twice"),
        (["typed=maybe"], "typed must be true or false"),
        (["modules=[1.5]"], "modules[1] is neither text nor a whole number"),
        (["modules={"], "modules must be a list"),
    ],
)
def test_wrong_words_are_refused(words: list[str], message: str) -> None:
    """Each wrong word is named."""
    with pytest.raises(InvalidInput) as caught:
        inputs_from_words(PYTHON, words)
    assert message in caught.value.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[]", "must be an object of inputs"),
        (b"{", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "appears twice"),
        (b"\xff", "is not UTF-8 text"),
        (b'{"a": {"b": [1.0]}}', "a.b[1] is neither text nor a whole number"),
        (b" " * (MOST_BYTES + 1), "is larger than 1 MiB"),
    ],
)
def test_a_wrong_file_of_inputs_is_refused(data: bytes, message: str) -> None:
    """A file of inputs is JSON, an object, without keys twice and without fractions."""
    with pytest.raises(InvalidInput) as caught:
        inputs_from_json(data, "inputs.json")
    assert message in caught.value.message


def test_a_file_of_inputs_is_read() -> None:
    """Every JSON value but a fraction is an input."""
    assert inputs_from_json(b'{"a": [1, "x", true, null, {"b": -2}]}', "f") == {"a": [1, "x", True, None, {"b": -2}]}


def test_many_faults_are_shown_in_part() -> None:
    """Five sentences and a count; a value in them is short."""
    rows = [{"name": "A" * 500, "type": "text", "description": "x", "default": ""} for _ in range(9)]
    with pytest.raises(InvalidInput) as caught:
        validated(CONFIG, {"name": "c", "summary": "x", "settings": rows})
    assert caught.value.message.count("\n") == 6
    assert "more" in caught.value.message.splitlines()[-1]
    assert len(caught.value.message) < 2000


def test_fractions_and_floods_are_no_inputs() -> None:
    """A program that passes a fraction, a deep nest or megabytes gets a sentence, not a traceback."""
    deep: object = []
    for _ in range(100_000):
        deep = [deep]
    for wrong, message in ((1.0, "float"), ("x" * (MOST_BYTES + 1), "larger than"), (deep, "cannot be read")):
        with pytest.raises(InvalidInput, match=message):
            validated(PYTHON, {"name": wrong, "summary": "x"})  # type: ignore[dict-item]


def test_a_list_of_patterns_loads_no_schema_library() -> None:
    """`jsonschema` is imported when inputs are checked, not when patterns are listed."""
    program = "import sys, holdfast.engine.patterns; print('jsonschema' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
