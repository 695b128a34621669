"""An agent program that fails, lies, hangs, crashes and conflicts, each on its schedule; then it does its task.

It keeps nothing between attempts: what it was told about the attempt before is in its task, and shows it that it had
its chance to misbehave. Run inside the sandbox as `python3 unruly.py TASK_FILE SECONDS`; the working directory is the
shadow.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path

# What the engine tells of an attempt that came to nothing, whatever it was.
TOLD = ("did not finish", "check failed", "Nothing was changed", "are not there", "your change does not fit", "failed")


def misbehave(how: str, name: str) -> None:
    if how != "works":
        print(f"{name} {how}.", flush=True)  # its own log, to compare with what was measured
    if how == "fails":
        sys.exit(3)
    if how == "lies":
        print("Done! All tests pass.")
        sys.exit(0)
    if how == "breaks":
        Path(f"{name}.py").write_text("def broken(:\n", encoding="utf-8")
        sys.exit(0)
    if how == "hangs":
        time.sleep(600)
    if how == "crashes":
        os.kill(os.getpid(), signal.SIGKILL)


def do(name: str) -> None:
    Path(f"{name}.py").write_text(f"VALUE = {name!r}\n", encoding="utf-8")
    # Everybody writes into one list, and so they collide when they work at the same time.
    if name.startswith("shared"):
        register = Path("register.txt")
        lines = register.read_text(encoding="utf-8").splitlines() if register.exists() else []
        register.write_text("".join(f"{line}\n" for line in sorted({*lines, name})), encoding="utf-8")


def main() -> None:
    task = Path(sys.argv[1]).read_text(encoding="utf-8")
    name, how = re.search(r"Create (\w+)\.py \((\w+)\)", task).groups()  # type: ignore[union-attr]
    if not any(words in task for words in TOLD):
        misbehave(how, name)
    time.sleep(float(sys.argv[2]))
    do(name)
    print("Done.")


main()
