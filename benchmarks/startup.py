"""Start-up: `holdfast --version` and the verbs that only look, against bare Python.

    python benchmarks/startup.py --files 1000

All numbers come from one run; contestants take turns, and medians are compared, so that a busy machine hits all alike.
Goals: `--version` ≤ 1.5 × `python -c pass`; verbs that only read ≤ 120 ms.
Byte code is cached, as it is for an installed package; start Python with it switched off and all is slower.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from _measure import Verdict, turns

VERSION_GOAL = 1.5
LOOK_GOAL_MS = 120
# What pip's console script does, without depending on where it was installed.
ENTRY = "import sys; sys.argv[0] = 'holdfast'; from holdfast.__main__ import main; sys.exit(main())"


def environment(place: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    homes = {name: os.path.join(place, name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    return {**own, **homes, "HOME": place}


def holdfast(*words: str) -> list[str]:
    return [sys.executable, "-c", ENTRY, *words]


def prepare(workspace: str, files: int, env: dict[str, str]) -> str:
    """A workspace with some files and two executions; the id of the newer one."""
    os.mkdir(workspace)
    steps = [{"write": f"d{n % 50}/f{n}.txt", "content": f"{n}\n"} for n in range(files)]
    plans = {"intent": "Fill it", "steps": steps}, {"intent": "Change one", "steps": [{**steps[0], "content": "new\n"}]}
    subprocess.run(holdfast("init"), cwd=workspace, env=env, check=True, stdout=subprocess.DEVNULL)
    id = ""
    for plan in plans:
        done = subprocess.run(
            holdfast("apply", "-", "--yes", "--json"),
            input=json.dumps(plan), cwd=workspace, env=env, check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        id = json.loads(done.stdout)["id"]
    return id


def measured(argv: list[str], workspace: str, env: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(argv, cwd=workspace, env=env, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--files", type=int, default=1000, help="files in the workspace (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="holdfast-startup-") as place:
        env, workspace = environment(place), os.path.join(place, "workspace")
        id = prepare(workspace, options.files, env)
        looks = ["log"], ["show", id], ["diff", id], ["status"], ["audit", "verify"]
        contestants = {"python -c pass": [sys.executable, "-c", "pass"], "--version": holdfast("--version")}
        contestants |= {" ".join(words[:2]) if words[0] == "audit" else words[0]: holdfast(*words) for words in looks}
        work = {name: lambda argv=argv: measured(argv, workspace, env) for name, argv in contestants.items()}
        medians = turns(options.rounds, work)
    bare = medians.pop("python -c pass")
    print(f"python -c pass   {bare * 1e3:6.1f} ms   ({options.files:,} files in the workspace)")
    for name, seconds in medians.items():
        print(f"{name:<16} {seconds * 1e3:6.1f} ms   {seconds / bare:5.2f} ×")
    print(Verdict("--version against python -c pass", medians.pop("--version") / bare, VERSION_GOAL).line())
    for name, seconds in medians.items():
        print(Verdict(name, seconds * 1e3, LOOK_GOAL_MS, "ms").line())


if __name__ == "__main__":
    main()
