"""What patterns generate is run for real: it compiles, its own test passes, and breaking it makes that test fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from holdfast.model.plan import Plan
from planning.patterns.recipes import BUILT_IN, CASES, PATTERNS, case, files_of, pattern_of, planned, tree_of

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}
NAMES = sorted(path.stem for path in CASES.glob("*.json") if "verify" in case(path.stem))
PYTHON = [name for name in NAMES if any("python3" in argv for argv in case(name)["verify"])]
NODE = [name for name in NAMES if any("node" in argv for argv in case(name)["verify"])]
node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def _written(place: Path, name: str) -> Plan:
    """The tree of the case with the plan's files in it."""
    found = case(name)
    tree = tree_of(found)
    plan = planned(pattern_of(found), found["inputs"], tree)
    for path, content in {**tree, **files_of(plan, tree)}.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(content, encoding="utf-8")
    return plan


def _run(place: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable if argv[0] == "python3" else argv[0], *argv[1:]]
    return subprocess.run(words, cwd=place, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", [*PYTHON[:2], *(pytest.param(name, marks=pytest.mark.long) for name in PYTHON[2:])])
def test_generated_python_compiles_and_its_test_passes(name: str, tmp_path: Path) -> None:
    """Every Python file compiles; the test passes under the plan's own command and under pytest."""
    plan = _written(tmp_path, name)
    for path in tmp_path.rglob("*.py"):
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    done = _run(tmp_path, *plan.verify[0].argv)
    assert done.returncode == 0, done.stderr
    assert "OK" in done.stderr
    root = next((folder for folder in ("src", "lib") if (tmp_path / folder).is_dir()), ".")
    tests = [str(path) for path in tmp_path.rglob("test_*.py")]
    options = (
        "-q",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
        "-c",
        "/dev/null",
        "-o",
        f"pythonpath={tmp_path / root}",
    )
    run = _run(tmp_path, sys.executable, "-m", "pytest", *options, *tests)
    assert run.returncode == 0, run.stdout
    assert "passed" in run.stdout


@node
@pytest.mark.parametrize("name", NODE)
def test_generated_node_passes_its_test(name: str, tmp_path: Path) -> None:
    """The test passes under node's own runner."""
    plan = _written(tmp_path, name)
    done = _run(tmp_path, *plan.verify[0].argv)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("name", "file", "old", "new"),
    [
        ("example_module_creation_python_package", "src/billing/invoices.py", '"""Invoices', "raise ImportError  # "),
        ("example_module_creation_python_module", "invoices.py", "frozen=True", "frozen=False"),
        ("example_module_creation_cli_command", "greet/cli.py", "default=1", "default=2"),
        ("example_config_setup_001", "config/server.json", "8080", "8081"),
        ("example_config_setup_001", "server_config.py", "maximum=65535", "maximum=65536"),
        ("config_toml", "etc/job.toml", "depth = -3", "depth = 3"),
        pytest.param(
            "example_module_creation_node_module",
            "src/date-range.mjs",
            "Object.freeze({ ...fields })",
            "fields",
            marks=node,
        ),
    ],
)
def test_a_generated_test_can_fail(name: str, file: str, old: str, new: str, tmp_path: Path) -> None:
    """A generated test notices when what it tests is broken."""
    plan = _written(tmp_path, name)
    text = (tmp_path / file).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    assert _run(tmp_path, *plan.verify[0].argv).returncode != 0


def test_a_generated_command_runs(tmp_path: Path) -> None:
    """`python -m` with options prints them; --help shows the words with their percent signs."""
    _written(tmp_path, "command_hostile_words")
    done = _run(tmp_path, "python3", "-m", "odd", "--below-zero=7")
    assert json.loads(done.stdout) == {"some_text": 'it\'s "${x}" \\ é', "below_zero": 7}
    assert "a 'text' of 50%" in _run(tmp_path, "python3", "-m", "odd", "--help").stdout


def test_a_generated_schema_agrees_with_the_generated_file(tmp_path: Path) -> None:
    """The JSON schema is a schema of its draft, accepts the file beside it, and refuses what the loader refuses."""
    _written(tmp_path, "example_config_setup_001")
    schema = json.loads((tmp_path / "config/server.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    values = json.loads((tmp_path / "config/server.json").read_text())
    assert list(Draft202012Validator(schema).iter_errors(values)) == []
    for wrong in ({"port": 0}, {"port": "a"}, {"level": "x"}, {"admins": [1]}, {"more": 1}):
        assert list(Draft202012Validator(schema).iter_errors(wrong)) != []


@pytest.mark.parametrize("pattern", BUILT_IN, ids=lambda pattern: pattern.id)
def test_every_built_in_schema_is_one_and_its_example_works(pattern: object) -> None:
    """The schema of each pattern is a schema of draft 2020-12, closed at the top, and the example makes a plan."""
    found = next(item for item in BUILT_IN if item is pattern)
    Draft202012Validator.check_schema(found.schema)
    assert found.schema["additionalProperties"] is False
    assert planned(found, found.example, {}).steps
    assert found.title and found.description
    json.dumps(found.document())


NAMES_OF_A_RECORD = frozenset(
    "__doc__ __annotations__ dataclasses dataclass annotations __future__ __all__ One".split()
)
LINES = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), min_size=1, max_size=40).map(
    lambda text: f"a{text}b"
)


@settings(max_examples=200)
@given(LINES, LINES)
def test_no_text_breaks_out_of_generated_python(summary: str, other: str) -> None:
    """Whatever one line of text says, it stays text: the docstring is exactly it, and no other name appears."""
    inputs = {
        "name": "made",
        "summary": summary,
        "records": [{"name": "One", "summary": other, "fields": [{"name": "a", "type": "text"}]}],
    }
    source = files_of(planned(PATTERNS["module_creation_python_module"], inputs, {}), {})["made.py"]
    # Our own text around two literals; should one break out, other names would appear.
    compiled = compile(source, "made.py", "exec", dont_inherit=True)
    assert set(compiled.co_names) <= NAMES_OF_A_RECORD
    assert compiled.co_consts[0] == summary
