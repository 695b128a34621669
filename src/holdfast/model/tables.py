"""Configuration that is already decoded, read strictly: what was not asked for is an error, and so is a wrong type.

Invariants
  Y1  Every error names the file, the table and the key.
  Y2  A key that nobody asked for is refused by `close`; a typing error never becomes a missing rule.
  Y3  Nothing is converted: "20" is no number, 1 is no truth value, 1.5 is no integer.

Absent is None, so that a caller can tell a layer that says nothing from one that says the default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, NoReturn, TypeVar

from holdfast.errors import InvalidInput
from holdfast.model.path import printable

Layer = Literal["built-in", "managed", "user", "workspace", "project"]
# In the order in which they are applied. Of these "workspace" is the user's too, for one workspace alone.
LAYERS: tuple[Layer, ...] = ("built-in", "managed", "user", "workspace", "project")

_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h|d)")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SIZE = re.compile(r"([0-9]{1,12})(B|KB|MB|GB|TB)")
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_MICROS = 1_000_000
Word = TypeVar("Word", bound=str)


class Source(NamedTuple):
    """What one layer says, as decoded: `file` is for people, `values` is untrusted until read."""

    layer: Layer
    file: str
    values: Mapping[str, object]


class Table:
    """One table of one file. Ask for every key there may be, then `close`."""

    def __init__(self, values: Mapping[str, object], file: str, name: str = "") -> None:
        self.file = file
        self.name = name
        self.values = values
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self.values

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys, for tables whose keys are names that the user chose."""
        return tuple(self.values)

    def close(self) -> None:
        """Refuse what was not asked for (Y2)."""
        for key in self.values:
            if key not in self._asked:
                self.refuse(key, "is not known here", hint=_suggestion(key, self._asked))

    def refuse(self, key: str, why: str, *, hint: str = "") -> NoReturn:
        table = f"[{self.name}] " if self.name else ""
        raise InvalidInput(printable(f"{self.file}: {table}{key} {why}"), hint=hint)

    def text(self, key: str) -> str | None:
        value = self._ask(key)
        if value is not None and not isinstance(value, str):
            self.refuse(key, f"must be a text, not {_kind(value)}")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._ask(key)
        if value is not None and not isinstance(value, bool):
            self.refuse(key, f"must be true or false, not {_kind(value)}")
        return value

    def integer(self, key: str, *, least: int = 0) -> int | None:
        value = self._ask(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int):
            self.refuse(key, f"must be a whole number, not {_kind(value)}")
        if not least <= value < 2**63:
            self.refuse(key, f"must be at least {least}")
        return value

    def choice(self, key: str, words: Sequence[Word]) -> Word | None:
        value = self.text(key)
        for word in words:
            if word == value:
                return word
        if value is not None:
            self.refuse(key, f"must be one of {', '.join(words)}, not {value!r}")
        return None

    def texts(self, key: str) -> tuple[str, ...] | None:
        values = self._items(key)
        return None if values is None else tuple(self._text_in(key, value) for value in values)

    def commands(self, key: str) -> tuple[tuple[str, ...], ...] | None:
        """A list of commands, each a list of arguments; there is no shell."""
        values = self._items(key)
        return None if values is None else tuple(self._command_in(key, value) for value in values)

    def command(self, key: str) -> tuple[str, ...] | None:
        value = self._ask(key)
        return None if value is None else self._command_in(key, value)

    def duration_ms(self, key: str) -> int | None:
        return self._measured(key, _DURATION, _MILLISECONDS, 'a time such as "20m"')

    def size(self, key: str) -> int | None:
        return self._measured(key, _SIZE, _BYTES, 'a size such as "50MB"')

    def micro_usd(self, key: str) -> int | None:
        """Money as millionths of a dollar: the canonical form has no fractions."""
        value = self._ask(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.refuse(key, f"must be a number of dollars, not {_kind(value)}")
        if not 0 <= value <= 10**9:  # also refuses nan
            self.refuse(key, "must be between 0 and a thousand million dollars")
        return round(value * _MICROS)

    def table(self, key: str) -> Table | None:
        value = self._ask(key)
        return None if value is None else self._table_in(key, value, key)

    def tables(self, key: str) -> tuple[Table, ...]:
        values = self._items(key) or ()
        return tuple(self._table_in(key, value, f"{key}.{n + 1}") for n, value in enumerate(values))

    def strings_or_tables(self, key: str) -> tuple[str | Table, ...]:
        """A list in which the short form of an item is a text."""
        values = self._items(key) or ()
        return tuple(
            value if isinstance(value, str) else self._table_in(key, value, f"{key}.{n + 1}")
            for n, value in enumerate(values)
        )

    def _ask(self, key: str) -> object:
        self._asked.add(key)
        return self.values.get(key)

    def _items(self, key: str) -> list[object] | None:
        value = self._ask(key)
        if value is not None and not isinstance(value, list):
            self.refuse(key, f"must be a list, not {_kind(value)}")
        return value

    def _measured(self, key: str, form: re.Pattern[str], units: Mapping[str, int], wanted: str) -> int | None:
        value = self.text(key)
        if value is None:
            return None
        found = form.fullmatch(value)
        if found is None:
            self.refuse(key, f"must be {wanted}, not {value!r}")
        return int(found[1]) * units[found[2]]

    def _text_in(self, key: str, value: object) -> str:
        if not isinstance(value, str) or not value or "\0" in value:
            self.refuse(key, "must be a list of texts, none of them empty")
        return value

    def _command_in(self, key: str, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not value:
            self.refuse(key, 'must be a list of arguments, such as ["make", "test"]')
        return tuple(self._text_in(key, item) for item in value)

    def _table_in(self, key: str, value: object, name: str) -> Table:
        if not isinstance(value, Mapping) or not all(isinstance(item, str) for item in value):
            self.refuse(key, f"must be a table, not {_kind(value)}")
        return Table(value, self.file, f"{self.name}.{name}" if self.name else name)


def _kind(value: object) -> str:
    words = {
        bool: "a truth value",
        int: "a number",
        float: "a fraction",
        str: "a text",
        list: "a list",
        dict: "a table",
    }
    return words.get(type(value), f"a {type(value).__name__}")


def _suggestion(key: str, known: set[str]) -> str:
    from difflib import get_close_matches  # only on the way to an error

    near = get_close_matches(key, sorted(known), 1)
    return f"Did you mean {near[0]}?" if near else f"Known here: {', '.join(sorted(known)) or 'nothing'}."
