"""Templates: `${name}` is replaced by an input, `$$` is a dollar sign, and any other dollar sign is an error.

Invariant T1: replacing is done once, from left to right. What an input brings is never looked at again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from holdfast.errors import InvalidInput
from holdfast.model.canonical import Json

_DOLLAR = re.compile(r"\$(?:(\$)|\{([a-z][a-z0-9_]*)\}|)")


def names_in(template: str, where: str) -> frozenset[str]:
    """The inputs that a template names; InvalidInput with the line of a dollar sign that means nothing."""
    names: set[str] = set()
    for found in _DOLLAR.finditer(template):
        if found[2]:
            names.add(found[2])
        elif not found[1]:
            line = template.count("\n", 0, found.start()) + 1
            raise InvalidInput(
                f"{where}, line {line}: a dollar sign must be followed by {{name}} or another dollar sign",
                hint="Write $$ for one dollar sign.",
            )
    return frozenset(names)


def filled(template: str, values: Mapping[str, Json], where: str) -> str:
    """The text; InvalidInput for an input that was not given and has no default."""

    def value(found: re.Match[str]) -> str:
        if found[1]:
            return "$"
        if found[2] not in values:
            raise InvalidInput(f"{where} needs the input {found[2]}, which was not given")
        return _text(values[found[2]])

    return _DOLLAR.sub(value, template)


def _text(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    assert isinstance(value, (str, int)), "only texts, whole numbers and truth values are inputs of templates"
    return str(value)
