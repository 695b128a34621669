"""The write gate on a change set of 1,000 files: goal ≤ 20 ms, the built-in policy, a report and all text included.

    python benchmarks/gates.py

The policy is compiled once, as a command does it; what that takes is shown beside.
The gate only thinks, so its own processor time is measured: other programs on the machine do not count.
Paths are like those of a real project, and each file adds forty lines of ordinary code.
In the last line every tenth file holds what looks like a secret and is none, so that it is read closely.
"""

from __future__ import annotations

import hashlib

from _measure import Verdict, on_the_processor, turns

from holdfast.gates.evidence import Evidence, compared
from holdfast.gates.layers import layered
from holdfast.gates.write_gate import decide
from holdfast.model.changeset import Change, change_set
from holdfast.model.execution import Receipt
from holdfast.model.image import Image
from holdfast.model.plan import HttpCheck, Inline, Plan, Write, step_id
from holdfast.model.simulation import Rollback, SimulatedStep, Simulation

FILES = 1_000
GOAL_MS = 20
LINE = "x = 1\n"
# What ordinary code looks like to the search for secrets: one line in ten has a word that makes it look closer.
CODE = "".join(
    f"    tokens_{n} = tuple(password_policy for key in keys)\n"
    if n % 10 == 0
    else f"    value_{n} = compute(table[{n}])\n"
    for n in range(40)
)


PLACEHOLDER = CODE + '    api_key = "example-key-12345"\n'


def evidence(text: str, every_tenth: str = "") -> Evidence:
    data = text.encode()
    tenth = (every_tenth or text).encode()
    old = Image("file", 0o644, 1000, 1000, 1, "0" * 64)
    new = old._replace(size=len(data), digest=hashlib.sha256(data).hexdigest())
    paths = [f"src/package/module_{n}/code_{n % 7}.py" for n in range(FILES)]
    changes = change_set([Change(path, old, new) for path in paths])
    plan = Plan("bench", tuple(Write(path, Inline(data)) for path in paths), health=(HttpCheck("http://127.0.0.1/"),))
    back = Rollback(True, "restore", True, True, "FULL")
    steps = tuple(
        SimulatedStep(step_id(n), "write", path, "met", "", "", (path,), back, (), "SAFE")
        for n, path in enumerate(paths)
    )
    texts = tuple(compared(path, b"", data if n % 10 else tenth) for n, path in enumerate(paths))
    tree = "7" * 64
    report = Simulation(plan.id, plan.digest, "SUCCESS", changes.digest, changes.base, tree, tree, steps)
    receipt = Receipt(("make", "test"), "tests", True, 0, 100, "", tree, "", "detected")
    return Evidence(plan, changes, report, texts=texts, receipts=(receipt,))


def main() -> None:
    policy = layered()
    plain, texts, closely = evidence(LINE), evidence(CODE), evidence(CODE, PLACEHOLDER)
    assert decide(texts, policy, 2).verdict == decide(closely, policy, 2).verdict == "ALLOW"
    medians = turns(
        31,
        {
            "policy": on_the_processor(layered),
            "plain": on_the_processor(lambda: decide(plain, policy, 2)),
            "texts": on_the_processor(lambda: decide(texts, policy, 2)),
            "closely": on_the_processor(lambda: decide(closely, policy, 2)),
        },
    )
    print(f"  policy read and compiled, once a command: {medians['policy'] * 1e3:.1f} ms")
    print(Verdict(f"{FILES:,} files, one line each", medians["plain"] * 1e3, GOAL_MS, "ms").line())
    size = len(CODE) * FILES / 1e6
    what = f"{FILES:,} files, {size:.1f} MB of added code"
    print(Verdict(what, medians["texts"] * 1e3, GOAL_MS, "ms").line())
    print(f"  {what}, a tenth read closely: {medians['closely'] * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
