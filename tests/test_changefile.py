"""Reading change files: where the bytes may come from, what content_from may reach, and how much is too much."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError, InvalidChangeFile, InvalidInput
from holdfast.intake.changefile import parse_change_file, read_change_file
from holdfast.model.plan import FromFile, Inline, Plan, Write

MIB = 1024 * 1024
SMALLEST = b'{"intent": "x", "steps": [{"create": "a"}]}'
FROM_STDIN = "from holdfast.intake.changefile import read_change_file; print(read_change_file('-').digest)"


def _parse(document: object, directory: Path) -> Plan:
    return parse_change_file(json.dumps(document).encode(), source="test.json", directory=str(directory))


def _plan_from(directory: Path, *names: str) -> Plan:
    steps = [{"write": f"copy{n}", "content_from": name} for n, name in enumerate(names)]
    return _parse({"intent": "x", "steps": steps}, directory)


def _contents(plan: Plan) -> list[Inline | FromFile]:
    return [step.content for step in plan.steps if isinstance(step, Write)]


def _refusal(path: Path | str) -> HoldfastError:
    with pytest.raises(InvalidInput) as caught:
        read_change_file(str(path))
    return caught.value


def _python(code: str, *arguments: str, text: str | None = None, stdin: int | None = None) -> tuple[str, str]:
    """Standard output and standard error of a Python program."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        input=text, stdin=stdin, text=True, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    return done.stdout, done.stderr


@contextmanager
def _as_an_ordinary_user() -> Iterator[None]:
    """Root may read everything; be somebody else for a moment."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_a_missing_file_is_named() -> None:
    """A change file that is not there is refused by name, with exit status 2."""
    error = _refusal("absent/change.yaml")
    assert (error.message, error.exit_status) == ("absent/change.yaml: no such file or directory", 2)


def test_an_unreadable_file_is_refused(public: Path) -> None:
    """A change file without read permission is refused with the reason."""
    path = public / "change.json"
    path.write_bytes(SMALLEST)
    path.chmod(0)
    with _as_an_ordinary_user():
        error = _refusal(path)
    assert error.message == f"{path}: permission denied"


def test_a_directory_is_not_a_change_file(tmp_path: Path) -> None:
    """A directory given as change file is called what it is."""
    assert _refusal(tmp_path).message == f"{tmp_path} is a directory, not a change file"


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    """A FIFO given as change file is refused at once, and the hint names standard input."""
    os.mkfifo(tmp_path / "pipe")
    error = _refusal(tmp_path / "pipe")
    assert error.message.endswith("is a pipe, not a change file")
    assert "holdfast apply -" in error.hint


def test_a_device_is_not_a_change_file() -> None:
    """A device given as change file is not read."""
    assert _refusal("/dev/zero").message == "/dev/zero is a device, not a change file"


@pytest.mark.parametrize("name", ["a\0b", "\ud800", "n" * 5000, ""])
def test_an_impossible_name_is_an_error_for_people(name: str) -> None:
    """A name no file can have is refused like any other bad input."""
    assert _refusal(name).exit_status == 2


def test_the_name_of_the_file_cannot_move_the_cursor(tmp_path: Path) -> None:
    """Control characters in the change file's own name are escaped in messages."""
    path = tmp_path / "a\x1b[2J.yaml"
    path.write_text("")
    assert _refusal(path).message == f"{tmp_path}/a\\x1b[2J.yaml:1: the file is empty"


def test_a_dash_reads_standard_input(tmp_path: Path) -> None:
    """`-` reads the change file from standard input, and content_from is looked up in the current directory."""
    (tmp_path / "here.txt").write_text("hello")
    document = json.dumps({"intent": "x", "steps": [{"write": "copy0", "content_from": "here.txt"}]})
    output, errors = _python(f"import os; os.chdir({str(tmp_path)!r}); {FROM_STDIN}", text=document)
    assert (output.strip(), errors) == (_plan_from(tmp_path, "here.txt").digest, "")


def test_errors_on_standard_input_name_it() -> None:
    """A wrong change file on standard input is reported as stdin, with its line."""
    _output, errors = _python(FROM_STDIN, text="intent: x\nsteps: 5\n")
    assert errors.strip().endswith("InvalidChangeFile: stdin:2: steps must be a list, not a number")


def test_closed_standard_input_is_refused() -> None:
    """With standard input closed, `-` is an error for people, not a crash."""
    _output, errors = _python("import sys; sys.stdin = None; " + FROM_STDIN)
    assert errors.strip().endswith("InvalidInput: standard input is closed")


