"""Coverage of lines from three formats, recognised by content: Cobertura XML, lcov, coverage.py's JSON.

Lines are counted one by one where the format lists them; a bare rate is believed only where it lists none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.checks.xmltext import MAX_BYTES, BadReport, read_xml

_COUNT = re.compile(r"[0-9]{1,12}")
_RATE = re.compile(r"(?:0(?:\.[0-9]{1,20})?|1(?:\.0{1,20})?)")
_RATE_LINES = 10_000


class Coverage(NamedTuple):
    covered: int
    total: int
    form: str

    @property
    def hundredths(self) -> int:
        """Rounded down: 79.999 % is not 80 %."""
        return self.covered * 10_000 // self.total if self.total else 0

    @property
    def summary(self) -> str:
        return f"coverage {self.hundredths // 100}.{self.hundredths % 100:02d} %"


def read_coverage(data: bytes) -> Coverage:
    """The coverage of a report in any of the three formats, or BadReport."""
    if len(data) > MAX_BYTES:
        raise BadReport(f"it is larger than {MAX_BYTES >> 20} MiB")
    start = data.lstrip(b"\xef\xbb\xbf \t\r\n")[:1]
    if start == b"<":
        return _checked(_cobertura(data))
    if start == b"{":
        return _checked(_json(data))
    if re.match(rb"\s*(TN|SF):", data):
        return _checked(_lcov(data))
    raise BadReport("it is neither Cobertura XML nor lcov nor JSON of coverage.py")


def _checked(coverage: Coverage) -> Coverage:
    if not 0 <= coverage.covered <= coverage.total:
        raise BadReport(f"it says that {coverage.covered} of {coverage.total} lines are covered")
    return coverage


def _cobertura(data: bytes) -> Coverage:
    reading = _Cobertura()
    read_xml(data, reading.start, reading.end)
    if reading.lines:
        return Coverage(sum(reading.lines.values()), len(reading.lines), "Cobertura")
    if reading.rate is None:
        return Coverage(0, 0, "Cobertura")
    return Coverage(int(float(reading.rate) * _RATE_LINES), _RATE_LINES, "Cobertura")


class _Cobertura:
    """A line may be listed in its method and in its class; it is one line, and covered when either says so."""

    def __init__(self) -> None:
        self.lines: dict[tuple[str, str], bool] = {}
        self.rate: str | None = None
        self._file = ""

    def start(self, name: str, attributes: Mapping[str, str], depth: int) -> None:
        if depth == 1:
            if name != "coverage":
                raise BadReport(f"it is not Cobertura XML: its outermost element is {name[:40]}")
            rate = attributes.get("line-rate", "")
            self.rate = rate if _RATE.fullmatch(rate) else None
        elif name == "class":
            self._file = attributes.get("filename", "")
        elif name == "line":
            number, hits = attributes.get("number", ""), attributes.get("hits", "")
            if not _COUNT.fullmatch(hits):
                raise BadReport("a line has no number of hits")
            place = (self._file, number)
            self.lines[place] = self.lines.get(place, False) or int(hits) > 0

    def end(self, name: str, depth: int) -> None:
        if name == "class":
            self._file = ""


def _lcov(data: bytes) -> Coverage:
    lines: dict[tuple[bytes, bytes], bool] = {}
    found = hit = 0
    file = b""
    for row in data.splitlines():
        key, _, value = row.strip().partition(b":")
        if key == b"SF":
            file = value
        elif key == b"DA":
            number, _, rest = value.partition(b",")
            count = rest.partition(b",")[0]
            place = (file, number)
            lines[place] = lines.get(place, False) or _count(count) > 0
        elif key == b"LF":
            found += _count(value)
        elif key == b"LH":
            hit += _count(value)
    return Coverage(sum(lines.values()), len(lines), "lcov") if lines else Coverage(hit, found, "lcov")


def _count(raw: bytes) -> int:
    text = raw.decode("ascii", "replace")
    if not _COUNT.fullmatch(text):
        raise BadReport(f"{text[:40]!r} is not a count")
    return int(text)


def _json(data: bytes) -> Coverage:
    import json

    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BadReport("it is not JSON") from None
    totals = document.get("totals") if isinstance(document, dict) else None
    if not isinstance(totals, dict):
        raise BadReport('it is not JSON of coverage.py: it has no "totals"')
    covered, total = totals.get("covered_lines"), totals.get("num_statements")
    if type(covered) is not int or type(total) is not int:
        raise BadReport("its totals are not counts of lines")
    return Coverage(covered, total, "coverage.py")
