"""What kind of file a path names, by its spelling alone.

The order of `_KINDS` is the order of judging: a start-up file is one, also where it ends in `.conf`.
Which files are tests is told by `model.testfiles`.
The write gate judges again, by policy; this table only lets the planner say early what will be asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

from holdfast.model.testfiles import is_test_file

FileKind = Literal[
    "start-up", "key", "CI", "policy", "agent settings", "dependencies", "test", "documentation", "configuration",
    "code", "other",
]  # fmt: skip

_START_UP = r"""(^|/)(
    \.(bash|zsh|ksh|csh|tcsh)rc | \.(bash_|z)?profile | \.bash_(login|logout) | \.zshenv | \.xinitrc | \.xprofile
  | rc\.local | crontab | cron\.(d|hourly|daily|weekly|monthly)/.+ | init\.d/.+ | systemd/.+ | autostart/.+
  | profile\.d/.+ | sitecustomize\.py | usercustomize\.py | [^/]+\.(service|timer|socket)
)$"""
_KEY = r"""(^|/)(
    \.ssh/.+ | \.gnupg/.+ | id_(rsa|dsa|ecdsa|ed25519) | authorized_keys | \.netrc | \.pgpass | \.env(\..+)?
  | secrets?/.+ | credentials(\..+)? | [^/]+\.(pem|key|p12|pfx|jks|kdbx)
)$"""
_CI = r"""(^|/)(
    \.github/(workflows|actions)/.+ | \.gitlab-ci\.ya?ml | \.circleci/.+ | jenkinsfile | azure-pipelines\.ya?ml
  | \.travis\.ya?ml | \.drone\.ya?ml | \.woodpecker(/.+|\.ya?ml) | bitbucket-pipelines\.ya?ml
)$"""
_POLICY = r"(^|/)(holdfast\.toml|holdfast/.+\.toml|codeowners|sudoers(\.d/.+)?|\.pre-commit-config\.ya?ml)$"
_AGENT = r"(^|/)(agents\.md|claude\.md|gemini\.md|\.claude/.+|\.codex/.+|\.cursor(rules|/.+)|\.aider.*|\.mcp\.json)$"
_DEPENDENCIES = r"""(^|/)(
    pyproject\.toml | setup\.(py|cfg) | requirements[^/]*\.txt | poetry\.lock | uv\.lock | package(-lock)?\.json
  | yarn\.lock | pnpm-lock\.yaml | cargo\.(toml|lock) | go\.(mod|sum) | gemfile(\.lock)? | composer\.(json|lock)
  | pom\.xml | build\.gradle(\.kts)?
)$"""
_DOCUMENTATION = r"(^|/)(docs?|man)/|(^|/)(readme|changelog|contributing|authors|licen[cs]e)[^/]*$|\.(md|rst|adoc|tex)$"
_CONFIGURATION = r"""(^|/)(conf|config|etc)/ | (^|/)(dockerfile|makefile|\.gitignore|\.editorconfig)$
  | \.(conf|cfg|ini|toml|ya?ml|json|properties|cnf|env|xml)$"""
_CODE = r"\.(py|pyi|js|mjs|ts|tsx|jsx|c|h|cc|cpp|hpp|rs|go|java|kt|rb|php|cs|swift|sh|bash|pl|lua|sql|scala|html|css)$"


def _spelled(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern, re.IGNORECASE | re.VERBOSE).search


_KINDS: dict[FileKind, Callable[[str], object]] = {
    "start-up": _spelled(_START_UP),
    "key": _spelled(_KEY),
    "CI": _spelled(_CI),
    "policy": _spelled(_POLICY),
    "agent settings": _spelled(_AGENT),
    "dependencies": _spelled(_DEPENDENCIES),
    "test": is_test_file,
    "documentation": _spelled(_DOCUMENTATION),
    "configuration": _spelled(_CONFIGURATION),
    "code": _spelled(_CODE),
}


@lru_cache(maxsize=4096)
def kind_of_file(path: str) -> FileKind:
    """The first kind that fits."""
    return next((kind for kind, fits in _KINDS.items() if fits(path)), "other")
