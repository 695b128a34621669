"""The inputs of a pattern: defaults filled in, checked against its JSON schema, errors in plain words.

The schema is checked by `jsonschema` (draft 2020-12), with two differences from the bare library:
a regular expression must fit the whole text (Python's `$` would let a line end slip through),
and no reference is ever fetched: there is an empty registry, and no schema of ours has one.

`jsonschema` costs a tenth of a second to import; nobody but the patterns imports this module.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from jsonschema import Draft202012Validator, ValidationError, validators
from referencing import Registry

from holdfast.errors import InvalidInput
from holdfast.intake.jsontext import load
from holdfast.intake.values import Fault
from holdfast.model.canonical import Json, canonical
from holdfast.model.path import printable
from holdfast.planning.patterns.pattern import Inputs, Pattern

MOST_BYTES = 1 << 20
_SHOWN = 5
_UNKNOWN = 100
_VALUE_SHOWN = 60
_TYPES = {
    "string": "text",
    "integer": "a whole number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a table",
}


def _whole_text(validator: object, pattern: str, instance: object, schema: object) -> Iterator[ValidationError]:
    if isinstance(instance, str) and re.fullmatch(pattern, instance) is None:
        yield ValidationError("pattern")


_Validator: type[Draft202012Validator] = validators.extend(  # type: ignore[no-untyped-call]
    Draft202012Validator, {"pattern": _whole_text}
)


def validated(pattern: Pattern, inputs: Inputs) -> dict[str, Json]:
    """The inputs with defaults, or InvalidInput that names each field and what it must be."""
    if faults := faults_of(pattern, inputs):
        _refuse(pattern, faults)
    return _with_defaults(pattern, inputs)


def faults_of(pattern: Pattern, inputs: Inputs) -> list[str]:
    """What is wrong with the inputs, a sentence each, in the order of the fields; empty where nothing is."""
    given: object = inputs
    if not isinstance(given, Mapping):
        return [f"the inputs must be a table, not {_shown(given)}"]
    values = _with_defaults(pattern, inputs)
    try:
        size = len(canonical(values))
    except (TypeError, RecursionError) as error:
        return [f"the inputs cannot be read: {error}"]
    if size > MOST_BYTES:
        return [f"the inputs are larger than {MOST_BYTES >> 20} MiB"]
    faults = sorted(_Validator(pattern.schema, registry=Registry()).iter_errors(values), key=_place)
    return list(dict.fromkeys(sentence for fault in faults for sentence in _sentences(fault)))


def _with_defaults(pattern: Pattern, inputs: Inputs) -> dict[str, Json]:
    return {**_defaults(pattern), **inputs}


def _defaults(pattern: Pattern) -> dict[str, Json]:
    return {
        name: rules["default"]
        for name, rules in _properties(pattern).items()
        if isinstance(rules, dict) and "default" in rules
    }


def _properties(pattern: Pattern) -> Mapping[str, Json]:
    found = pattern.schema["properties"]
    assert isinstance(found, dict), "a pattern's schema has properties"
    return found


def _place(fault: ValidationError) -> list[tuple[bool, int, str]]:
    """By place, numbers as numbers."""
    return [(isinstance(key, str), key if isinstance(key, int) else 0, str(key)) for key in fault.absolute_path]


def _refuse(pattern: Pattern, sentences: Sequence[str]) -> NoReturn:
    shown = list(sentences[:_SHOWN])
    if len(sentences) > _SHOWN:
        shown.append(f"and {len(sentences) - _SHOWN} more")
    whole = "".join(f"\n  {printable(sentence)}" for sentence in shown) if len(shown) > 1 else f" {printable(shown[0])}"
    raise InvalidInput(f"{pattern.id}:{whole}", hint=f"See what it takes with: holdfast patterns {pattern.id}")


def _sentences(fault: ValidationError) -> Iterator[str]:
    """One for each name that is missing or unknown, which may be several of one rule; else one."""
    field = field_name(fault.absolute_path)
    rule: Any = fault.validator_value
    match fault.validator:
        case "required":
            yield from (f"{_inside(field)}{name} is missing" for name in rule if name not in _table(fault.instance))
        case "additionalProperties":
            yield from _unknown(field, fault)
        case _:
            yield _sentence(field, fault)


def _sentence(field: str, fault: ValidationError) -> str:
    rule: Any = fault.validator_value
    match fault.validator:
        case "type":
            wanted = [rule] if isinstance(rule, str) else list(rule)
            return f"{field} must be {_either([_TYPES[name] for name in wanted])}, not {_shown(fault.instance)}"
        case "enum":
            return f"{field} must be one of {', '.join(str(word) for word in rule)}, not {_shown(fault.instance)}"
        case "pattern":
            return f"{field} is {_shown(fault.instance)}, but must be {_form(fault)}"
        case "minLength" | "minItems":
            return f"{field} must not be empty" if rule == 1 else f"{field} must have at least {rule} {_parts(fault)}"
        case "maxLength" | "maxItems":
            return f"{field} must have at most {rule} {_parts(fault)}"
        case "minimum":
            return f"{field} must be at least {rule}, not {_shown(fault.instance)}"
        case "maximum":
            return f"{field} must be at most {rule}, not {_shown(fault.instance)}"
    return f"{field}: {fault.message}"  # a rule that no pattern of ours has


def field_name(path: Iterable[str | int]) -> str:
    """As a person writes it, counting from 1: settings[2].default."""
    text = ""
    for key in path:
        text += f"[{key + 1}]" if isinstance(key, int) else f".{key}" if text else key
    return text or "the inputs"


def _inside(field: str) -> str:
    return "" if field == "the inputs" else f"{field}."


def _unknown(field: str, fault: ValidationError) -> Iterator[str]:
    schema: Any = fault.schema
    known = sorted(schema.get("properties", {}))
    for name in sorted(set(_table(fault.instance)) - set(known))[:_UNKNOWN]:
        near = get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
        yield f"{_inside(field)}{name} is not an input; {hint}"


def _table(value: object) -> Mapping[str, object]:
    assert isinstance(value, dict), "this rule is about tables"
    return value


def _form(fault: ValidationError) -> str:
    schema: Any = fault.schema
    return str(schema.get("description") or f"of the form {fault.validator_value}")


def _parts(fault: ValidationError) -> str:
    return "characters" if isinstance(fault.instance, str) else "items"


def _either(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _shown(value: object) -> str:
    """A value in an error: short, and never a whole document."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "a table"
    if value is None:
        return "nothing"
    text = str(value)
    short = text if len(text) <= _VALUE_SHOWN else f"{text[:_VALUE_SHOWN]}…"
    return f'"{short}"' if isinstance(value, str) else short


