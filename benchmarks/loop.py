"""The durable engine: 1,000 no-op tasks in a three-level graph, beside make, doit and bare DBOS.

    python benchmarks/loop.py
    python benchmarks/loop.py --tasks 200 --rounds 1 --database sqlite
    python benchmarks/loop.py --only spawning

Every task of the second and third level needs two of the level before. A task of the durable contestants has as many
recorded steps as `--steps` says, with the same limit and the same settings of the database (SQLite: WAL, FULL).

  make, doit       start `true` for each task, call a function for each; they keep nothing that a kill would need,
                   and are told as a floor, not as rivals
  bare, a queue    a program on DBOS as its manual has it: level by level, enqueue all, wait for each
  bare, direct     the same without a queue, in threads: it cannot be shared by machines
  port             `holdfast.engine.durable`: each task is started when its own two are done; ids, tokens, JSON only
  driver           the loop itself: a roadmap, two items a task (work, landing), four entries of the ledger a task,
                   logs and side files

Contestants take turns, each in a process and a database of its own; the time to start up is not counted (for make and
doit it is). A further row is one function in CONTESTANTS. doit is installed into a virtual environment beside the work,
where it is not there already.

Spawning is a table of its own: as many processes that do nothing (`true`), two at a time, by `make -j2` and by
`holdfast.sandbox.process` from two threads, with everything that it does for each: an environment and a session of its
own, output captured, a look for what was left behind, death with us. No isolation, which is counted in shadow.py.
Death with us alone is a row of its own: it needs a fork, which `make` and the two rows below it do without.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "src"))

from _cluster import NewDatabase, cluster
from _measure import Timed, Verdict, arena, clocked, environment, run, turns

GOAL = 1.5
SPAWNING_GOAL = 0.5
TWO = 2
LEVELS = 3
POLL_SECONDS = 0.05


class Job(NamedTuple):
    """What a durable contestant is given."""

    state: str
    url: str
    tasks: int
    steps: int
    at_once: int


def levels(tasks: int) -> list[list[str]]:
    """Names, level by level."""
    each = -(-tasks // LEVELS)
    names = [f"t{number}" for number in range(tasks)]
    return [names[first : first + each] for first in range(0, tasks, each)]


def needs(graph: Sequence[Sequence[str]]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = dict.fromkeys(graph[0], ())
    for before, level in zip(graph, graph[1:], strict=False):
        found |= {name: (before[n % len(before)], before[(n + 1) % len(before)]) for n, name in enumerate(level)}
    return found


# ── durable contestants: each runs in a process of its own, and gives the seconds it took ──


def _bare(job: Job) -> Any:
    """DBOS with the same database settings; the module, launched."""
    import dbos

    from holdfast.engine.durable import Database
    from holdfast.engine.durable_database import connect

    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_engine": connect(Database(job.state, job.url)),
            "application_version": "1",
            "serializer": dbos.DBOSPortableJSONSerializer(),
            "log_level": "ERROR",
        }
    )
    return dbos


def _task(dbos: Any, steps: int) -> Callable[[str], str]:
    def nothing() -> None:
        return None

    @dbos.DBOS.workflow(name="task", max_recovery_attempts=None)  # type: ignore[untyped-decorator]
    def task(name: str) -> str:
        for number in range(steps):
            dbos.DBOS.run_step({"name": f"s{number}"}, nothing)
        return name

    return task  # type: ignore[no-any-return]


def bare_queue(job: Job) -> float:
    dbos = _bare(job)
    task = _task(dbos, job.steps)
    dbos.DBOS.launch()
    dbos.DBOS.register_queue("work", worker_concurrency=job.at_once, polling_interval_sec=POLL_SECONDS)
    _settled()

    def drive() -> None:
        for level in levels(job.tasks):
            handles = []
            for name in level:
                with dbos.SetWorkflowID(name):
                    handles.append(dbos.DBOS.enqueue_workflow("work", task, name))
            for handle in handles:
                handle.get_result(polling_interval_sec=0.01)

    return clocked(drive)


def bare_direct(job: Job) -> float:
    dbos = _bare(job)
    task = _task(dbos, job.steps)
    dbos.DBOS.launch()
    _settled()

    def one(name: str) -> None:
        with dbos.SetWorkflowID(name):
            task(name)

    def drive() -> None:
        with ThreadPoolExecutor(min(job.at_once, 16)) as pool:
            for level in levels(job.tasks):
                list(pool.map(one, level))

    return clocked(drive)


def port(job: Job) -> float:
    from holdfast.engine.durable import Database, Inside, Queue
    from holdfast.engine.durable_running import home
    from holdfast.model.canonical import Json

    def nothing() -> None:
        return None

    def task(inside: Inside, argument: Json) -> Json:
        for number in range(job.steps):
            inside.step(f"s{number}", nothing)
        return argument

    with home(Database(job.state, job.url), "bench", {"task": task}, (Queue("work", each=job.at_once),)) as engine:
        _settled()

        def drive() -> None:
            waiting, running, done = needs(levels(job.tasks)), set[str](), set[str]()
            while waiting or running:
                for name in [name for name, before in waiting.items() if done.issuperset(before)]:
                    del waiting[name]
                    running.add(name)
                    engine.start(name, "task", name, "work")
                ended = {item.id for item in engine.wait(running, 60)}
                done |= ended
                running -= ended

        return clocked(drive)


def driver(job: Job) -> float:
    """The whole loop over a roadmap, with its ledger and its exports; only agents, checks and landings do nothing."""
    import holdfast
    from holdfast.engine.driver import LAND, WORK
    from holdfast.engine.durable import Database, Inside
    from holdfast.engine.expedition import Outfit, go
    from holdfast.engine.orders import Landed, Worked, packed
    from holdfast.engine.run_log import RunLog
    from holdfast.engine.taskbook import begin_run
    from holdfast.model.canonical import Json
    from holdfast.model.run import RunEvent, RunOptions, RunRecord
    from holdfast.wiring.opening import pipeline_at

    graph = needs(levels(job.tasks))
    workspace = os.path.join(job.state, "workspace")
    os.makedirs(workspace)
    rows = [f"- [ ] T{name[1:]} Do nothing" + _after(before) for name, before in graph.items()]
    with open(os.path.join(workspace, "ROADMAP.md"), "w", encoding="ascii") as file:
        file.write("# Roadmap\n\n" + "\n".join(rows) + "\n")
    holdfast.init(workspace)

    def work(inside: Inside, argument: Json) -> Json:
        return packed(Worked("0" * 64, "nobody", 0))

    def land(inside: Inside, argument: Json) -> Json:
        return packed(Landed("e-nothing", "", 0))

    with holdfast.open(workspace, wait=60.0) as hf:
        options = RunOptions(agent="nobody", parallel=job.at_once, checkpoint="none", sync=False)
        run = begin_run(hf.pipeline, RunRecord("", "ROADMAP.md", options, by="bench"))
        log, moments = RunLog(hf.site.state, print), dict[str, float]()

        def watch(event: RunEvent) -> None:
            moments.setdefault(event.event, time.perf_counter())
            log(event)

        outfit = Outfit(
            workspace=hf.id,
            database=Database(hf.site.state.path, job.url),
            opened=lambda: pipeline_at(workspace),
            ground=lambda order: (_ for _ in ()),  # type: ignore[arg-type,return-value]
            checkpoint=lambda pipeline, order, execution: (),
            route=lambda task: "nobody",
            agents={},
            others=lambda task: (),
            watcher=watch,
            export=lambda book, roadmap: log.settled(book.run, roadmap, book.records),
            stop=lambda: "",
            mirrored=True,
            functions={WORK: work, LAND: land},
        )
        ended = go(hf.pipeline, run, outfit)
        if ended.state != "FINISHED":
            raise SystemExit(f"the run ended as {ended.state}: {ended.because}")
        return moments["EXECUTION_FINISHED"] - moments["EXECUTION_STARTED"]


def _after(before: Sequence[str]) -> str:
    return f" (depends on {', '.join('T' + name[1:] for name in before)})" if before else ""


def _settled() -> None:
    """A queue that is new is noticed within a second."""
    time.sleep(1.5)


CONTESTANTS: dict[str, Callable[[Job], float]] = {
    "bare, a queue": bare_queue,
    "bare, direct": bare_direct,
    "port": port,
    "driver": driver,
}
BASE = "bare, a queue"


# ── those that remember little ──


def make(place: str, tasks: int, at_once: int) -> float:
    graph = needs(levels(tasks))
    rules = "".join(f"{name}: {' '.join(before)}\n\t@true\n" for name, before in graph.items())
    with open(os.path.join(place, "Makefile"), "w", encoding="ascii") as file:
        file.write(f".PHONY: all {' '.join(graph)}\nall: {' '.join(graph)}\n{rules}")
    return clocked(lambda: run(["make", "-s", f"-j{min(at_once, 8)}", "-C", place]))


def doit(place: str, tasks: int, python: str) -> float:
    graph = needs(levels(tasks))
    source = (
        f"GRAPH = {graph!r}\n"
        "def task_all():\n"
        "    for name, before in GRAPH.items():\n"
        "        yield {'basename': name, 'actions': [lambda: None], 'task_dep': list(before)}\n"
    )
    with open(os.path.join(place, "dodo.py"), "w", encoding="ascii") as file:
        file.write(source)
    argv = [python, "-m", "doit", "-v", "0"]
    # It keeps what it did, and would do nothing the second time.
    for name in os.listdir(place):
        if name.startswith(".doit"):
            os.unlink(os.path.join(place, name))
    return clocked(lambda: subprocess.run(argv, cwd=place, env=environment(), check=True, stdout=subprocess.DEVNULL))


def python_with_doit(place: str) -> str:
    """An interpreter that has it: this one, or one beside the work; empty, with the reason told, where neither has."""
    if importlib.util.find_spec("doit"):
        return sys.executable
    folder = os.path.join(place, "doit")
    found = os.path.join(folder, "bin", "python")
    if not os.path.exists(found):
        run([sys.executable, "-m", "venv", folder])
        done = subprocess.run([found, "-m", "pip", "install", "-q", "doit"], capture_output=True, text=True)
        if done.returncode:
            print(f"  doit cannot be installed, and is left out: {done.stderr.strip()[-200:]}")
            return ""
    return found


# ── spawning ──


def ours(place: str) -> Callable[[], object]:
    from holdfast.sandbox.process import Command, clean_environment
    from holdfast.sandbox.process import run as run_program

    command = Command(("true",), place, clean_environment(place), 60_000)

    def one() -> None:
        if not run_program(command).succeeded:
            raise SystemExit("a program that does nothing failed")

    return one


def ending_with_us(place: str) -> Callable[[], object]:
    """What this promise of the kernel costs: only the new process can ask for it, which is a copy of us until then."""
    import ctypes

    prctl = ctypes.CDLL(None).prctl
    return lambda: subprocess.run(["/bin/true"], cwd=place, check=True, preexec_fn=lambda: prctl(1, 9, 0, 0, 0))


def popened(place: str) -> Callable[[], object]:
    return lambda: subprocess.run(["/bin/true"], cwd=place, check=True)


def posix_spawned(place: str) -> Callable[[], object]:
    """The floor of Python: start it and wait for it, where we stand, with what we have open."""
    return lambda: os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)


def spawning(name: str, place: str, tasks: int) -> float:
    """Level by level, as the graph wants it, from two threads."""
    one = SPAWNERS[name](place)

    def drive() -> None:
        with ThreadPoolExecutor(TWO) as pool:
            for level in levels(tasks):
                list(pool.map(lambda _: one(), level))

    return clocked(drive)


def measure_spawning(place: str, options: argparse.Namespace) -> None:
    def by(name: str) -> Timed:
        argv = [sys.executable, os.path.abspath(__file__), "--spawner", name, "--spawn", place]
        argv += ["--tasks", str(options.tasks)]
        return lambda: float(subprocess.run(argv, env=environment(), capture_output=True, check=True).stdout)

    contestants: dict[str, Timed] = {"make -j2": lambda: make(place, options.tasks, TWO)}
    times = turns(options.rounds, contestants | {name: by(name) for name in SPAWNERS})
    print(f"{options.tasks:,} processes that do nothing, two at a time")
    for name, seconds in times.items():
        print(f"  {seconds / options.tasks * 1e6:8,.0f} µs each  {name}")
    ratio = times[OURS] / times["make -j2"]
    print(Verdict("spawning / make -j2", ratio, SPAWNING_GOAL).line(), flush=True)


OURS = "ours, 2 threads"
SPAWNERS: dict[str, Callable[[str], Callable[[], object]]] = {
    OURS: ours,
    "Popen, 2 threads, ended with us by the kernel, and nothing else": ending_with_us,
    "Popen, 2 threads, and nothing else": popened,
    "posix_spawn, 2 threads, and nothing else": posix_spawned,
}


# ── measuring ──


def in_a_process(name: str, place: str, url: str, options: argparse.Namespace) -> float:
    state = tempfile.mkdtemp(dir=place)
    job = Job(state, url, options.tasks, options.steps, options.at_once)
    argv = [sys.executable, os.path.abspath(__file__), "--contestant", name, "--job", json.dumps(job)]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True)
    shutil.rmtree(state)
    if done.returncode:
        raise SystemExit(f"{name}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])


def measure(kind: str, place: str, new: NewDatabase | None, options: argparse.Namespace) -> None:
    def timed(name: str) -> Timed:
        return lambda: in_a_process(name, place, new() if new else "", options)

    contestants: dict[str, Timed] = {name: timed(name) for name in CONTESTANTS}
    if kind == "sqlite":
        contestants["make"] = lambda: make(place, options.tasks, options.at_once)
        if python := python_with_doit(place):
            contestants["doit"] = lambda: doit(place, options.tasks, python)
    times = turns(options.rounds, contestants)
    base = times[BASE]
    for name, seconds in times.items():
        each = seconds / options.tasks
        print(f"  {each * 1e3:8.2f} ms a task  {1 / each:8,.0f} tasks/s  {seconds / base:6.2f} ×  {name}")
    for name in times.keys() & {"port", "driver"}:
        print(Verdict(f"{name} / bare DBOS on {kind}", times[name] / base, GOAL).line(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to work")
    parser.add_argument("--tasks", type=int, default=1000, help="tasks (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=3, help="recorded steps of a task (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=64, help="tasks at once (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns (default: %(default)s)")
    parser.add_argument("--database", choices=("both", "sqlite", "postgresql"), default="both")
    parser.add_argument("--only", choices=("spawning", "graph"), help="one of the two tables")
    parser.add_argument("--contestant", choices=tuple(CONTESTANTS), help=argparse.SUPPRESS)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--spawn", help=argparse.SUPPRESS)
    parser.add_argument("--spawner", choices=tuple(SPAWNERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.spawn:
        print(spawning(options.spawner, options.spawn, options.tasks), flush=True)
        return
    if options.contestant:
        # A thread of DBOS may outlive this; the number is all that is wanted.
        print(CONTESTANTS[options.contestant](Job(*json.loads(options.job))), flush=True)
        os._exit(0)
    with arena(options.dir) as place:
        if options.only != "graph":
            measure_spawning(place.path, options)
        if options.only == "spawning":
            return
        if not importlib.util.find_spec("dbos"):
            print("the durable engine is not installed (pip install 'holdfast[run]'): nothing else to measure")
            return
        shape = (
            f"{options.tasks:,} tasks of {options.steps} recorded steps in {LEVELS} levels, {options.at_once} at once"
        )
        if options.database != "postgresql":
            print(f"{shape}, SQLite on {place.about}")
            measure("sqlite", place.path, None, options)
        if options.database != "sqlite":
            with cluster(place.path) as new:
                print(f"{shape}, PostgreSQL on {place.about}")
                measure("postgresql", place.path, new, options) if new else print("  PostgreSQL is not installed")


if __name__ == "__main__":
    main()
