"""Patches: unified diffs as nouns, whoever wrote them.

    text ──patch_text.parse──▶ Patch ──patch_rules.validate──▶ objections, or none
                                 │────patch_apply.apply──────▶ Applied | NotApplying   (one file at a time)
                                 └────reverse, rendered──────▶ another patch, the text again

Invariants
  P1  A line carries its own end: only the last line of a file may be without one, and a carriage return is content.
  P2  `rendered` is the one spelling of a patch, in git's format; parsing it gives the same patch again.
  P3  `reverse` is exact: reversed twice it is the same patch. A copy has no inverse that the patch itself knows.
  P4  A patch's digest covers what it does (paths, modes, lines), not the text around it nor its section headings:
      the same patch in another mail is the same patch.

Paths are as the patch says, with prefixes taken off; they are untrusted until `validate` has seen them.
Modes are permission bits, and a patch knows two of them: 0644 and 0755.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.canonical import digest_of
from holdfast.model.path import printable

Sign = Literal[" ", "-", "+"]
Kind = Literal["change", "create", "delete", "rename", "copy"]
NO_NEWLINE = b"\\ No newline at end of file\n"
_OPPOSITE: dict[Sign, Sign] = {" ": " ", "-": "+", "+": "-"}


class Line(NamedTuple):
    """One line of a hunk, with its line end (P1)."""

    sign: Sign
    text: bytes


class Hunk(NamedTuple):
    """One place of a file. Starts count from 1; a side without lines names the line it stands after.

    `old_start` is -1 where the patch did not say; `at` is the line of the patch's text.
    """

    old_start: int
    old_count: int
    new_start: int
    new_count: int
    lines: tuple[Line, ...]
    section: bytes = b""
    at: int = 0

    @property
    def old(self) -> tuple[bytes, ...]:
        return tuple(line.text for line in self.lines if line.sign != "+")

    @property
    def new(self) -> tuple[bytes, ...]:
        return tuple(line.text for line in self.lines if line.sign != "-")

    @property
    def place(self) -> int:
        """Where the old lines begin, counted from 0; -1 where the patch did not say."""
        return self.old_start if not self.old_count else self.old_start - 1 if self.old_start > 0 else -1


class FilePatch(NamedTuple):
    """What happens to one file; a side that does not exist is None. `at` is the line of the patch's text."""

    old_path: str | None
    new_path: str | None
    hunks: tuple[Hunk, ...] = ()
    old_mode: int | None = None
    new_mode: int | None = None
    copied: bool = False
    at: int = 0

    @property
    def kind(self) -> Kind:
        if self.old_path is None:
            return "create"
        if self.new_path is None:
            return "delete"
        if self.copied:
            return "copy"
        return "change" if self.old_path == self.new_path else "rename"

    @property
    def path(self) -> str:
        """The path that a person would name: where the file is afterwards, or was."""
        return self.new_path if self.new_path is not None else self.old_path or ""

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it reads or changes."""
        return tuple(dict.fromkeys(path for path in (self.old_path, self.new_path) if path is not None))


class Repair(NamedTuple):
    """Something wrong in the text that could be read in one way only; `line` counts from 1."""

    line: int
    what: str


class Patch(NamedTuple):
    files: tuple[FilePatch, ...]
    repairs: tuple[Repair, ...] = ()

    @property
    def digest(self) -> str:
        """P4."""
        return digest_of([_row(file) for file in self.files])

    @property
    def paths(self) -> tuple[str, ...]:
        return tuple(sorted({path for file in self.files for path in file.paths}))

    @property
    def changed_lines(self) -> int:
        return sum(line.sign != " " for file in self.files for hunk in file.hunks for line in hunk.lines)


def reverse(patch: Patch) -> Patch:
    """The patch that takes this one back; InvalidInput where there is none (P3)."""
    return Patch(tuple(_reversed_file(file) for file in reversed(patch.files)))


def rendered(patch: Patch) -> bytes:
    """The patch as text, in git's format."""
    return b"".join(piece for file in patch.files for piece in _file_text(file))


