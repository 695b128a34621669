"""A simulation and its change set read back from what was written, with the digests they had, or ValueError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.model.changeset import Change, ChangeSet, Observation, change_set
from holdfast.model.execution import BaseTests, Receipt
from holdfast.model.image import Image
from holdfast.model.saved_plan import flaw
from holdfast.model.simulation import VERSIONS, ByProduct, Rollback, SimulatedStep, Simulation

# Of the fields of an image but its extended attributes.
_PLAIN = (str, int, int, int, int, str, str)
_DERIVED = frozenset(("highest_risk", "all_rollbacks_exist", "irreversible_actions", "feasible"))


def simulation_from(document: Mapping[str, Any], at_ns: int) -> Simulation:
    """The report whose document this is; what is derived from the rest must agree with it."""
    try:
        fields = {name: value for name, value in document.items() if name not in _DERIVED}
        simulation = Simulation(
            **{
                **fields,
                "steps": tuple(_step(row) for row in fields["steps"]),
                "receipts": tuple(receipt_from(row) for row in fields["receipts"]),
                "by_products": tuple(ByProduct(**row) for row in fields["by_products"]),
                "suspicious": tuple(fields["suspicious"]),
                "dangers": tuple(fields["dangers"]),
                "enforced": tuple(fields["enforced"]),
                "base_tests": base_tests_from(fields.get("base_tests")),
                "at_ns": at_ns,
            }
        )
        derived = simulation.document()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"this is not the document of a simulation: {flaw(error)}") from error
    if simulation.version not in VERSIONS:
        raise ValueError(f"the document of the simulation is of version {simulation.version!r}")
    if _plain(derived) != _plain(document):
        raise ValueError("the document of the simulation contradicts itself")
    return simulation


def kept_report(simulation: Simulation) -> dict[str, object]:
    """The report's document with its time, which its id covers."""
    return {"made_ns": simulation.at_ns, **simulation.document()}


def kept_report_from(row: object) -> Simulation:
    if not isinstance(row, dict) or not isinstance(made_ns := row.get("made_ns"), int):
        raise ValueError("the report does not say when it was made")
    return simulation_from({name: value for name, value in row.items() if name != "made_ns"}, made_ns)


def change_set_rows(changes: ChangeSet) -> dict[str, object]:
    """A change set as JSON, without its digests: whoever reads it back computes them."""
    return {"changes": [list(change) for change in changes.changes], "reads": [list(read) for read in changes.reads]}


def change_set_from(rows: Mapping[str, Any]) -> ChangeSet:
    try:
        changes = [
            Change(_text(path), _image(pre), _image(post), None if origin is None else _text(origin))
            for path, pre, post, origin in rows["changes"]
        ]
        reads = [Observation(_text(path), _required(_image(image))) for path, image in rows["reads"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"this is not a change set: {flaw(error)}") from error
    return change_set(changes, reads)


def _step(row: Mapping[str, Any]) -> SimulatedStep:
    tuples = {name: tuple(row[name]) for name in ("affected", "ways_to_fail", "confirmations")}
    receipt = receipt_from(row["receipt"]) if row["receipt"] is not None else None
    return SimulatedStep(**{**row, **tuples, "rollback": Rollback(**row["rollback"]), "receipt": receipt})


def receipt_from(row: Mapping[str, Any]) -> Receipt:
    return Receipt(**{**row, "command": tuple(row["command"])})


def base_tests_from(row: Mapping[str, Any] | None) -> BaseTests | None:
    if row is None:
        return None
    lists = {name: tuple(row[name]) for name in ("changed", "added", "missing", "skipped")}
    return BaseTests(**{**row, **lists, "receipts": tuple(receipt_from(each) for each in row["receipts"])})


def _image(row: Any) -> Image | None:
    if row is None:
        return None
    *plain, xattrs = row
    # Digests tell no empty text from what is missing, and no number from what equals it; comparing images does.
    if tuple(map(type, plain)) != _PLAIN or type(xattrs) is not list:
        raise TypeError("an image has a field of another type")
    return Image._make((*plain, tuple((_text(name), _text(value)) for name, value in xattrs)))


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError("this is no text")
    return value


def _required(image: Image | None) -> Image:
    if image is None:
        raise TypeError("a path that was read has an image")
    return image


def _plain(value: Any) -> Any:
    """Tuples as lists, all the way down, as JSON would give them."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
