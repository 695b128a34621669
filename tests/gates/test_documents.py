"""What the documents show is what the code takes."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from holdfast.gates.approvals import APPROVAL_RULES, SIGNATURE_RULE
from holdfast.gates.hard import HARD_GATES
from holdfast.gates.layers import layered
from holdfast.gates.policy import Limits, Scalars
from holdfast.gates.self_tests import sound
from holdfast.gates.write_gate import FACT_RULES
from holdfast.settings import Places, load

DOCS = Path(__file__).parent.parent.parent / "docs"
PAGES = ("reference/policy.md", "reference/configuration.md", "how-to/write-a-policy.md")
BLOCKS = [
    (page, block)
    for page in PAGES
    for block in re.findall(r"```toml\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)
]


@pytest.mark.parametrize(("page", "block"), BLOCKS)
def test_an_example_is_valid(page: str, block: str, tmp_path: Path) -> None:
    """Every example of a configuration file is read without complaint, and the policy in it passes its own tests."""
    file = tmp_path / "config.toml"
    file.write_text(block, encoding="utf-8")
    file.chmod(0o644)
    tmp_path.chmod(0o755)
    project = "(project)" in block
    places = Places("", "" if project else str(file), str(file) if project else "", os.geteuid())
    policy = sound(layered(load(places).policy))
    assert policy.digest


def test_the_reference_names_every_rule() -> None:
    """Every rule, gate and key of the code stands in the reference, and there are examples."""
    text = (DOCS / "reference" / "policy.md").read_text(encoding="utf-8")
    names = [rule.name for rule in (*FACT_RULES, *layered().rules)]
    names += [*HARD_GATES, *(rule.name for rule in APPROVAL_RULES), SIGNATURE_RULE]
    names += [f"`{key.removesuffix('_ms')}`" for key in (*Scalars._fields, *Limits._fields)]
    assert [name for name in names if name not in text] == []
    assert len(BLOCKS) > 5
