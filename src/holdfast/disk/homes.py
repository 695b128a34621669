"""The user's own directories: where configuration and keys are, and where the ledger's anchors are."""

from __future__ import annotations

import os


def config_home() -> str:
    """`$XDG_CONFIG_HOME/holdfast`, by default `~/.config/holdfast`."""
    return _home("XDG_CONFIG_HOME", ".config")


def state_home() -> str:
    """`$XDG_STATE_HOME/holdfast`, by default `~/.local/state/holdfast`."""
    return _home("XDG_STATE_HOME", ".local/state")


def _home(variable: str, default: str) -> str:
    named = os.environ.get(variable, "")
    # The XDG specification says that a relative path is to be ignored.
    base = named if os.path.isabs(named) else os.path.join(os.path.expanduser("~"), default)
    return os.path.join(base, "holdfast")
