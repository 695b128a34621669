"""Approvals are signed with the user's key, and any change to a signed approval shows."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from holdfast.errors import ApprovalNeeded, Tampering
from holdfast.model.approval import Approval
from holdfast.store.signing import is_signed, load_or_create_signer, load_signer

YES = Approval("a-1", "approve", "ann", "", "s-1", "d1", "d2", "d3", "d4", "d5", 1, 2, "looks right")


def test_a_signed_approval_is_recognised(tmp_path: Path) -> None:
    """What a signer signed is signed; the same approval without a signature is not."""
    signer = load_or_create_signer(str(tmp_path / "k" / "key"))
    assert is_signed(signer.signed(YES))
    assert not is_signed(YES)


@pytest.mark.parametrize("name", [field.name for field in fields(Approval)])
def test_every_field_is_covered_by_the_signature(name: str, tmp_path: Path) -> None:
    """Whichever field of a signed approval is changed, the signature no longer fits."""
    signed = load_or_create_signer(str(tmp_path / "k" / "key")).signed(YES)
    value = getattr(signed, name)
    other = value + 1 if isinstance(value, int) else "reject" if name == "answer" else ("0" + value[1:] + "0")
    changed = replace(signed, **{name: other})
    assert changed != signed
    assert not is_signed(changed)


@pytest.mark.parametrize(("key", "signature"), [("", ""), ("zz", "00"), ("00" * 32, "00" * 64), ("00" * 31, "00")])
def test_a_malformed_signature_is_a_no(key: str, signature: str) -> None:
    """Keys and signatures that are no hex, too short or all zero never count as signed."""
    assert not is_signed(replace(YES, key=key, signature=signature))


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    """A second load gives the same public key; the file is closed to everybody else."""
    path = tmp_path / "k" / "key"
    assert load_or_create_signer(str(path)).public == load_or_create_signer(str(path)).public
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """A signing key open to other users is tampering: anybody could have approved."""
    path = tmp_path / "k" / "key"
    load_or_create_signer(str(path))
    path.chmod(0o644)
    with pytest.raises(Tampering, match="open to other users"):
        load_signer(str(path))


def test_without_a_key_nobody_can_approve(tmp_path: Path) -> None:
    """A missing key is said so, with what to do; nothing is made on the way."""
    with pytest.raises(ApprovalNeeded, match="no signing key"):
        load_signer(str(tmp_path / "key"))
    assert list(tmp_path.iterdir()) == []
