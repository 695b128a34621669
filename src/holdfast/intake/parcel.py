"""A change file with everything in it: what `content_from` names stands inside, so that it can be sent elsewhere.

Invariants
  E1  The file was read as a plan first: what is refused is refused here, with its name and line.
  E2  The parcel spells the same plan: same steps, same bytes, same digest and id.
  E3  Bytes come from the plan that was read, never from a second look; a large file that changed since is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64encode

from holdfast.errors import InvalidInput
from holdfast.intake.changefile import MAX_BYTES, document_of, parse_change_file, read_bytes
from holdfast.model.patch_text import is_patch
from holdfast.model.path import printable
from holdfast.model.plan import FromFile, Inline, Step, Update, Write


def parcel_of(path: str) -> bytes:
    """The change file at `path` (`-` is standard input) as one self-contained JSON document; a patch as it is."""
    data = read_bytes(path)
    if is_patch(data):
        return data
    source = "stdin" if path == "-" else printable(path)
    directory = os.curdir if path == "-" else os.path.dirname(path) or os.curdir
    plan = parse_change_file(data, source=source, directory=directory)
    document = document_of(data, source=source)
    assert isinstance(document, dict)  # it was read as a plan a line above
    steps = document["steps"]
    assert isinstance(steps, list)
    size = 0
    for row, step in zip(steps, plan.steps, strict=True):
        if isinstance(row, dict) and "content_from" in row:
            size += _size(step) * 4 // 3
            _require_room(size, source)  # before it is read, and held twice
            del row["content_from"]
            row["content_base64"] = b64encode(_bytes(step)).decode("ascii")
    parcel = json.dumps(document, ensure_ascii=True).encode("ascii")
    _require_room(len(parcel), source)
    return parcel


def _require_room(size: int, source: str) -> None:
    if size > MAX_BYTES:
        raise InvalidInput(f"{source} and its files are too large to be sent along: more than {MAX_BYTES >> 20} MiB",
                           hint="Copy the large files over first, and apply a change file there.")  # fmt: skip


def _size(step: Step) -> int:
    content = step.content if isinstance(step, (Write, Update)) else None
    return len(content.data) if isinstance(content, Inline) else content.size if isinstance(content, FromFile) else 0


def _bytes(step: Step) -> bytes:
    assert isinstance(step, (Write, Update))  # only these have a content_from
    content = step.content
    if isinstance(content, Inline):
        return content.data
    assert isinstance(content, FromFile)
    try:
        with open(content.origin, "rb") as file:
            data = file.read(content.size + 1)
    except OSError as error:
        raise InvalidInput(f"{printable(content.origin)}: {(error.strerror or str(error)).lower()}") from None
    if hashlib.sha256(data).hexdigest() != content.sha256:
        raise InvalidInput(f"{printable(content.origin)} changed while it was read")
    return data
