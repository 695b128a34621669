"""Reading patches: unified diffs as tools, mails and models write them.

What is read: `diff -u`, git's format (new, deleted, renamed, copied, mode), quoted names, text around the diff (mails,
markdown), files without a last newline, carriage returns as content.
What is refused, with the line: binary content, links and submodules, merges' combined diffs, names of two files,
hunks that could be read in two ways.

Invariants
  R1  Whatever the bytes are, the outcome is a Patch or InvalidInput.
  R2  Where the counts of a hunk are true they decide, as for every other tool: a line that looks like a header, or like
      the signature of a mail, is content if it was counted.
  R3  Where they are not, the hunk is what its signs say, if its end is plain (a header, a fence, a blank line, the end
      of the text); that is a Repair, and told. A line without a sign in a hunk is never skipped or taken for an end.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.patch import FilePatch, Hunk, Line, Patch, Repair, Sign
from holdfast.model.patch_names import (
    header_names,
    name_on_line,
    one_name,
    plain_name,
    stripped,
    without_prefix,
)
from holdfast.model.path import printable

MOST_BYTES = 32 << 20
_GIT = b"diff --git "
_FACT = re.compile(
    rb"(old mode|new mode|deleted file mode|new file mode|copy from|copy to|rename from|rename to"
    rb"|similarity index|dissimilarity index|index) (.*)",
    re.DOTALL,
)
_NUMBERED = re.compile(
    rb"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(?: (.*))?", re.DOTALL
)  # fmt: skip
_UNNUMBERED = re.compile(rb"@@(?:[ .]*@@)?(?: ([^-].*))?", re.DOTALL)
_BINARY = re.compile(rb"GIT binary patch\r?|Binary files .* differ\r?", re.DOTALL)
_COMBINED = (b"diff --cc ", b"diff --combined ", b"@@@ ")
_ENDS = (b"```", b"~~~", b"@@", b"diff ", b"Index: ", b"Only in ")
_SIGNS: dict[bytes, Sign] = {b" ": " ", b"-": "-", b"+": "+"}
_EMPTY = (b"", b"\r")


class _Body(NamedTuple):
    """The lines of a hunk, and the number of the line after them."""

    lines: tuple[Line, ...]
    end: int


class _Counts(NamedTuple):
    """What a hunk's header says; -1 where it says nothing."""

    old_start: int
    old: int
    new_start: int
    new: int
    section: bytes


class _Names(NamedTuple):
    old: str | None
    new: str | None
    copied: bool = False


def is_patch(data: bytes) -> bool:
    """Is there a unified diff in these bytes? A cheap look; whether it can be used, `parse` says."""
    if not data.startswith((b"--- ", _GIT)) and b"\n--- " not in data and b"\n" + _GIT not in data:
        return False
    lines = data.split(b"\n")
    return any(
        line.startswith(_GIT) or (_is_pair(lines, n) and n + 2 < len(lines) and lines[n + 2].startswith(b"@@"))
        for n, line in enumerate(lines)
    )


def parse(data: bytes, *, strip: int | None = None) -> Patch:
    """The patch in a text, or InvalidInput with the line. `strip` is the N of `patch -pN`, where the names need it."""
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"the patch is larger than {MOST_BYTES >> 20} MiB")
    return _Text(data, strip).patch()


