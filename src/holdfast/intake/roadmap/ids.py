"""Ids: names for tasks that stay when other lines change.

    written in the file      T014, AUTH-7            as it stands
    everything else          add-the-parser-1f0c9a2b  a slug of the title and a digest of all of it

Invariants
  N1  An id is made of [A-Za-z0-9._-], begins with a letter or digit, and has at most 48 characters: it is a file name.
  N2  No two ids of a roadmap are equal, also not where upper and lower case are the same.
  N3  Tasks of the same title are told apart by the headings above them, then by their order: only another task of the
      same title changes an id, and where the headings tell them apart, to a fresh one, never to one that was another's.
"""

from __future__ import annotations

import re
import unicodedata
from binascii import crc32
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

MAX_ID = 48
_DIGEST = 8
_SLUG = MAX_ID - _DIGEST - 1
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,47}\Z")
_APART = re.compile(r"[^a-z0-9]+")


class Naming(NamedTuple):
    """What tells tasks of one title, or of one written id, apart."""

    title: str
    phase: str
    section: str


def is_id(text: str) -> bool:
    """Whether a text has the form of an id."""
    return _SAFE.match(text) is not None and ".." not in text and not text.endswith(".")


def ids_of(titles: Sequence[str], written: Sequence[str], naming: Callable[[int], Naming]) -> list[str]:
    """An id for each task: the one written for it, if any; `naming` is asked only where two would share one."""
    plain = [_plain_id(title) for title in titles]
    ids = [given if given and is_id(given) else made for given, made in zip(written, plain, strict=True)]
    return ids if len({id.lower() for id in ids}) == len(ids) else _told_apart(list(ids), plain, naming)


def _plain_id(title: str) -> str:
    """A checksum tells titles apart that differ by a few letters better than chance would. It is no protection, and
    none is needed: who writes the title writes the box beside it.
    """
    stem = _slug(title).strip("-")
    stem = stem if 0 < len(stem) <= _SLUG else _cut(stem)
    return f"{stem}-{crc32(title.lower().encode('utf-8', 'replace')):0{_DIGEST}x}"


def _cut(stem: str) -> str:
    return stem[:_SLUG].rstrip("-") or "task"


def _slug(title: str) -> str:
    """In ASCII: a letter with an accent loses it, a letter of another script is left to the digest."""
    if not title.isascii():
        title = unicodedata.normalize("NFKD", title[: 4 * MAX_ID]).encode("ascii", "ignore").decode()
    return _APART.sub("-", title.lower())


def _told_apart(ids: list[str], plain: list[str], naming: Callable[[int], Naming]) -> list[str]:
    """Ids without doubles: those that share one say more about themselves, until none does."""
    groups: dict[str, list[int]] = {}
    for index, id in enumerate(ids):
        groups.setdefault(id.lower(), []).append(index)
    taken = {id for id, group in groups.items() if len(group) == 1}
    for group in groups.values():
        if len(group) > 1:
            for index, said in _unlike({index: naming(index) for index in group}):
                ids[index] = _free(_with_digest(ids[index], plain[index], said), taken)
    return ids


def _unlike(group: Mapping[int, Naming]) -> Iterator[tuple[int, list[str]]]:
    """What to say about tasks that share an id: their headings, and where these are the same their order."""
    alike: dict[Naming, list[int]] = {}
    for index, naming in group.items():
        alike.setdefault(naming, []).append(index)
    for naming, indexes in alike.items():
        for order, index in enumerate(indexes):
            yield index, [*naming, str(order)] if len(indexes) > 1 else [*naming]


def _with_digest(id: str, plain: str, said: list[str]) -> str:
    # A length before each part, so that no two lists of parts are spelled alike.
    spelled = "".join(f"{len(part)}:{part}" for part in said)
    digest = sha256(spelled.encode("utf-8", "replace")).hexdigest()[:_DIGEST]
    stem = plain[: -_DIGEST - 1] if id == plain else id[:_SLUG].rstrip("-._")
    return f"{stem}-{digest}"


def _free(id: str, taken: set[str]) -> str:
    """The id, or the next one that nobody has; a digest that is another's by chance is no reason to share a record."""
    while id.lower() in taken:
        id = f"{id[: -_DIGEST - 1]}-{sha256(id.encode()).hexdigest()[:_DIGEST]}"
    taken.add(id.lower())
    return id
