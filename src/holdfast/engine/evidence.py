"""What the write gate is shown, what is kept of it for a replay, and the replay.

The kept inputs hold facts and findings, never the text of a change: a finding is masked, a text may be a secret.
They are one blob; the decision's ledger entry names it by digest, so edited inputs are no inputs.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from holdfast.engine.difference import PlannedDifference
from holdfast.engine.looked_up import unmet_by
from holdfast.errors import Tampering
from holdfast.gates.evidence import Evidence, Text, compared
from holdfast.gates.layers import layered
from holdfast.gates.secrets import Finding, every_finding
from holdfast.gates.write_gate import GATE_VERSION, decide
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.check import document as check_document
from holdfast.model.decision import Decision
from holdfast.model.plan import Plan, described
from holdfast.model.saved_plan import health_from, plan_from
from holdfast.model.saved_simulation import base_tests_from, change_set_from, receipt_from, simulation_from
from holdfast.model.simulation import Simulation, step_document
from holdfast.model.tables import Source as LayerSource
from holdfast.store.documents import packed_lists, unpacked
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source

# Of the kept inputs; each version that ever was stays readable (tests/golden).
_VERSION = 1
_SEARCHED_AT_ONCE = 1 << 20


def evidence_of(
    site: Site,
    plan: Plan,
    report: Simulation,
    change_set: ChangeSet,
    sources: Mapping[str, Source],
) -> Evidence:
    """What the gate reads of a change, from what was captured; of each text only what was found in it stays."""
    texts: list[Text] = []
    findings: set[Finding] = set()
    for batch in _batches(_texts(PlannedDifference(site, change_set.changes, sources), change_set.changes)):
        known = every_finding([text._replace(added=before) for text, before in batch if before])
        findings.update(set(every_finding([text for text, _ in batch])).difference(known))
        texts += (text._replace(added="") for text, _ in batch)
    return Evidence(
        plan,
        change_set,
        report,
        texts=tuple(texts),
        root=site.seen_at,
        findings=tuple(sorted(findings)),
        unmet=unmet_by(site, plan, change_set, sources),
    )


def _batches(texts: Iterable[tuple[Text, str]]) -> Iterator[list[tuple[Text, str]]]:
    """So many at a time that a search of all of them pays, and no more: all texts of a change can be very large."""
    batch: list[tuple[Text, str]] = []
    size = 0
    for text, before in texts:
        batch.append((text, before))
        size += len(text.added) + len(before)
        if size >= _SEARCHED_AT_ONCE:
            yield batch
            batch, size = [], 0
    yield batch


def _texts(difference: PlannedDifference, changes: Sequence[Change]) -> Iterator[tuple[Text, str]]:
    """Each text, and what of a binary was there before: that has no lines to compare."""
    told = [change for change in changes if _has_new_bytes(change)]
    for change, old, new in difference.compared(told):
        if new.data is not None:
            yield compared(change.path, old.data or b"", new.data), ""
        elif new.binary:
            yield Text(change.path, _characters(new.binary), binary=True), _characters(old.binary or old.data or b"")
        else:
            yield Text(change.path, unread=True), ""


def _characters(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _has_new_bytes(change: Change) -> bool:
    post, pre = change.post, change.pre
    if post is None or post.kind != "file" or change.origin is not None:
        return False
    return pre is None or pre.digest != post.digest


def kept_inputs(evidence: Evidence, layers: Sequence[LayerSource], approvers: int, others: int) -> bytes:
    """The evidence as a blob: what `replayed` needs, and nothing that is secret."""
    plan, report, changes = evidence.plan, evidence.simulation, evidence.change_set
    head = {
        "version": _VERSION,
        "plan": plan.document(),
        "report": report.head(),
        "made_ns": report.at_ns,
        "author": evidence.author,
        "findings": evidence.findings or (),
        "receipts": [receipt.document() for receipt in evidence.receipts],
        "instructions": evidence.instructions,
        "root": evidence.root,
        "layers": layers,
        "approvers": approvers,
        "others": others,
        "links": evidence.links,
        "lands_as": evidence.lands_as,
        "tree_files": evidence.tree_files,
        "health_in_words": [check_document(check) for check in evidence.health_in_words],
        **({"outdated": evidence.outdated} if evidence.outdated else {}),
        **({"unmet": list(evidence.unmet)} if evidence.unmet else {}),
        **({"base_tests": evidence.base_tests.document()} if evidence.base_tests is not None else {}),
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
        if found["version"] != _VERSION:
            # The digest says that these bytes were kept, not that this release knows what they mean.
            raise Tampering(f"the inputs of a decision are of version {found['version']!r}; this is version {_VERSION}")
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
            # Not known to the first release, whose gate asked nothing about them.
            links=tuple((path, target) for path, target in found.get("links", ())),
            lands_as=str(found.get("lands_as", "")),
            tree_files=found.get("tree_files"),
            # Not counted by the gate of earlier releases.
            health_in_words=tuple(map(health_from, found.get("health_in_words", ()))),
            # Not looked at by earlier releases.
            base_tests=base_tests_from(found.get("base_tests")),
            unmet=tuple(map(str, found.get("unmet", ()))),
            outdated=str(found.get("outdated", "")),
        )
        layers = [LayerSource(layer, file, values) for layer, file, values in found["layers"]]
        approvers = int(found["approvers"])
        others = int(found.get("others", approvers))
    except (ValueError, KeyError, TypeError, RecursionError, zlib.error) as error:
        raise Tampering(f"the inputs of a decision are damaged: {error}") from error
    return decide(evidence, layered(layers), approvers, others)


__all__ = ["GATE_VERSION", "evidence_of", "kept_inputs", "replayed"]