class _Text:
    """The lines of one text; numbers are 0-based here and 1-based in every message."""

    def __init__(self, data: bytes, strip: int | None) -> None:
        self._lines = data.split(b"\n")
        self._cut_off = not data.endswith(b"\n")
        if not self._cut_off:
            self._lines.pop()
        self._strip = strip
        self._repairs: list[Repair] = []

    def patch(self) -> Patch:
        files: list[FilePatch] = []
        n = 0
        while n < len(self._lines):
            line = self._lines[n]
            if line.startswith(_GIT):
                file, n = self._git_file(n)
                files.append(file)
            elif _is_pair(self._lines, n):
                file, n = self._plain_file(n)
                files.append(file)
            else:
                self._refuse_outside(line, n)
                n += 1
        if not files:
            raise InvalidInput(
                "there is no unified diff in this text", hint="Make one with: git diff, or diff -u OLD NEW"
            )
        return Patch(tuple(files), tuple(self._repairs))

    def _refuse_outside(self, line: bytes, n: int) -> None:
        """Text around a diff is skipped, but not what must be part of one."""
        if line.startswith(_COMBINED):
            raise _wrong(n, "this is the combined diff of a merge; give the diff against one parent")
        if _BINARY.fullmatch(line):
            raise _wrong(n, "binary content; a patch here is text")
        if _NUMBERED.fullmatch(line.rstrip(b"\r")):
            raise _wrong(n, "a hunk without the names of its file, or after text that ended them")

    # ── files ──

    def _plain_file(self, n: int) -> tuple[FilePatch, int]:
        old, new = name_on_line(self._lines[n][4:], n + 1), name_on_line(self._lines[n + 1][4:], n + 2)
        hunks, end = self._hunks(n + 2)
        names = self._plain_names(old.path, new.path, n)
        if old.dated_missing and not any(hunk.old for hunk in hunks):
            names = names._replace(old=None)
        elif new.dated_missing and not any(hunk.new for hunk in hunks):
            names = names._replace(new=None)
        return _finished(names, hunks, {}, n), end

    def _plain_names(self, old: str | None, new: str | None, n: int) -> _Names:
        if self._strip is not None:
            old, new = self._cut(old, n), self._cut(new, n)
        elif old is not None and new is not None:
            old = new = one_name(old, new, n + 1)
        else:
            old = without_prefix(old, "a/") if old is not None else None
            new = without_prefix(new, "b/") if new is not None else None
        if old is not None and new is not None and old != new:
            old = new = one_name(old, new, n + 1)
        return _Names(old, new)

    def _cut(self, name: str | None, n: int) -> str | None:
        return stripped(name, self._strip or 0, n + 1) if name is not None else None

    def _git_file(self, n: int) -> tuple[FilePatch, int]:
        facts: dict[bytes, bytes] = {}
        end = n + 1
        while end < len(self._lines) and (fact := _FACT.fullmatch(self._lines[end])) is not None:
            facts[fact[1]] = fact[2].rstrip(b"\r")
            end += 1
        self._refuse_binary(end)
        sides = None
        hunks: tuple[Hunk, ...] = ()
        if _is_pair(self._lines, end):
            sides = (
                name_on_line(self._lines[end][4:], end + 1).path,
                name_on_line(self._lines[end + 1][4:], end + 2).path,
            )
            hunks, end = self._hunks(end + 2)
        return _finished(self._git_names(n, facts, sides), hunks, facts, n), end

    def _refuse_binary(self, n: int) -> None:
        if n < len(self._lines) and _BINARY.fullmatch(self._lines[n]):
            raise _wrong(n, "binary content; a patch here is text")

    def _git_names(self, n: int, facts: dict[bytes, bytes], sides: tuple[str | None, str | None] | None) -> _Names:
        for word in (b"rename", b"copy"):
            if word + b" from" in facts and word + b" to" in facts:
                old, new = (plain_name(facts[word + end], n + 1) for end in (b" from", b" to"))
                if sides is not None and not (_ends_with(sides[0], old) and _ends_with(sides[1], new)):
                    raise _wrong(
                        n, f"its names say something else than '{word.decode()} from' and '{word.decode()} to'"
                    )
                return _Names(old, new, word == b"copy")
        return self._unmoved(n, facts, sides)

    def _unmoved(self, n: int, facts: dict[bytes, bytes], sides: tuple[str | None, str | None] | None) -> _Names:
        """One name for both sides; git's own header tells which prefix there is, also where one side is missing."""
        header = header_names(self._lines[n][len(_GIT) :], n + 1)
        if header is None:
            if sides is None:
                raise _wrong(n, "the names of the file cannot be told apart")
            return self._plain_names(*sides, n)
        if self._strip is not None:
            path = one_name(stripped(header[0], self._strip, n + 1), stripped(header[1], self._strip, n + 1), n + 1)
        else:
            path = one_name(*header, n + 1)
        if sides is not None and not all(side is None or _ends_with(side, path) for side in sides):
            raise _wrong(n, "its header and its names speak of different files")
        old_gone = b"new file mode" in facts if sides is None else sides[0] is None
        new_gone = b"deleted file mode" in facts if sides is None else sides[1] is None
        return _Names(None if old_gone else path, None if new_gone else path)

    # ── hunks ──

    def _hunks(self, n: int) -> tuple[tuple[Hunk, ...], int]:
        hunks: list[Hunk] = []
        while n < len(self._lines) and self._lines[n].startswith(b"@@"):
            hunk, n = self._hunk(n)
            hunks.append(hunk)
        if not hunks:
            raise _wrong(min(n, len(self._lines) - 1), "the names of a file without a hunk after them")
        return tuple(hunks), n

    def _hunk(self, n: int) -> tuple[Hunk, int]:
        counts = _counts(self._lines[n].rstrip(b"\r"), n)
        body = self._counted(n + 1, counts)
        if body is None:
            body = self._recounted(n + 1)
            old, new = (sum(line.sign != sign for line in body.lines) for sign in ("+", "-"))
            said = f"says {counts.old} old and {counts.new} new lines" if counts.old >= 0 else "has no line numbers"
            self._repairs.append(Repair(n + 1, f"the hunk {said}; it has {old} and {new}"))
            counts = counts._replace(old=old, new=new)
        if self._cut_off and body.end == len(self._lines):
            self._repairs.append(Repair(body.end, "the text ends within a line; the line is taken as whole"))
        if not body.lines:
            raise _wrong(n, "a hunk without lines")
        return Hunk(
            counts.old_start, counts.old, counts.new_start, counts.new, body.lines, counts.section, n + 1
        ), body.end

    def _counted(self, n: int, counts: _Counts) -> _Body | None:
        """Exactly the lines that the header counts; None where they are not there, or where more follow (R2)."""
        if counts.old < 0:
            return None
        old, new, lines = counts.old, counts.new, list[Line]()
        while old > 0 or new > 0:
            line = self._line(n)
            if line is None:
                return None
            lines.append(line)
            old -= line.sign != "+"
            new -= line.sign != "-"
            n = self._after_remark(n + 1, lines)
        if old < 0 or new < 0 or self._goes_on(n):
            return None
        return _Body(tuple(lines), n)

    def _recounted(self, n: int) -> _Body:
        """The lines as their signs say (R3)."""
        lines: list[Line] = []
        blanks: list[Line] = []
        while (line := self._line(n)) is not None and not _is_pair(self._lines, n):
            if self._is_signature(n):
                raise _wrong(n, "the hunk's counts are wrong, and this line may be part of it or the end of a mail")
            if self._lines[n] in _EMPTY:
                blanks.append(line)  # inside the hunk if more of it follows
                n += 1
                continue
            lines += (*blanks, line)
            blanks = []
            n = self._after_remark(n + 1, lines)
        if not blanks and not self._is_end(n):
            raise _wrong(n, "a line in a hunk that is neither kept (blank), removed (-) nor added (+)")
        return _Body(tuple(lines), n)

    def _line(self, n: int) -> Line | None:
        """A line of a hunk, or None for anything else."""
        if n >= len(self._lines):
            return None
        raw = self._lines[n]
        if raw in _EMPTY:
            return Line(" ", raw + b"\n")  # editors and mails take off blanks at the end of lines
        sign = _SIGNS.get(raw[:1])
        return Line(sign, raw[1:] + b"\n") if sign is not None else None

    def _after_remark(self, n: int, lines: list[Line]) -> int:
        """Past `\\ No newline at end of file`, in whatever language; the line before it loses its end."""
        if n >= len(self._lines) or not self._lines[n].startswith(b"\\ "):
            return n
        lines[-1] = lines[-1]._replace(text=lines[-1].text[:-1])
        return n + 1

    def _goes_on(self, n: int) -> bool:
        """Do more lines of a hunk follow, although all are there that were counted?"""
        if n >= len(self._lines) or self._lines[n][:1] not in _SIGNS:
            return False
        return not _is_pair(self._lines, n) and not self._is_signature(n)

    def _is_signature(self, n: int) -> bool:
        """`-- `, and below it what a mail program signs with: git writes its version there."""
        return self._lines[n].rstrip() == b"--" and (n + 1 >= len(self._lines) or self._lines[n + 1][:1] not in _SIGNS)

    def _is_end(self, n: int) -> bool:
        return n >= len(self._lines) or self._lines[n].startswith(_ENDS) or _is_pair(self._lines, n)


