"""The patterns that come with Holdfast."""

from __future__ import annotations

from holdfast.planning.patterns import (
    automation,
    configuration,
    implementation,
    node_source,
    python_command,
    python_modules,
)
from holdfast.planning.patterns.pattern import Pattern

BUILT_IN: tuple[Pattern, ...] = (
    python_modules.PACKAGE,
    python_modules.MODULE,
    python_command.COMMAND,
    node_source.MODULE,
    configuration.SETUP,
    automation.STATUS,
    implementation.STATUS,
)
