"""Tests that could not be collected, and a repair after which they can: is everything still run that was there?

    log ─▶ the files that are to blame ─┬▶ their tests, by the names in their texts ──────────┐
                                        └▶ the base without them ─▶ what else ran, by name ───┴▶ all of it runs now

Invariants
  UC1 Collecting is the check: a file that is to blame may be mended, and its tests may fail now, as they never ran.
      Each of them has to be run, in that file. Left out by settings, emptied, renamed or moved is not mended.
  UC2 What ran on the base without these files still runs, and what passed there passes.
  UC3 A `conftest.py` decides which tests there are. Where nothing is known of them without it, a person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import chain

from holdfast.checks.baseline import is_edited, missing
from holdfast.checks.gather import not_collected
from holdfast.checks.junit import Results
from holdfast.engine.checking import Checking, Landable, Verified
from holdfast.engine.saving import seen_now
from holdfast.errors import HoldfastError
from holdfast.model.changeset import Change, change_set
from holdfast.model.execution import Receipt
from holdfast.model.path import printable
from holdfast.model.plan import Plan
from holdfast.model.testfiles import is_test_file, names_in, skips_in
from holdfast.workspace.site import Site
from holdfast.workspace.tree import snapshot

CONFTEST = "conftest.py"
_PARAMETERS = re.compile(r"\[.*\]\Z", re.DOTALL)
_SHOWN = 5


def uncollected_in(receipt: Receipt, log: bytes, known: Iterable[str], seen_at: str) -> tuple[str, ...]:
    """The files of the workspace that keep pytest from collecting; none where it got as far as running tests."""
    if receipt.kind != "tests" or "pytest" not in receipt.command or receipt.exit_code in (0, 1, None):
        return ()
    blamed, _ = not_collected(log.replace(f"{seen_at}/".encode(), b""))
    # pytest names them from where it stands, which is the folder of a project.
    return tuple(sorted(path for path in known for name in blamed if path == name or path.endswith(f"/{name}")))


class Uncollected:
    """What is known of the tests although these files could not be collected."""

    def __init__(self, site: Site, checking: Checking, look: Plan, files: Sequence[str], beside: Sequence[str]) -> None:
        self._site, self._checking, self._look = site, checking, look
        self.files, self._beside = tuple(files), tuple(beside)
        self._known: Results | None = None

    def mended(self, changes: Iterable[Change]) -> list[Change]:
        """The changes that may be the repair itself (UC1)."""
        return [c for c in changes if c.path in self.files and c.post is not None and c.post.kind == "file"]

    def lost(self, verified: Verified) -> str:
        """Why not everything is run that was there; empty where it is."""
        for path in self.files:
            text = self._checking.head_of(path).decode("utf-8", "replace")
            if is_test_file(path) and not path.endswith(CONFTEST) and (gone := _not_run(path, text, verified)):
                return f"these tests of {printable(path)} are not run: {_listed(gone)}"
        known, now = self.known, _results(verified)
        if fewer := missing(now, known):
            return f"no longer run: {_listed(fewer)}"
        passed = {case.full_name for case in known.cases if case.state == "passed"}
        if failed := [name for name in now.failed if name in passed]:
            return f"passed without {_listed(self.files)}, and fails now: {_listed(failed)}"
        return ""

    def doubted(self, verified: Verified) -> Verified:
        """UC3"""
        conftests = [path for path in self.files if path.endswith(CONFTEST)]
        if not conftests or self.known.cases:
            return verified
        why = f"{printable(conftests[0])} could not be loaded before, so nothing is known of the tests there were"
        receipts = tuple(one._replace(unverified=why) if one.kind == "tests" else one for one in verified.receipts)
        return verified._replace(receipts=receipts, unverified=why)

    @property
    def known(self) -> Results:
        if self._known is None:
            self._known = self._without_them()
        return self._known

    def _without_them(self) -> Results:
        """The base's tests with these files left out (UC2); nothing where that cannot be run either."""
        images = dict(snapshot(self._site.path, self._site.state.path).entries())
        gone = change_set([Change(path, images[path], None) for path in self.files if path in images])
        try:
            landable = Landable(gone, seen_now(self._site, gone), {}, self._beside)
            verified = self._checking.verify(self._look, landable, forgives=False)
        except (HoldfastError, OSError):
            return Results(())
        found = _results(verified)
        if any(path.endswith(CONFTEST) for path in self.files):
            # What needs the fixtures that were left out fails there, and is a test all the same.
            found = Results(tuple(c._replace(state="passed") if c.state == "failed" else c for c in found.cases))
        return found if any(run.collected for run in verified.ran) else Results(())


def _results(verified: Verified) -> Results:
    return Results(tuple(chain.from_iterable(run.results.cases for run in verified.ran)))


def _not_run(path: str, text: str, verified: Verified) -> list[str]:
    """A test that its own text leaves out may stay left out."""
    may_skip = bool(skips_in(path, text))
    run = {
        _PARAMETERS.sub("", case.name)
        for each in verified.ran
        for case in each.results.cases
        if is_edited(case.full_name, each, (path,)) and (may_skip or case.state != "skipped")
    }
    return [name for name in names_in(path, text) if name not in run]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(map(printable, names[:_SHOWN]))}{more}"