def _counts(line: bytes, n: int) -> _Counts:
    found = _NUMBERED.fullmatch(line)
    if found is not None:
        old, new = (int(found[group]) if found[group] is not None else 1 for group in (2, 4))
        return _Counts(int(found[1]), old, int(found[3]), new, found[5] or b"")
    loose = _UNNUMBERED.fullmatch(line)
    if loose is None:
        raise _wrong(n, "this is no header of a hunk; one looks like @@ -12,7 +12,8 @@")
    return _Counts(-1, -1, -1, -1, loose[1] or b"")


def _is_pair(lines: list[bytes], n: int) -> bool:
    """`--- old` and `+++ new`: where a file begins."""
    return n + 1 < len(lines) and lines[n].startswith(b"--- ") and lines[n + 1].startswith(b"+++ ")


def _ends_with(name: str | None, path: str) -> bool:
    return name is not None and (name == path or name.endswith("/" + path))


def _finished(names: _Names, hunks: tuple[Hunk, ...], facts: dict[bytes, bytes], n: int) -> FilePatch:
    """The file with its modes, after a look at what contradicts itself."""
    old, new = names.old, names.new
    if old is None and new is None:
        raise _wrong(n, "neither side of the diff is a file")
    if (b"new file mode" in facts and old is not None) or (b"deleted file mode" in facts and new is not None):
        raise _wrong(n, f"{printable(new or old or '')} is said to be new or deleted, and its names say otherwise")
    if (old is None and any(hunk.old for hunk in hunks)) or (new is None and any(hunk.new for hunk in hunks)):
        raise _wrong(n, f"{printable(new or old or '')} does not exist on one side, and yet has lines there")
    if (old is None or new is None) and len(hunks) > 1:
        raise _wrong(n, f"{printable(new or old or '')} is new or deleted, and has several hunks")
    _require_ends(hunks)
    before = _mode(facts.get(b"old mode", facts.get(b"deleted file mode")), n)
    after = _mode(facts.get(b"new mode", facts.get(b"new file mode")), n)
    if old is None:
        return FilePatch(None, new, _starting(hunks, "old"), None, after or 0o644, at=n + 1)
    if new is None:
        return FilePatch(old, None, _starting(hunks, "new"), before or 0o644, None, at=n + 1)
    if (before is None) != (after is None):
        raise _wrong(n, f"{printable(new)} has only one of its two modes")
    same = before == after
    return FilePatch(
        old, new, hunks, None if same else before, None if same else after, names.copied, n + 1
    )  # fmt: skip


