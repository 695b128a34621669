"""Checks: evidence that Holdfast gathers itself. A receipt says what was run, on what, and how it ended."""
