"""Leftovers of an edit: what a tool, or a model, leaves in a file whose change it did not carry through.

    marks ....... SEARCH/REPLACE, conflict, hunk and patch marks, a fence or a file name around the whole text
    omissions ... comments in the place of code: "# ... rest of the code unchanged", "// your code here"
    losses ...... definitions that are gone with the end of a file, of which the task says nothing
    doubles ..... the same function or class twice, once beside the new one

Only lines that the change adds are looked at. In a text that is valid Python a mark is part of a string, and meant;
documentation may show marks, and counts only where a whole conflict stands in it. What is valid Python is told by the
grammar of the interpreter that runs this; a decision keeps the sentences, and never looks the texts up again.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from holdfast.model.path import printable
from holdfast.planning.filekinds import kind_of_file

_MOST_LINES = 200_000
_LONGEST = 400
_SHOWN = 80
_OPENING = re.compile(r"<{5,9}(?: ?(?:SEARCH|ORIGINAL|HEAD|UPSTREAM)\b.*| .*)?$")
_CLOSING = re.compile(r">{5,9}(?: ?(?:REPLACE|UPDATED)\b.*| .*)?$")
_NAMED_MARK = re.compile(r"(?:<{5,9} ?(?:SEARCH|ORIGINAL)|>{5,9} ?(?:REPLACE|UPDATED)|\*\*\* (?:Begin|End) Patch"
                         r"|\*\*\* (?:Update|Add|Delete) File: )")  # fmt: skip
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_PATCH_FILE = re.compile(r"(?i)\.(?:diff|patch|rej|orig)$")
_FENCE = re.compile(r"(?:```|~~~)[\w+.-]*$")
_COMMENT = re.compile(r"(?:#+|//+|/\*+|<!--+|--+|;+|%+|\{/\*|\"{3}|'{3})(?P<said>.*)", re.DOTALL)
_COMMENT_ENDS = ("*/}", "*/", "-->", '"""', "'''")
_DOTS = r"(?:\.\.\.+|…)"
_WHOLE = r"(?:code|file|class|function|method|module|implementation|script|program)"
_STUFF = (
    rf"(?:{_WHOLE}s?|classes|imports?|contents?|tests?|definitions?|logic|body|lines?|handlers?|routes?|cases?|fields?"
    r"|options?|configuration|config|stuff)"
)
_SAYS_SO = re.compile(
    rf"""(?ix) ^{_DOTS}? \s* (?:keep|include|add|and|with|all|leave|insert|put)? \s* (?:the|all|of|your|this|any)? \s*
    (?: (?:rest|remainder)\ of\ (?:(?:the|your|this|its)\ )? (?:\w+\ ){{0,2}}? {_STUFF} \b
    |   (?:existing|remaining|previous|other|original|old|current)\  (?:\w+\ )? {_STUFF} \b )
    \s* (?P<end> .*) $"""
)
_ENDS_SO = re.compile(
    rf"""(?ix) ^ (?: (?:remains?|stays?|is|are|goes?|continues?|follows?)? \s*
    (?:unchanged|as\ (?:before|is|it\ (?:is|was))|the\ same|omitted|truncated|unmodified|untouched|intact|here) \b .*
    | remains? | stays | {_DOTS} .* ) $"""
)
_BARE_REST = re.compile(rf"(?i)^{_DOTS}?\s*(?:the )?rest of (?:the|your|this) {_WHOLE}\s*{_DOTS}?$")
_BREVITY = re.compile(
    r"(?i)\b(?:omitted|truncated|shortened|elided|left out) for brevity\b|^(?:code|rest|file)? ?(?:unchanged|omitted)$"
)
_YOURS = re.compile(
    rf"(?i)^{_DOTS}?\s*(?:add |put |insert |write )?your (?:\w+ )?(?:code|implementation|logic) (?:goes )?here\b"
)
_REMOVING = re.compile(
    r"(?i)\b(?:remov|delet|drop|renam|replac|rewrit|refactor|simplif|clean|merg|split|mov|extract|inlin|unif|consolidat"
    r"|dedup|convert|migrat|port|re-?organi|restructur|combin|get rid|strip|collaps|switch|eliminat|deprecat|turn)"
)
_DEFINES = re.compile(
    r"(?m)^[ \t]{0,8}"
    r"(?:(?:export|default|public|pub(?:\([a-z]+\))?|async|static|abstract|final|unsafe|const)[ \t]{1,8}){0,6}"
    r"(?:function\*?|class|fn|func(?:[ \t]{0,8}\([^)\n]{0,200}\))?|def|struct|enum|trait|interface)[ \t]{1,8}"
    r"(?P<name>[A-Za-z]\w*)"
)
_MOST_NAMES = 3
_SHORT = 0.75
_MOST_PARSED = 1 << 18
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def leftovers_in(path: str, before: str, after: str) -> tuple[str, ...]:
    """Sentences about what a change left in this file; `before` is empty for a new one."""
    if _PATCH_FILE.search(path) or after.count("\n") > _MOST_LINES:
        return ()
    known = set(before.splitlines())
    added = [(number, line) for number, line in enumerate(after.splitlines(), 1) if line not in known]
    documentation = kind_of_file(path) == "documentation"
    found = list(_marks(path, after, added, documentation=documentation))
    if not documentation:
        found += _omissions(path, added)
    return tuple(found)