def _starting(hunks: tuple[Hunk, ...], side: str) -> tuple[Hunk, ...]:
    """Of a file that is new or deleted there is one place only, whatever the header says."""
    if side == "old":
        return tuple(hunk._replace(old_start=0, new_start=1) for hunk in hunks)
    return tuple(hunk._replace(old_start=1, new_start=0) for hunk in hunks)


def _require_ends(hunks: tuple[Hunk, ...]) -> None:
    for number, hunk in enumerate(hunks, 1):
        for side in (hunk.old, hunk.new):
            inner = side if number < len(hunks) else side[:-1]
            if not all(text.endswith(b"\n") for text in inner):
                raise _wrong(hunk.at - 1, "the hunk says 'no newline at end of file' before the end of the file")


def _mode(text: bytes | None, n: int) -> int | None:
    if text is None:
        return None
    if text in (b"120000", b"160000"):
        what = "a symbolic link" if text == b"120000" else "a submodule"
        raise _wrong(n, f"it is {what}; patches here are about files")
    if re.fullmatch(rb"100[0-7]{3}", text) is None:
        raise _wrong(n, f"{printable(text.decode('latin-1'))} is no mode of a file")
    return 0o755 if int(text, 8) & 0o100 else 0o644


def _wrong(n: int, what: str) -> InvalidInput:
    return InvalidInput(f"line {n + 1}: {what}")
