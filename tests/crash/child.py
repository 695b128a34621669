"""A program of its own that carries out one scenario, or recovers, to be killed from outside.

    python child.py act WORKSPACE SCENARIO
    python child.py recover WORKSPACE

It looks at BEGIN just before the part that counts, which a tracer can see, and prints "done" after it.
"""

from __future__ import annotations

import os
import sys

import holdfast
from crash.scenarios import BY_NAME, act

BEGIN = "/begin-to-count-here"


def main(what: str, workspace: str, name: str = "") -> None:
    with holdfast.open(workspace) as hf:
        os.path.lexists(BEGIN)
        if what == "act":
            act(BY_NAME[name], hf)
        else:
            hf.recover()
    os.write(1, b"done")


if __name__ == "__main__":
    main(*sys.argv[1:])
