"""A process that runs items, to be killed and frozen by tests.

    python child.py home   STATE URL EFFECTS COUNT    starts COUNT items of three steps, waits for all, prints "done"
    python child.py driver STATE URL EFFECTS COUNT    the same, but runs none itself: workers do
    python child.py worker STATE URL EFFECTS NAME     runs what stands in line, until it is lost: prints "lost"
    python child.py hold   STATE URL EFFECTS -        a home that does nothing: prints "up"
    python child.py spawn  STATE URL EFFECTS -        a home whose one item starts a program that would run for an hour
    python child.py ends   STATE URL EFFECTS FILE     a home whose items end once FILE is there; it waits for them, or
                                                      until FILE.leave is there, and prints "closed"

Each step writes one line, `item step pid token`, in one write, and gives its pid.
"""

from __future__ import annotations

import os
import sys
import time

from child_words import LEASE, STEPS, WORKSPACE, ids

from holdfast.engine.durable import Database, Inside, Queue
from holdfast.engine.durable_running import home, worker
from holdfast.model.canonical import Json
from holdfast.sandbox.process import Command, clean_environment, run

_mode, _state, _url, _effects, _last = sys.argv[1:]


def write(line: str) -> None:
    fd = os.open(_effects, os.O_WRONLY | os.O_APPEND)
    os.write(fd, f"{line}\n".encode())
    os.close(fd)


def effect(item: str, step: str, token: int, seconds: float) -> Json:
    time.sleep(seconds)
    write(f"{item} {step} {os.getpid()} {token}")
    return os.getpid()


def work(inside: Inside, argument: Json) -> Json:
    seconds = int(argument) / 1000 if isinstance(argument, int) else 0.01
    return [inside.step(step, effect, inside.id, step, inside.token, seconds) for step in STEPS]


def spawn(inside: Inside, argument: Json) -> Json:
    def start() -> Json:
        script = f"import os, time; open({_effects!r}, 'a').write(f'spawned {{os.getpid()}}\\n'); time.sleep(3600)"
        home = os.path.dirname(_effects)
        run(Command((sys.executable, "-c", script), home, clean_environment(home), 3_600_000))
        return None

    return inside.step("start", start)


def end(inside: Inside, argument: Json) -> Json:
    write(f"{inside.id} end {os.getpid()} {inside.token}")
    while not os.path.exists(_last):
        time.sleep(0.05)
    return None


def drive(count: int, each: int) -> None:
    database, queue = Database(_state, _url), (Queue("work", each=each),)
    here, elsewhere = (queue, ()) if _mode == "home" else ((), queue)
    with home(database, WORKSPACE, {"work": work}, here, elsewhere=elsewhere) as engine:
        open_items = set(ids(count))
        for id in ids(count):
            engine.start(id, "work", 20, "work")
        print("started", flush=True)
        while open_items:
            open_items -= {item.id for item in engine.wait(open_items, 1.0)}
            engine.take_from_the_lost(f"{WORKSPACE}/")
    print("done", flush=True)


def main() -> None:
    database = Database(_state, _url)
    if _mode in ("home", "driver"):
        drive(int(_last), 4)
    elif _mode == "worker":
        with worker(database, _last, {"work": work}, ("work",), LEASE, grace_s=1.0) as engine:
            print("up", flush=True)
            while not engine.lost:
                time.sleep(0.05)
        print("lost", flush=True)
    elif _mode == "hold":
        with home(database, WORKSPACE, {"work": work}, ()):
            print("up", flush=True)
            time.sleep(3600)
    elif _mode == "spawn":
        with home(database, WORKSPACE, {"spawn": spawn}, (Queue("work"),)) as engine:
            engine.start(f"{WORKSPACE}/spawn", "spawn", None, "work")
            time.sleep(3600)
    elif _mode == "ends":
        with home(database, WORKSPACE, {"end": end}, (Queue("work", each=4),)) as engine:
            open_items = set(ids(4))
            engine.start_all("end", dict.fromkeys(ids(4)), "work")
            while open_items and not os.path.exists(f"{_last}.leave"):
                open_items -= {item.id for item in engine.wait(open_items, 0.2)}
        print("closed", flush=True)
        if open_items:
            os._exit(0)  # as a worker does: no thread is waited for


if __name__ == "__main__":
    main()
