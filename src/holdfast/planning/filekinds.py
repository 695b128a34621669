"""What kind of file a path names, by its spelling alone.

The order of `_SPELLINGS` is the order of judging: a start-up file is one, also where it ends in `.conf`.
The write gate judges again, by policy; this table only lets the planner say early what will be asked.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

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
_TEST = r"(^|/)(tests?|spec)/|(^|/)(test_[^/]+|[^/]+_test|[^/]+\.(test|spec))\.[a-z]+$"
_DOCUMENTATION = r"(^|/)(docs?|man)/|(^|/)(readme|changelog|contributing|authors|licen[cs]e)[^/]*$|\.(md|rst|adoc|tex)$"
_CONFIGURATION = r"""(^|/)(conf|config|etc)/ | (^|/)(dockerfile|makefile|\.gitignore|\.editorconfig)$
  | \.(conf|cfg|ini|toml|ya?ml|json|properties|cnf|env|xml)$"""
_CODE = r"\.(py|pyi|js|mjs|ts|tsx|jsx|c|h|cc|cpp|hpp|rs|go|java|kt|rb|php|cs|swift|sh|bash|pl|lua|sql|scala|html|css)$"

_SPELLINGS: dict[FileKind, str] = {
    "start-up": _START_UP,
    "key": _KEY,
    "CI": _CI,
    "policy": _POLICY,
    "agent settings": _AGENT,
    "dependencies": _DEPENDENCIES,
    "test": _TEST,
    "documentation": _DOCUMENTATION,
    "configuration": _CONFIGURATION,
    "code": _CODE,
}
_KINDS = {kind: re.compile(pattern, re.IGNORECASE | re.VERBOSE) for kind, pattern in _SPELLINGS.items()}


@lru_cache(maxsize=4096)
def kind_of_file(path: str) -> FileKind:
    """The first kind whose spelling fits."""
    return next((kind for kind, pattern in _KINDS.items() if pattern.search(path)), "other")
