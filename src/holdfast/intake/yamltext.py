"""YAML: the form people write, with the parts that surprise them taken out.

Only the event layer of PyYAML is used (libyaml where it is built in): it keeps no recursion and constructs nothing.
Aliases, tags other than the plain ones and further documents are refused while they stream by,
so that a small file can neither grow large nor become an object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

from holdfast.intake.values import Event, Fault, Scalar, Surprise, Value, build, quoted

_TAG = "tag:yaml.org,2002:"
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
# Besides what YAML forbids: U+0085, U+2028 and U+2029, which are line breaks to YAML 1.1 and characters to 1.2.
_FORBIDDEN = re.compile("[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SURPRISES = {
    "int": "a number",
    "float": "a decimal number",
    "bool": "a truth value",
    "timestamp": "a date",
    "merge": "a merge key",
    "value": "a default key",
}


def load(text: str) -> Value:
    """The value of a YAML text, or Fault."""
    found = _FORBIDDEN.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        code = ord(found.group())
        hint = f'Write it inside double quotes as "\\u{code:04x}".' if code < 0x10000 else ""
        raise Fault(f"the character U+{code:04X} is not allowed in YAML", line=line, hint=hint)
    return build(events(text))


def events(text: str) -> Iterator[Event]:
    """The text as events with lines."""
    loader = _Loader(text)
    try:
        documents = 0
        while (event := loader.get_event()) is not None:
            line = event.start_mark.line + 1
            if isinstance(event, yaml.ScalarEvent):
                yield Event("scalar", _scalar(loader, event, line), line)
            elif isinstance(event, yaml.CollectionStartEvent):
                yield _start(event, line)
            elif isinstance(event, yaml.CollectionEndEvent):
                yield Event("end", None, line)
            elif isinstance(event, yaml.AliasEvent):
                raise Fault(f"the alias {quoted(f'*{event.anchor}')} is not supported; write the value out", line=line)
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise Fault("a second document begins here; a change file is one document", line=line)
    except yaml.MarkedYAMLError as error:
        raise _syntax_fault(error, text) from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # The pure Python scanner lets chr() complain about escapes beyond Unicode.
        raise Fault(f"not valid YAML: {error}") from None
    finally:
        loader.dispose()


def _start(event: yaml.CollectionStartEvent, line: int) -> Event:
    is_mapping = isinstance(event, yaml.MappingStartEvent)
    tag: str | None = event.tag
    if tag not in (None, "!", _TAG + ("map" if is_mapping else "seq")):
        raise _tag_fault(str(tag), line)
    return Event("mapping" if is_mapping else "list", None, line)


def _scalar(loader: yaml.SafeLoader, event: yaml.ScalarEvent, line: int) -> Scalar:
    text: str = event.value
    tag: str | None = event.tag
    if tag is None or tag == "!":
        tag = str(loader.resolve(yaml.ScalarNode, text, event.implicit))  # type: ignore[no-untyped-call]
    if not tag.startswith(_TAG):
        raise _tag_fault(tag, line)
    kind = tag.removeprefix(_TAG)
    if kind == "str":
        _refuse_surrogates(text, line)
        return text
    if kind == "null":
        return None
    if kind == "int" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "bool" and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if kind in _SURPRISES:
        return Surprise(_SURPRISES[kind], text)
    raise _tag_fault(tag, line)


def _refuse_surrogates(text: str, line: int) -> None:
    """libyaml refuses these escapes; the pure Python scanner does not."""
    if text.isascii():
        return
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Fault("not valid YAML: half a surrogate pair is not a character", line=line) from None


def _tag_fault(tag: str, line: int) -> Fault:
    shown = "!!" + tag.removeprefix(_TAG) if tag.startswith(_TAG) else tag
    hint = "Use content_base64 for bytes." if shown == "!!binary" else ""
    return Fault(f"the tag {quoted(shown)} is not allowed", line=line, hint=hint)


def _syntax_fault(error: yaml.MarkedYAMLError, text: str) -> Fault:
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return Fault(f"not valid YAML: {error.problem or error.context}")
    lines = text.split("\n")
    shown = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in shown[: len(shown) - len(shown.lstrip())]:
        return Fault("the line is indented with a tab; YAML takes blanks only", line=mark.line + 1)
    return Fault(f"not valid YAML: {error.problem or error.context}", line=mark.line + 1)
