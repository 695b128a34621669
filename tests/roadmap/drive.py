"""One sitting of a run, as a process to be killed: `python drive.py WORKSPACE PARALLEL LANDING [DATABASE [WITHIN_MS]]`.

The first sitting starts the run, every later one goes on with it. The last line says how it ended.
"""

from __future__ import annotations

import sys

import holdfast
from holdfast.engine.roadmap_runs import Crew
from holdfast.errors import UnknownId
from holdfast.model.run import LandingOrder, RunOptions


def main() -> None:
    workspace, parallel, order, database, within_ms = (*sys.argv[1:], *("", "12000")[len(sys.argv) - 4 :])
    landing: LandingOrder = "roadmap" if order == "roadmap" else "finished"
    with holdfast.open(workspace, wait=60.0) as hf:
        crew = Crew(watcher=lambda event: print(event.event, flush=True) if event.event == "TASK_COMPLETED" else None)
        try:
            run = hf.runs.resume(crew=crew, database=database)
        except UnknownId:
            options = RunOptions(
                agent="unruly", parallel=int(parallel), attempts=8, mends=1, within_ms=int(within_ms), landing=landing,
                here=not database,  # with a shared database, workers do the work
            )  # fmt: skip
            run = hf.runs.start("ROADMAP.md", options, crew, yes=True, database=database)
        print(run.state, flush=True)


main()
