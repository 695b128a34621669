"""The change file: bytes in, a Plan out, or one sentence with a line number.

    bytes ──▶ text ──▶ JSON (first character `{`) or YAML ──▶ value ──▶ Plan
      │         │                     │                         │
      └─────────┴─────────────────────┴── Fault ────────────────┘──▶ InvalidChangeFile(source:line)

Invariants
  I1  Whatever the bytes, the outcome is a Plan or a HoldfastError.
  I2  Nothing is guessed: unknown keys, double keys and values of doubtful meaning are refused.
  I3  Lines are looked for only after something was refused; a correct file pays nothing for them.
  I4  Only regular files and standard input are read; a FIFO or device is recognised without opening it.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.disk.calls import CALLS
from holdfast.errors import InvalidChangeFile, InvalidInput
from holdfast.intake import jsontext
from holdfast.intake.contents import Private, nothing_private
from holdfast.intake.document import plan_of
from holdfast.intake.values import Event, Fault, Value, line_of
from holdfast.model.path import printable
from holdfast.model.plan import Plan

MAX_BYTES = 256 * 1024 * 1024
STANDARD_INPUT = "-"
_CHUNK = 8 * 1024 * 1024
_OBJECT = re.compile(r"[ \t\r\n]*\{")


class _Format(NamedTuple):
    load: Callable[[str], Value]
    events: Callable[[str], Iterator[Event]]


def read_change_file(path: str, private: Private = nothing_private) -> Plan:
    """The plan in a file, or on standard input for `-`; content_from is looked up beside the file, if not private."""
    if path == STANDARD_INPUT:
        return _plan(_text(_standard_input(), "stdin"), "stdin", os.curdir, private)
    source = printable(path)
    # The bytes are held by nobody while the text is parsed: one copy of a large file fewer.
    return _plan(_text(_file(path, source), source), source, os.path.dirname(path) or os.curdir, private)


def read_bytes(path: str) -> bytes:
    """A change file as it stands, or standard input for `-`."""
    return _standard_input() if path == STANDARD_INPUT else _file(path, printable(path))


def document_of(data: bytes, *, source: str) -> Value:
    """The value that some bytes spell, before it is read as a plan."""
    text = _text(data, source)
    form = _format_of(text)
    try:
        return form.load(text)
    except Fault as fault:
        raise _located(fault, form, text, source) from None


def parse_change_file(data: bytes, *, source: str, directory: str, private: Private = nothing_private) -> Plan:
    """The plan in some bytes; `source` is the name that errors show, `directory` where content_from is looked up."""
    return _plan(_text(data, source), source, directory, private)


def _plan(text: str, source: str, directory: str, private: Private = nothing_private) -> Plan:
    form = _format_of(text)
    try:
        return plan_of(form.load(text), directory, private)
    except Fault as fault:
        raise _located(fault, form, text, source) from None


def _located(fault: Fault, form: _Format, text: str, source: str) -> InvalidChangeFile:
    try:
        line = fault.line or line_of(form.events(text), fault.where)
    except Fault as earlier:
        # The walk met something worse on the way, such as nesting without end.
        return InvalidChangeFile(earlier.message, source=source, line=earlier.line, hint=earlier.hint)
    return InvalidChangeFile(fault.message, source=source, line=line, hint=fault.hint)


def _format_of(text: str) -> _Format:
    if _OBJECT.match(text):
        return _Format(jsontext.load, jsontext.events)
    from holdfast.intake import yamltext  # 20 ms that JSON need not pay

    return _Format(yamltext.load, yamltext.events)


def _text(data: bytes, source: str) -> str:
    """The bytes as text, or the line of the first byte that is none."""
    if len(data) > MAX_BYTES:
        raise _too_large(source)
    if not data or data.isspace():
        raise InvalidChangeFile("the file is empty", source=source, line=1)
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidChangeFile("the file is UTF-16; save it as UTF-8", source=source, line=1)
    if data.startswith(b"\xef\xbb\xbf"):
        raise InvalidChangeFile("the file starts with a byte order mark; save it as UTF-8 without BOM",
                                source=source, line=1)  # fmt: skip
    nul = data.find(b"\0")
    if nul >= 0:
        raise InvalidChangeFile("the file contains a NUL byte", source=source, line=data.count(b"\n", 0, nul) + 1)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidChangeFile(f"the byte {data[error.start]:02x} is not UTF-8", source=source, line=line,
                                hint="Bytes that are not text go into content_base64.") from None  # fmt: skip


def _file(path: str, source: str) -> bytes:
    try:
        _refuse_irregular(CALLS.stat(path), source)
        fd = CALLS.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        with open(fd, "rb", buffering=0) as file:
            _refuse_irregular(CALLS.fstat(fd), source)
            return _all(file.read, source)
    except OSError as error:
        raise InvalidInput(f"{source}: {(error.strerror or str(error)).lower()}") from None
    except ValueError:
        raise InvalidInput(f"{source}: not a file name") from None


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise InvalidInput("standard input is closed")
    try:
        return _all(sys.stdin.buffer.read, "stdin")
    except OSError as error:
        raise InvalidInput(f"stdin: {(error.strerror or str(error)).lower()}") from None


def _all(read: Callable[[int], bytes | None], source: str) -> bytes:
    """Everything up to the limit; a file may grow while it is read, so its size is no promise."""
    chunks: list[bytes] = []
    size = 0
    while chunk := read(_CHUNK):
        size += len(chunk)
        if size > MAX_BYTES:
            raise _too_large(source)
        chunks.append(chunk)
    return b"".join(chunks)


def _refuse_irregular(found: os.stat_result, source: str) -> None:
    if stat.S_ISREG(found.st_mode):
        if found.st_size > MAX_BYTES:
            raise _too_large(source)
        return
    word = "a directory" if stat.S_ISDIR(found.st_mode) else "a pipe" if stat.S_ISFIFO(found.st_mode) else "a device"
    hint = "Give a pipe on standard input: … | holdfast apply -" if stat.S_ISFIFO(found.st_mode) else ""
    raise InvalidInput(f"{source} is {word}, not a change file", hint=hint)


def _too_large(source: str) -> InvalidChangeFile:
    return InvalidChangeFile(f"the file is larger than {MAX_BYTES // (1024 * 1024)} MiB", source=source,
                             hint="Large contents belong into files named by content_from.")  # fmt: skip
