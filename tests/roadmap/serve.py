"""A worker as a process: `python serve.py FOLDER REPOSITORY WORKSPACE_ID DATABASE NAME LEASE_SECONDS`."""

from __future__ import annotations

import sys

from holdfast.engine.durable import Lease
from holdfast.engine.worker import Station
from holdfast.wiring import serve


def main() -> None:
    folder, repository, workspace, database, name, lease = sys.argv[1:]
    station = Station(folder, repository, workspace, database, name, Lease(float(lease), float(lease) / 4))
    kept = serve(station, lambda: False, lambda text: print(text, flush=True))
    sys.exit(0 if kept else 5)


main()