def hunk_text(hunk: Hunk) -> Iterator[bytes]:
    """Its header and its lines, each with a line end."""
    old, new = _span(hunk.old_start, hunk.old_count), _span(hunk.new_start, hunk.new_count)
    yield f"@@ -{old} +{new} @@".encode("ascii") + (b" " + hunk.section if hunk.section else b"") + b"\n"
    for line in hunk.lines:
        yield line.sign.encode("ascii") + line.text
        if not line.text.endswith(b"\n"):
            yield b"\n" + NO_NEWLINE


def _reversed_file(file: FilePatch) -> FilePatch:
    if file.copied:
        raise InvalidInput(
            f"the copy {printable(file.path)} cannot be reversed: the patch does not hold what it would remove",
            hint="Undo the execution that applied it instead: holdfast undo ID",
        )
    return FilePatch(
        file.new_path, file.old_path, tuple(_reversed_hunk(hunk) for hunk in file.hunks), file.new_mode, file.old_mode
    )


def _reversed_hunk(hunk: Hunk) -> Hunk:
    # Within a run of changes the removed lines stand first, as every tool writes them.
    lines: list[Line] = []
    waiting: list[Line] = []
    for line in hunk.lines:
        turned = Line(_OPPOSITE[line.sign], line.text)
        if turned.sign == "+":
            waiting.append(turned)
            continue
        if turned.sign == " ":
            lines += waiting
            waiting = []
        lines.append(turned)
    return Hunk(hunk.new_start, hunk.new_count, hunk.old_start, hunk.old_count, (*lines, *waiting), hunk.section)


def _file_text(file: FilePatch) -> Iterator[bytes]:
    old, new = file.old_path or file.path, file.path
    yield b"diff --git " + quoted("a/" + old) + b" " + quoted("b/" + new) + b"\n"
    yield from _mode_lines(file)
    if file.kind in ("rename", "copy"):
        yield f"{file.kind} from ".encode("ascii") + quoted(old) + b"\n"
        yield f"{file.kind} to ".encode("ascii") + quoted(new) + b"\n"
    if not file.hunks:
        return
    yield b"--- " + (_name("a/" + old) if file.old_path is not None else b"/dev/null\n")
    yield b"+++ " + (_name("b/" + new) if file.new_path is not None else b"/dev/null\n")
    for hunk in file.hunks:
        yield from hunk_text(hunk)


def _mode_lines(file: FilePatch) -> Iterator[bytes]:
    match file.kind:
        case "create":
            yield f"new file mode 100{file.new_mode or 0o644:03o}\n".encode("ascii")
        case "delete":
            yield f"deleted file mode 100{file.old_mode or 0o644:03o}\n".encode("ascii")
        case _ if file.new_mode is not None:
            yield f"old mode 100{file.old_mode or 0o644:03o}\n".encode("ascii")
            yield f"new mode 100{file.new_mode:03o}\n".encode("ascii")


_ESCAPES = {7: b"a", 8: b"b", 9: b"t", 10: b"n", 11: b"v", 12: b"f", 13: b"r", 34: b'"', 92: b"\\"}


def quoted(name: str) -> bytes:
    """A name as git writes it: as it is, or in C's quotes where it holds anything but plain characters."""
    raw = name.encode("utf-8", "surrogateescape")
    if all(32 <= byte < 127 and byte not in _ESCAPES for byte in raw):
        return raw
    return b'"' + b"".join(map(_character, raw)) + b'"'


def _character(byte: int) -> bytes:
    if byte in _ESCAPES:
        return b"\\" + _ESCAPES[byte]
    return bytes([byte]) if 32 <= byte < 127 else f"\\{byte:03o}".encode("ascii")


def _name(name: str) -> bytes:
    """A name on a line of its own; a tab ends one with blanks, as the readers of patches expect."""
    text = quoted(name)
    return text + (b"\t\n" if b" " in text and not text.startswith(b'"') else b"\n")


def _span(start: int, count: int) -> str:
    return str(start) if count == 1 else f"{start},{count}"


def _row(file: FilePatch) -> list[object]:
    hunks = [[hunk.old_start, [line.sign + line.text.decode("latin-1") for line in hunk.lines]] for hunk in file.hunks]
    return [file.old_path, file.new_path, file.old_mode, file.new_mode, file.copied, hunks]