def test_standard_input_that_cannot_be_read_is_refused() -> None:
    """Standard input open for writing only gives a sentence."""
    fd = os.open(os.devnull, os.O_WRONLY)
    _output, errors = _python(FROM_STDIN, stdin=fd)
    os.close(fd)
    assert errors.strip().endswith("InvalidInput: stdin: bad file descriptor")


def test_json_does_not_load_the_yaml_library() -> None:
    """Reading JSON costs no import of PyYAML, urllib or difflib."""
    code = f"import sys; {FROM_STDIN}; print(*{{'yaml', 'urllib.parse', 'difflib'}} & set(sys.modules))"
    assert _python(code, text=SMALLEST.decode())[0].split("\n")[1:] == ["", ""]


def test_cases_read_alike_without_libyaml() -> None:
    """Where PyYAML has no C library, every case gives the same plan or is refused at the same line."""
    code = """
import sys
from pathlib import Path
if sys.argv[1] == "pure":
    sys.modules["yaml._yaml"] = None
import yaml
assert yaml.__with_libyaml__ == (sys.argv[1] == "fast")
from holdfast.errors import InvalidChangeFile
from holdfast.intake.changefile import read_change_file
for path in sorted(Path(sys.argv[2]).glob("*.yaml")):
    try:
        print(path.name, read_change_file(str(path)).digest)
    except InvalidChangeFile as error:
        print(path.name, error.line)
"""
    cases = str(Path(__file__).parent / "intake" / "cases")
    fast, pure = _python(code, "fast", cases), _python(code, "pure", cases)
    assert fast[0].count("\n") > 60
    assert fast == pure


def test_a_small_file_beside_is_taken_in(tmp_path: Path) -> None:
    """content_from of a small file gives its bytes, whatever they are."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "data").write_bytes(b"\x00\xff\n")
    assert _contents(_plan_from(tmp_path, "deep/data")) == [Inline(b"\x00\xff\n")]


def test_a_large_file_beside_is_named_and_hashed(tmp_path: Path) -> None:
    """content_from of a file over 1 MiB is kept by absolute path, size and SHA-256; 1 MiB itself is taken in."""
    large, limit = os.urandom(MIB + 1), os.urandom(MIB)
    (tmp_path / "large").write_bytes(large)
    (tmp_path / "limit").write_bytes(limit)
    expected = FromFile(str(tmp_path / "large"), MIB + 1, hashlib.sha256(large).hexdigest())
    assert _contents(_plan_from(tmp_path, "large", "limit", "large")) == [expected, Inline(limit), expected]


def test_many_small_files_do_not_fill_the_memory(tmp_path: Path) -> None:
    """At most 64 MiB of files beside are held in memory; the rest is named, with the same digest as if it were held."""
    names = [f"f{n}" for n in range(66)]
    for name in names:
        (tmp_path / name).touch()
        os.truncate(tmp_path / name, MIB)
    plan = _plan_from(tmp_path, *names)
    held = [isinstance(content, Inline) for content in _contents(plan)]
    assert held == [True] * 64 + [False] * 2
    zeros = Inline(bytes(MIB))
    whole = Plan("x", tuple(Write(f"copy{n}", zeros) for n in range(66)))
    assert plan.digest == whole.digest


def test_a_relative_directory_gives_an_absolute_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change file named relative to the current directory still names its large files absolutely."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "large").write_bytes(bytes(MIB + 1))
    (tmp_path / "sub" / "c.yaml").write_text("intent: x\nsteps: [{write: a, content_from: large}]\n")
    monkeypatch.chdir(tmp_path)
    [content] = _contents(read_change_file("sub/c.yaml"))
    assert isinstance(content, FromFile)
    assert content.origin == str(tmp_path / "sub" / "large")


def _make_link(directory: Path) -> None:
    (directory.parent / "secret").write_text("secret")
    (directory / "bad").symlink_to("../secret")


def _make_link_inside(directory: Path) -> None:
    (directory / "real").write_text("x")
    (directory / "bad").symlink_to("real")


def _make_pipe(directory: Path) -> None:
    os.mkfifo(directory / "bad")


def _make_socket(directory: Path) -> None:
    here = os.getcwd()
    os.chdir(directory)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("bad")
    os.chdir(here)


BAD_FILES = {
    "link out": (_make_link, "a symbolic link is on the way"),
    "link inside": (_make_link_inside, "a symbolic link is on the way"),
    "pipe": (_make_pipe, "is not a regular file"),
    "socket": (_make_socket, "is not a regular file"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_content_from_takes_regular_files_only(kind: str, tmp_path: Path) -> None:
    """content_from follows no link and opens no pipe or socket; it says why, at its line, and leaves nothing open."""
    make, reason = BAD_FILES[kind]
    directory = tmp_path / "beside"
    directory.mkdir()
    make(directory)
    (directory / "good").write_text("x")
    text = (
        b'{"intent": "x", "steps": [\n{"write": "a", "content_from": "good"},\n{"write": "a",\n"content_from": "bad"}]}'
    )
    opened = os.listdir("/proc/self/fd")
    with pytest.raises(InvalidChangeFile) as caught:
        parse_change_file(text, source="c", directory=str(directory))
    assert caught.value.message.startswith('c:4: content_from: "bad"')
    assert reason in caught.value.message
    assert os.listdir("/proc/self/fd") == opened


def test_content_from_an_unreadable_file_is_refused(public: Path) -> None:
    """content_from of a file that this user may not read is refused with the reason."""
    (public / "closed").write_text("x")
    (public / "closed").chmod(0)
    with _as_an_ordinary_user(), pytest.raises(InvalidChangeFile, match='content_from: "closed": permission denied'):
        _plan_from(public, "closed")


def test_content_from_through_a_linked_directory_is_refused(tmp_path: Path) -> None:
    """A symbolic link in the middle of content_from is refused as well."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "beside" / "up").symlink_to("..")
    with pytest.raises(InvalidChangeFile, match="a symbolic link is on the way"):
        _plan_from(tmp_path / "beside", "up/secret")


