"""What `doctor` says about shadows and the sandbox."""

from __future__ import annotations

import json

from holdfast.cli.reports import Report
from holdfast.engine.isolation import Isolation
from holdfast.model.configuration import Unsandboxed
from holdfast.model.path import printable
from holdfast.sandbox.confined import SHIFT

_REFUSED = "So here: plans with run steps, and checks, are refused (exit 5). Changes to files work, and so does health."
_ALLOWED = (
    "So here: plans with run steps are refused (exit 5).",
    'Commands under verify run UNCONFINED, with your rights: the configuration says [sandbox] without = "allow".',
)


def isolation_reports(found: Isolation, without: Unsandboxed) -> list[Report]:
    return [_shadows(found), _sandbox(found, without)]


def _shadows(found: Isolation) -> Report:
    if found.shadow == "copy":
        why = f"because {printable(found.why_copy)}"
        return Report("Shadows", "copies: each costs what the workspace costs", None, more=(why,))
    how = f"overlay, id-mapped: root's programs are uid {SHIFT} here" if found.as_root else "overlay, rootless"
    return Report("Shadows", how, True)


def _sandbox(found: Isolation, without: Unsandboxed) -> Report:
    if not found.sandboxed:
        meaning = _ALLOWED if without == "allow" else (_REFUSED,)
        return Report("Sandbox", f"none: {printable(found.why_not)}", False, more=meaning)
    kept = {row.what: row for row in found.guarantees}
    parts = [f"bubblewrap {found.bubblewrap}"]
    parts += [row.how for what in ("files twice", "system calls") if (row := kept[what]).enforced]
    demands = f"[policy] sandbox may demand: {', '.join(map(json.dumps, found.words))}"
    return Report("Sandbox", " + ".join(parts), True, more=(*(row.line for row in found.guarantees), demands))


def isolation_document(found: Isolation) -> dict[str, object]:
    return {
        "shadows": {"kind": found.shadow, "why_not_overlay": found.why_copy, "id_mapped": found.as_root},
        "sandbox": {
            "sandboxed": found.sandboxed,
            "why_not": found.why_not,
            "bubblewrap": found.bubblewrap,
            "guarantees": [row._asdict() for row in found.guarantees],
            "enforced": list(found.words),
        },
    }