# ── inputs from a command line and from a file ──


def inputs_from_words(pattern: Pattern, words: Iterable[str]) -> dict[str, Json]:
    """`name=value` each; a value is text, unless the schema says otherwise: then it is read as JSON."""
    found: dict[str, Json] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name:
            raise InvalidInput(f"{printable(word)!r} is not of the form name=value")
        if name in found:
            raise InvalidInput(f"the input {printable(name)} is given twice")
        found[name] = _value(name, text, _properties(pattern).get(name))
    return found


def _value(name: str, text: str, rules: Json) -> Json:
    kind = rules.get("type") if isinstance(rules, dict) else None
    if kind in ("string", None):
        return text  # of an unknown input too: `validated` says that it is unknown
    try:
        value = load(text)
    except Fault as error:
        wanted = _TYPES[kind] if isinstance(kind, str) else "JSON"
        raise InvalidInput(f"{name} must be {wanted}: {error.message}") from None
    return _plain(name, value)


def inputs_from_json(data: bytes, file: str) -> dict[str, Json]:
    """The inputs that a JSON file holds."""
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"{printable(file)} is larger than {MOST_BYTES >> 20} MiB")
    try:
        value = load(data.decode("utf-8"))
    except UnicodeDecodeError:
        raise InvalidInput(f"{printable(file)} is not UTF-8 text") from None
    except Fault as error:
        where = f"{printable(file)}:{error.line}" if error.line else printable(file)
        raise InvalidInput(f"{where}: {error.message}", hint=error.hint) from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{printable(file)}: must be an object of inputs")
    return {name: _plain(name, item) for name, item in value.items()}


def _plain(where: str, value: object) -> Json:
    """A decoded value without the surprises (fractions, dates) that no input is."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, list):
        return [_plain(f"{where}[{number}]", item) for number, item in enumerate(value, 1)]
    if isinstance(value, dict):
        return {str(name): _plain(f"{where}.{name}", item) for name, item in value.items()}
    raise InvalidInput(f"{printable(where)} is neither text nor a whole number, nor true or false")
