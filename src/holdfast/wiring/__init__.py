"""The one place that chooses concrete parts."""

from __future__ import annotations

from holdfast.wiring.guard import Holdfast
from holdfast.wiring.login import user
from holdfast.wiring.opening import init, open, serve  # noqa: A004 (`holdfast.open` is the front door)

__all__ = ["Holdfast", "init", "open", "serve", "user"]
