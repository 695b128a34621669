"""The shapes of tokens that are known, and the names of what is secret.

Invariants
  S1  Every shape has literals; each match holds one of them.
  S2  Where a literal stands in a match is known (`Place`), so that many texts can be searched at once (`glance`).
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

# So many characters of tokens (letters, digits, `_`, `-`) in a row are a run.
RUN = 20
# Of a literal in a match: inside a run; before one that follows a dot or a slash; a name of NAMES and a sign, with a
# value that is long or has a digit; or nothing is known about what is around it.
Place = Literal["in a run", "before a run", "assigned", "alone"]


class Shape(NamedTuple):
    """`prefix` is what may be shown: it tells the kind of token and nothing of its value.

    `glued` is the form with anything at all behind it: what is kept or shown is masked once too often rather than not.
    """

    name: str
    literals: tuple[str, ...]
    form: re.Pattern[str]
    prefix: int
    place: Place
    glued: re.Pattern[str]

    @property
    def solid(self) -> bool:
        """Every match holds a run of RUN token characters: a text without one needs no closer look."""
        return self.place in ("in a run", "before a run")


_NO_WORD = r"(?![\w-])"
_NO_WORD_BEFORE = r"(?<![\w-])"
_NO_ADDRESS_BEFORE = r"(?<![\w+.-])"
# Nor does the end of an escape begin a word: `\n`, `\012`, `\x22`, `\u0022`, `\U00000022`, `%22`, `%2522`, `%u0022`,
# `=22`; nor that of a colour on a terminal, `[1;31m`.
# The last character is looked at first: of most words it rules all of them out.
_BY_HEX = r"(?<=\\x..)|(?<=[\\%]u[0-9A-Fa-f]{4})|(?<=\\U[0-9A-Fa-f]{8})|(?<=[%=]..)|(?<=%25..)"
_COLOURS = "|".join(rf"(?<=\[[0-9;]{{{length}}}m)" for length in range(12))
_ESCAPES = (
    r"(?<=[a-v0-7])(?:(?<=\\[abfnrtv0])|(?<=\\[0-7]{2})|(?<=\\[0-7]{3}))"
    rf"|(?<=[0-9A-Fa-f]{{2}})(?:{_BY_HEX})|(?<=m)(?:{_COLOURS})"
)


def _shape(name: str, literals: str, form: str, prefix: int = 0, place: Place = "in a run") -> Shape:
    for before in (_NO_WORD_BEFORE, _NO_ADDRESS_BEFORE):
        form = form.replace(before, f"(?:{before}|{_ESCAPES})")
    glued = re.compile(form.removesuffix(_NO_WORD))
    return Shape(name, tuple(literals.split()), re.compile(form), prefix, place, glued)


# `(?<![\w-])` and `(?![\w-])`: a token in the middle of a longer word is another word; an escape is none (`_ESCAPES`).
SHAPES: tuple[Shape, ...] = (
    _shape("AWS access key", "AKIA ASIA", r"(?<![\w-])(?:AKIA|ASIA)[0-9A-Z]{16}(?![\w-])", 4),
    _shape("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"(?<![\w-])gh[pousr]_[A-Za-z0-9]{36,251}(?![\w-])", 4),
    _shape("GitHub fine-grained token", "github_pat_", r"(?<![\w-])github_pat_[A-Za-z0-9_]{60,255}(?![\w-])", 11),
    _shape("GitLab token", "glpat- gldt- glrt- glcbt-", r"(?<![\w-])gl(?:pat|dt|rt|cbt)-[\w-]{20,}", 6),
    _shape("Slack token", "xoxb- xoxp- xoxa- xoxr- xoxs- xapp-", r"(?<![\w-])(?:xox[bpars]|xapp)-[A-Za-z0-9-]{20,}", 5),
    _shape(
        "Slack web hook",
        "hooks.slack.com/services/",
        r"hooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{20,}",
        25,
        "before a run",
    ),
    _shape("Anthropic key", "sk-ant-", r"(?<![\w-])sk-ant-[\w-]{32,}", 7),
    _shape("OpenAI key", "sk-", r"(?<![\w-])sk-(?!ant-)(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{32,}(?![\w-])", 3),
    _shape("Google API key", "AIza", r"(?<![\w-])AIza[\w-]{35}(?![\w-])", 4),
    _shape("Google OAuth secret", "GOCSPX-", r"(?<![\w-])GOCSPX-[\w-]{28}", 7),
    _shape("Stripe key", "sk_live_ rk_live_ whsec_", r"(?<![\w-])(?:(?:sk|rk)_live_|whsec_)[A-Za-z0-9]{20,}", 8),
    _shape("npm token", "npm_", r"(?<![\w-])npm_[A-Za-z0-9]{36}(?![\w-])", 4),
    _shape("PyPI token", "pypi-", r"(?<![\w-])pypi-[\w-]{50,}", 5),
    _shape("Hugging Face token", "hf_", r"(?<![\w-])hf_[A-Za-z]{34}(?![\w-])", 3),
    _shape("SendGrid key", "SG.", r"(?<![\w-])SG\.[\w-]{22}\.[\w-]{43}(?![\w-])", 3, "before a run"),
    _shape("Azure storage key", "AccountKey=", r"AccountKey=[A-Za-z0-9+/]{86}==", 11, "assigned"),
    _shape("private key", "PRIVATE", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----", 5, "alone"),
    _shape("JSON web token", "eyJ", r"(?<![\w-])eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}", 3, "before a run"),
    _shape(
        "password in an address",
        "://",
        r"(?<![\w+.-])[a-z][a-z0-9+.-]{1,20}://[^\s:/@'\"<>{}$]{1,64}:(?P<value>[^\s:/@'\"<>{}$]{4,128})@[\w.\[-]",
        place="alone",
    ),
)
# A value given to a name that holds one of these may be a secret.
NAMES = ("secret", "token", "passw", "pwd", "credential", "key")