def test_content_from_cannot_take_holdfasts_own_state(tmp_path: Path) -> None:
    """Keys under .holdfast cannot be copied into the workspace by a plan."""
    (tmp_path / ".holdfast").mkdir()
    (tmp_path / ".holdfast" / "key").write_text("secret")
    with pytest.raises(InvalidChangeFile, match=r"\.holdfast is protected"):
        _plan_from(tmp_path, ".holdfast/key")


def test_a_file_whose_size_is_not_what_it_says_is_refused() -> None:
    """A file that yields other bytes than its size promises has changed, or is none."""
    with pytest.raises(InvalidChangeFile, match="changed while it was read"):
        _plan_from(Path("/proc/self"), "status")


def test_a_missing_directory_is_reported_at_the_step(tmp_path: Path) -> None:
    """content_from under a directory that is gone is a fault of that line."""
    with pytest.raises(InvalidChangeFile, match='content_from: "a": no such file or directory') as caught:
        _plan_from(tmp_path / "gone", "a")
    assert caught.value.line == 1


def test_a_file_over_the_limit_is_refused_unread(tmp_path: Path) -> None:
    """A change file over 256 MiB is refused by its size."""
    path = tmp_path / "huge.json"
    path.touch()
    os.truncate(path, 256 * MIB + 1)
    error = _refusal(path)
    assert error.message == f"{path}: the file is larger than 256 MiB"
    assert "content_from" in error.hint


def test_too_many_steps_are_refused(tmp_path: Path) -> None:
    """The 200,001st step is one too many; 200,000 are not."""
    step = b',{"create":"a"}'
    text = b'{"intent": "x",\n"steps": [{"create":"a"}%s]}'
    assert len(parse_change_file(text % (step * 199_999), source="c", directory=".").steps) == 200_000
    with pytest.raises(InvalidChangeFile, match="c:2: 200001 steps are more than 200000"):
        parse_change_file(text % (step * 200_000), source="c", directory=".")


@pytest.mark.parametrize("filler", [b"[],", b"{},", b'"",'])
def test_a_file_of_nothing_but_brackets_is_refused_before_it_fills_the_memory(filler: bytes) -> None:
    """Many millions of tiny values are refused while they are counted, not after they are built."""
    text = b'{"intent": "x", "steps": [%s0]}' % (filler * (9 * MIB // 2))
    with pytest.raises(InvalidChangeFile, match="the file has more than 4000000 values"):
        parse_change_file(text, source="c", directory=".")


def test_much_punctuation_in_texts_is_no_offence() -> None:
    """Commas and brackets inside contents do not count as values."""
    content = ",[{" * (3 * MIB)
    plan = _parse({"intent": "x", "steps": [{"write": "a", "content": content}]}, Path())
    assert _contents(plan) == [Inline(content.encode())]


def test_the_last_step_of_a_long_file_is_located() -> None:
    """The line of a fault is exact, also far down a machine-written file."""
    lines = [json.dumps({"write": f"f{n}", "content": "\n\n"}) + "," for n in range(20_000)]
    text = '{"intent": "x", "steps": [\n' + "\n".join(lines) + '\n{"write": "../f"}]}'
    with pytest.raises(InvalidChangeFile) as caught:
        parse_change_file(text.encode(), source="c", directory=".")
    assert caught.value.line == 20_002
