"""The program `holdfast`.

`--version` is answered before anything is imported, so that it starts like bare Python.

Python's garbage collector stays off: a program that carries out one verb and ends has no use for it,
and it would look through every module several times while they are loaded, and again at the end.
"""

from __future__ import annotations

import sys

from holdfast import __version__

_PLAIN = frozenset({"--version", "-V", "--json", "--stream-json", "--no-color"})


def main() -> None:
    if None in (sys.stdin, sys.stdout, sys.stderr):
        from holdfast.disk.streams import open_closed_streams

        open_closed_streams()
    words = set(sys.argv[1:])
    if words <= _PLAIN and words & {"--version", "-V"}:
        if words & {"--json", "--stream-json"}:
            print(f'{{"schema": "holdfast/1", "kind": "version", "id": "{__version__}", "status": "ok"}}')
        else:
            print(f"holdfast {__version__}")
        return
    import gc

    gc.disable()
    from holdfast import cli

    status = cli.main(sys.argv[1:])
    gc.freeze()
    sys.exit(status)


if __name__ == "__main__":
    main()