def lost_from(path: str, before: str, after: str, elsewhere: frozenset[str], words: str) -> tuple[str, ...]:
    """The public definitions that are gone with the end of a file that stays, unless the task speaks of such a thing.

    `elsewhere` is what the other files of the change define now.
    """
    if _REMOVING.search(words):
        return ()
    gone = [name for name in public(path, before) if not name.startswith("_")]
    left = defined(path, after, imported=True) | elsewhere
    names = [name for name in gone if name not in left and not re.search(rf"\b{re.escape(name)}\b", words)]
    # What is taken out on purpose seldom begins with the end of a file, and a quarter of it.
    short = after.count("\n") < _SHORT * before.count("\n")
    if not short or not names or names[-1] != gone[-1] or not after.strip():
        return ()
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (f"{printable(path)} loses {', '.join(names[:_MOST_NAMES])}{more}, and the task does not ask for that",)


def doubled_in(path: str, before: str, after: str) -> tuple[str, ...]:
    """Functions and classes of Python that stand twice at the top of a file, and did not before."""
    if not path.endswith(".py"):
        return ()
    known = _twice(before)
    return tuple(f"{printable(path)} defines {name} twice" for name in _twice(after) if name not in known)


def defined(path: str, text: str, *, imported: bool = False) -> frozenset[str]:
    """What a file defines, by name: functions, classes and methods, in Python also what is assigned."""
    python = _python(text) if path.endswith((".py", ".pyi")) else None
    if python is not None:
        return python.names | python.imported if imported else python.names
    return frozenset(_by_spelling(text)) if kind_of_file(path) in ("code", "test") else frozenset()


class _Python(NamedTuple):
    """What a file of Python defines. Its tree is a thousand times as large as its text, and is not kept."""

    public: tuple[str, ...]
    names: frozenset[str]
    imported: frozenset[str]
    twice: tuple[str, ...]


@lru_cache(maxsize=64)
def _python(text: str) -> _Python | None:
    """None for what is no Python, or too long to be looked into."""
    try:
        tree = ast.parse(text) if len(text) <= _MOST_PARSED else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if tree is None:
        return None
    top = [node for node in tree.body if isinstance(node, _DEFINITIONS)]
    inside = [item for node in top if isinstance(node, ast.ClassDef) for item in node.body]
    found = [node for node in (*top, *inside) if isinstance(node, _DEFINITIONS)]
    # What is decorated may be overloaded or registered, each by itself.
    counts = Counter(node.name for node in top if not node.decorator_list)
    return _Python(
        tuple(dict.fromkeys(node.name for node in sorted(found, key=lambda node: node.lineno))),
        frozenset(_names(tree)),
        frozenset(_imports(tree)),
        tuple(name for name, times in counts.items() if times > 1 and name != "_"),
    )


# ── the parts ──


def _marks(path: str, after: str, added: list[tuple[int, str]], *, documentation: bool) -> Iterator[str]:
    first = next((line.strip() for _, line in added if line.strip()), "")
    if kind_of_file(path) in ("code", "test") and first in (path, path.rpartition("/")[2]):
        yield f"{printable(path)} begins with its own name, which is no code"
    if path.endswith((".py", ".pyi")) and _python(after) is not None:
        return
    opening = next(((number, line) for number, line in added if _OPENING.match(line)), None)
    closing = next(((number, line) for number, line in added if _CLOSING.match(line)), None)
    middle = any(line.rstrip() in ("=" * size for size in (5, 6, 7, 8, 9)) for _, line in added)
    if opening and closing and middle:
        yield _told(path, opening, "marks of an edit or a merge that was not carried out")
    elif not documentation:
        if (mark := next(((number, line) for number, line in added if _NAMED_MARK.match(line)), None)) is not None:
            yield _told(path, mark, "marks of an edit that was not carried out")
        elif (hunk := next(((number, line) for number, line in added if _HUNK.match(line)), None)) is not None:
            yield _told(path, hunk, "a part of a patch in the place of its result")
    if not documentation and (edge := _fence_around(after, added)) is not None:
        yield _told(path, edge, "a fence of Markdown around its text")


def _fence_around(after: str, added: list[tuple[int, str]]) -> tuple[int, str] | None:
    numbered = [(number, line) for number, line in enumerate(after.splitlines(), 1) if line.strip()]
    new = set(added)
    edges = [numbered[0], numbered[-1]] if numbered else []
    return next((edge for edge in edges if edge in new and _FENCE.match(edge[1].strip())), None)


def _omissions(path: str, added: list[tuple[int, str]]) -> Iterator[str]:
    for number, line in added:
        if len(line) > _LONGEST or (comment := _COMMENT.match(line.strip())) is None:
            continue
        said = comment["said"].strip()
        end = next((end for end in _COMMENT_ENDS if said.endswith(end)), "")
        if _omits(said.removesuffix(end).strip("() \t")):
            yield _told(path, (number, line), "a comment in the place of code")
            return


def _omits(said: str) -> bool:
    if _BARE_REST.match(said) or _BREVITY.search(said) or _YOURS.match(said):
        return True
    found = _SAYS_SO.match(said)
    if found is None:
        return False
    end = found["end"].strip(" ,;:()")
    return bool(_ENDS_SO.match(end)) or (not end and said.startswith((".", "…")))


def _told(path: str, place: tuple[int, str], what: str) -> str:
    number, line = place
    shown = printable(line.strip())
    return f"{printable(path)} holds {what}, in line {number}: {shown[:_SHOWN]}{'…' if len(shown) > _SHOWN else ''}"


def public(path: str, text: str) -> tuple[str, ...]:
    """Functions and classes at the top of a file, and the methods of these classes, in its order."""
    python = _python(text) if path.endswith((".py", ".pyi")) else None
    if python is None:
        return _by_spelling(text) if kind_of_file(path) in ("code", "test") else ()
    return python.public


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.ImportFrom, ast.Import)):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in node.names)


def _by_spelling(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(match["name"] for match in _DEFINES.finditer(text)))


def _twice(text: str) -> tuple[str, ...]:
    python = _python(text)
    return python.twice if python is not None else ()
