"""What the write gate is shown, what is kept of it for a replay, and the replay.

The kept inputs hold facts and findings, never the text of a change: a finding is masked, a text may be a secret.
They are one blob; the decision's ledger entry names it by digest, so edited inputs are no inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

from holdfast.engine.difference import PlannedDifference
from holdfast.errors import Tampering
from holdfast.gates.evidence import PERSON, Evidence, Text, compared
from holdfast.gates.layers import layered
from holdfast.gates.secrets import Finding, every_finding
from holdfast.gates.write_gate import GATE_VERSION, decide
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.decision import Decision
from holdfast.model.execution import Receipt
from holdfast.model.plan import Plan, described
from holdfast.model.saved_plan import plan_from
from holdfast.model.saved_simulation import change_set_from, receipt_from, simulation_from
from holdfast.model.simulation import Simulation, step_document
from holdfast.model.tables import Source as LayerSource
from holdfast.store.documents import packed_lists, unpacked
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source


def evidence_of(
    site: Site,
    plan: Plan,
    report: Simulation,
    change_set: ChangeSet,
    sources: Mapping[str, Source],
    receipts: Sequence[Receipt],
    author: str = PERSON,
) -> Evidence:
    """Everything the gate looks at, read from what was captured; of each text only what was found in it stays."""
    texts: list[Text] = []
    findings: list[Finding] = []
    for text in _texts(PlannedDifference(site, change_set.changes, sources), change_set.changes):
        findings += every_finding((text,))
        texts.append(text._replace(added=""))
    return Evidence(
        plan,
        change_set,
        report,
        author,
        tuple(texts),
        tuple(receipts),
        root=site.path,
        findings=tuple(sorted(findings)),
    )


def _texts(difference: PlannedDifference, changes: Sequence[Change]) -> Iterator[Text]:
    told = [change for change in changes if _has_new_bytes(change)]
    for change, old, new in difference.compared(told):
        if new.data is None:
            yield Text(change.path, binary=new.why_not == "binary", unread=new.why_not != "binary")
        else:
            yield compared(change.path, old.data or b"", new.data)


def _has_new_bytes(change: Change) -> bool:
    post, pre = change.post, change.pre
    if post is None or post.kind != "file" or change.origin is not None:
        return False
    return pre is None or pre.digest != post.digest


def kept_inputs(evidence: Evidence, layers: Sequence[LayerSource], approvers: int) -> bytes:
    """The evidence as a blob: what `replayed` needs, and nothing that is secret."""
    plan, report, changes = evidence.plan, evidence.simulation, evidence.change_set
    head = {
        "version": 1,
        "plan": plan.document(),
        "report": report.head(),
        "made_ns": report.at_ns,
        "author": evidence.author,
        "findings": evidence.findings or (),
        "receipts": [receipt._asdict() for receipt in evidence.receipts],
        "instructions": evidence.instructions,
        "root": evidence.root,
        "layers": layers,
        "approvers": approvers,
    }
    lists = {
        "plan_steps": (described(step) for step in plan.steps),
        "report_steps": map(step_document, report.steps),
        "changes": changes.changes,
        "reads": changes.reads,
        "texts": evidence.texts,
    }
    return packed_lists(head, lists)


def replayed(inputs: bytes) -> Decision:
    """The decision that these inputs give now; Tampering when they are not inputs."""
    try:
        found = unpacked(inputs)
        evidence = Evidence(
            plan=plan_from({**found["plan"], "steps": found["plan_steps"]}),
            change_set=change_set_from(found),
            simulation=simulation_from({**found["report"], "steps": found["report_steps"]}, found["made_ns"]),
            author=found["author"],
            texts=tuple(Text(*row) for row in found["texts"]),
            receipts=tuple(receipt_from(row) for row in found["receipts"]),
            instructions=tuple((path, digest) for path, digest in found["instructions"]),
            root=found["root"],
            findings=tuple(Finding(*row) for row in found["findings"]),
        )
        layers = [LayerSource(layer, file, values) for layer, file, values in found["layers"]]
        approvers = int(found["approvers"])
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise Tampering(f"the inputs of a decision are damaged: {error}") from error
    return decide(evidence, layered(layers), approvers)


__all__ = ["GATE_VERSION", "evidence_of", "kept_inputs", "replayed"]
