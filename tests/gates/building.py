"""From the words of a case file to the nouns the gates take. What a case does not mention is sound.

A sound case: one person, one ordinary edit, a plan with a check and a health check, a rehearsal that succeeded,
and a test that passed on exactly the tree that would land. The write gate allows it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from holdfast.gates.evidence import Evidence, Text, compared
from holdfast.gates.layers import layered
from holdfast.gates.policy import Policy
from holdfast.model.changeset import Change, ChangeSet, Observation, change_set
from holdfast.model.execution import BaseTests, Receipt
from holdfast.model.image import Image
from holdfast.model.plan import Call, CommandCheck, HttpCheck, Inline, Plan, Run, Service, Signal, Step, Write, step_id
from holdfast.model.simulation import Rollback, SimulatedStep, Simulation
from holdfast.model.tables import Layer, Source

Case = Mapping[str, Any]
CASES = Path(__file__).parent / "cases"
TREE = "7" * 64
FULL = Rollback(True, "restore", True, True, "FULL")
SERVICE = {
    "compensated": Service(Signal("restart", "web"), Signal("restart", "web")),
    "irreversible": Service(Call("http://127.0.0.1/deploy")),
    "call with an undo": Service(Call("http://127.0.0.1/wipe", "DELETE"), Call("http://127.0.0.1/noop", "GET")),
    "undone by another": Service(Signal("stop", "web"), Signal("reload", "other")),
    "undone by the wrong verb": Service(Signal("stop", "web"), Signal("reload", "web")),
    "stopped": Service(Signal("stop", "web"), Signal("start", "web")),
}


def cases_in(folder: str) -> list[tuple[str, Case]]:
    """(file and name, case) of every case in every file of a folder."""
    found = []
    for path in sorted((CASES / folder).glob("*.yaml")):
        for case in yaml.safe_load(path.read_text(encoding="utf-8")):
            found.append((f"{path.stem}: {case['case']}", case))
    return found


def policy_of(case: Case) -> Policy:
    layers: Mapping[Layer, Mapping[str, object]] = case.get("policy", {})
    return layered([Source(layer, f"{layer}.toml", values) for layer, values in layers.items()])


def evidence_of(case: Case) -> Evidence:
    rows = case.get("changes", [{"edit": "src/a.py"}])
    changes = change_set(
        [change for row in rows for change in changes_of(row)],
        [Observation(path, image()) for path in case.get("reads", [])],
    )
    plan = plan_of(case.get("plan", {}))
    simulation = simulation_of(case.get("report", {}), plan, changes)
    simulation = replace(simulation, **_lies(case.get("forged", [])))
    if "another plan" in case.get("forged", []):
        plan = replace(plan, intent="something else")
    if "edited change set" in case.get("forged", []):
        changes = _swapped(changes)
    return Evidence(
        plan=plan,
        change_set=changes,
        simulation=simulation,
        author=case.get("author", "person"),
        texts=tuple(text for row in rows for text in texts_of(row)),
        receipts=tuple(receipt_of(row, simulation) for row in case.get("receipts", [{}])),
        instructions=tuple((path, digest) for path, digest in case.get("instructions", [])),
        root=case.get("root", ""),
        tree_files=case.get("tree_files"),
        links=tuple((path, target) for path, target in case.get("links", {}).items()),
        base_tests=base_tests_of(case["base_tests"]) if "base_tests" in case else None,
        unmet=tuple(case.get("unmet", [])),
    )


def base_tests_of(row: Case) -> BaseTests:
    """Where they failed, a receipt says so."""
    outcome = row.get("outcome", "passed")
    receipt = Receipt(("pytest",), "base tests", outcome == "passed", 0, 1, "", "6" * 64, "the base's tests")
    lists = {name: tuple(row.get(name, ())) for name in ("changed", "added", "missing", "skipped")}
    return BaseTests(**lists, outcome=outcome, receipts=() if outcome == "not run" else (receipt,))


def _lies(forged: list[str]) -> dict[str, str]:
    """A report whose digests were edited to fit something else."""
    fields = {"report of another base": "base", "report of another change set": "change_set"}
    return {field: "0" * 64 for word, field in fields.items() if word in forged}


def _swapped(changes: ChangeSet) -> ChangeSet:
    """Other content under the same digest: what an editor of the stored change set would leave behind."""
    first, *rest = changes.changes
    return changes._replace(changes=(first._replace(post=image("swapped")), *rest))


def image(content: str = "old\n", **fields: Any) -> Image:
    data = content.encode()
    row = {"kind": "file", "mode": 0o644, "uid": 1000, "gid": 1000, "size": len(data), **fields}
    row["mode"] = int(row["mode"], 8) if isinstance(row["mode"], str) else row["mode"]
    if row["kind"] == "file":
        row.setdefault("digest", hashlib.sha256(data).hexdigest())
    else:
        row["size"] = 0
    row["xattrs"] = tuple(sorted(tuple(pair) for pair in row.get("xattrs", [])))
    return Image(**row)


def changes_of(row: Case) -> list[Change]:
    """`create`, `edit`, `delete`, `directory`, `link`, `move`, `change` (all but the content), or `many` of one."""
    if "many" in row:
        return [change for n in range(row["many"]) for change in changes_of(numbered(row, n))]
    before, after = row.get("before", {}), row.get("after", {})
    new = image(row.get("text", "new\n"), **after)
    match next(iter(row)):
        case "create":
            return [Change(row["create"], None, new)]
        case "edit":
            return [Change(row["edit"], image(**before), new)]
        case "delete":
            return [Change(row["delete"], image(**before), None)]
        case "link":
            return [Change(row["link"], None, image(kind="symlink", mode=0o777, target=row["to"]))]
        case "directory":
            return [Change(row["directory"], None, image(kind="directory", mode=row.get("mode", 0o755)))]
        case "move":
            return [Change(row["move"], image(), None), Change(row["to"], None, image(**after), row["move"])]
        case "change":  # the content stays; what `after` names becomes different
            return [Change(row["change"], image(**before), image(**{**before, **after}))]
        case other:
            raise ValueError(f"a case with an unknown change: {other}")


def numbered(row: Case, number: int) -> Case:
    verb = next(iter(row))
    rest = {key: value for key, value in row.items() if key not in ("many", verb)}
    return {verb: row[verb].replace("#", str(number)), **rest, **_numbered_target(rest, number)}


def _numbered_target(row: Case, number: int) -> Case:
    return {"to": row["to"].replace("#", str(number))} if "to" in row else {}


def texts_of(row: Case) -> list[Text]:
    """What the engine would have read; `unseen` rows were never shown to the gate."""
    if "many" in row:
        return [text for n in range(row["many"]) for text in texts_of(numbered(row, n))]
    verb = next(iter(row))
    if row.get("unseen") or verb not in ("create", "edit"):
        return []
    added = "".join(row["secret"]) if "secret" in row else row.get("text", "new\n")
    text = compared(row[verb], b"", added.encode())
    return [
        text._replace(
            binary=row.get("binary", text.binary),
            unread=row.get("unread", text.unread),
            lines_added=row.get("lines", text.lines_added),
        )
    ]


def plan_of(row: Case) -> Plan:
    steps: list[Step] = [Write("src/a.py", Inline(b"new\n"))]
    steps += [SERVICE[name] for name in row.get("services", [])]
    steps += [Run(tuple(argv)) for argv in row.get("run", [])]
    return Plan(
        intent=row.get("intent", "a change"),
        steps=tuple(steps),
        risk=row.get("risk", "low"),
        verify=tuple(CommandCheck(tuple(argv)) for argv in row.get("verify", [["make", "test"]])),
        health=tuple(_health(item) for item in row.get("health", ["http://127.0.0.1/health"])),
        unverified_because=row.get("skips", ""),
    )


def _health(item: str | list[str]) -> HttpCheck | CommandCheck:
    return HttpCheck(item) if isinstance(item, str) else CommandCheck(tuple(item))


def simulation_of(row: Case, plan: Plan, changes: ChangeSet) -> Simulation:
    steps = tuple(_simulated(n, step, row) for n, step in enumerate(plan.steps))
    if row.get("leaves_out_a_step"):
        steps = steps[:-1]
    return Simulation(
        plan_id=plan.id,
        plan_digest=plan.digest,
        status=row.get("status", "SUCCESS"),
        change_set=changes.digest,
        base=changes.base,
        base_tree="6" * 64,
        predicted_tree=TREE,
        steps=steps,
        suspicious=tuple(row.get("suspicious", [])),
        dangers=tuple(row.get("dangers", [])),
        enforced=tuple(row.get("enforced", [])),
        at_ns=1,
    )


def _simulated(number: int, step: Step, row: Case) -> SimulatedStep:
    services = row.get("unrehearsed", "")
    last = number == row.get("step", 0)
    return SimulatedStep(
        step_id=step_id(number),
        operation=step.action,
        target=step.path,
        precondition="met",
        detail="",
        predicted_change="",
        affected=(step.path,) if step.path else (),
        rollback=FULL._replace(**row.get("rollback", {})) if last else FULL,
        ways_to_fail=(),
        risk=row.get("risk", "SAFE") if last else "SAFE",
        receipt=receipt_of({"kind": "step"}, None) if isinstance(step, Run) else None,
        unrehearsed=services if isinstance(step, Service) else "",
    )


def receipt_of(row: Case, simulation: Simulation | None) -> Receipt:
    return Receipt(
        command=tuple(row.get("command", ["make", "test"])),
        kind=row.get("kind", "tests"),
        passed=row.get("passed", True),
        exit_code=0 if row.get("passed", True) else 1,
        duration_ms=row.get("ms", 1200),
        log_digest="5" * 64,
        tree_digest=row.get("tree", TREE),
        detail=row.get("detail", "41 passed"),
        origin=row.get("origin", "detected"),
    )
