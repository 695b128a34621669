"""What other tools read of a run: two JSON files, replaced whole whenever something moved.

    RunRecord, Roadmap, TaskRecord… ──results_document──▶ .holdfast/execution_results.json
                                    ──roadmap_document──▶ .holdfast/roadmaps/<name of the roadmap>.json

Invariants
  X1  Killed at any point, a file is the old one or the new one, whole; after a power cut too.
  X2  The documents are pure functions of the records: the same records give the same bytes.
  X3  While a run goes on the files may lag behind, so that writing them takes a twentieth of its time at most.
      Of a run that does not go on they are exact.
  X4  Nothing is decided from them. The ledger says what happened; these are made again from it.

They live in `.holdfast`, also the state of a roadmap: a file in the workspace that changes with each move of a task
would change the tree under the checks, and make every receipt stale. Documented in docs/reference/run-files.md.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping

from holdfast.disk.confined import Root
from holdfast.model.agent import Usage
from holdfast.model.canonical import Json
from holdfast.model.check import masked_words
from holdfast.model.run import RunRecord
from holdfast.model.task import Roadmap, Task, TaskRecord
from holdfast.store.line_log import cut, open_folder

VERSION = 1
RESULTS = "execution_results.json"
ROADMAPS = "roadmaps"
_TITLE_LIMIT, _REASON_LIMIT = 200, 500
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_OTHER = re.compile(r"[^A-Za-z0-9_.-]+")
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# X3: so long between two times, and so many times what the last one took where that is longer.
_PAUSE_S = 1.0
_SHARE = 20
_TRIES = 10

Records = Mapping[str, TaskRecord]
Word = Callable[[str], str]


class Exports:
    """Both files of one run. `word` masks what people and agents wrote; OSError when they cannot be written."""

    def __init__(self, state: Root, word: Word = masked_words, clock: Callable[[], float] = time.monotonic) -> None:
        self._state, self._word, self._clock = state, word, clock
        self._due = float("-inf")
        self._written: dict[str, bytes] = {}

    def tell(self, run: RunRecord, roadmap: Roadmap, records: Records) -> bool:
        """Make the files say this; False where that was put off (X3). Telling it again later is the caller's part."""
        began = self._clock()
        if run.state == "RUNNING" and began < self._due:
            return False
        self._replace(RESULTS, results_document(run, roadmap, records, self._word))
        self._replace(roadmap_file(run.roadmap), roadmap_document(run, roadmap, records, self._word))
        ended = self._clock()
        self._due = ended + max(_PAUSE_S, _SHARE * (ended - began))
        return True

    def _replace(self, path: str, document: Mapping[str, Json]) -> None:
        data = json.dumps(document, ensure_ascii=True, allow_nan=False).encode("ascii") + b"\n"
        if self._written.get(path) != data:
            replace_file(self._state, path, data)
            self._written[path] = data


# ── the documents ──


def results_document(run: RunRecord, roadmap: Roadmap, records: Records, word: Word) -> dict[str, Json]:
    known = {task.id for task in roadmap.tasks}
    held = roadmap.reasons
    tasks = [_result(task, records.get(task.id), word, held.get(task.id, "")) for task in roadmap.tasks]
    # Somebody took these out of the roadmap after they were begun; what became of them still counts.
    gone = [record for id, record in sorted(records.items()) if id not in known]
    tasks += [{**_result(Task(record.task, ""), record, word), "in_roadmap": False} for record in gone]
    return {
        "version": VERSION,
        "kind": "execution_results",
        "run": {
            "id": run.id, "roadmap": run.roadmap, "state": run.state, "because": cut(run.because, _REASON_LIMIT, word),
            "by": run.by, "started_ns": run.started_ns, "at_ns": run.at_ns, "worked_ms": run.worked_ms,
        },
        "totals": _totals(tasks, records, sum(_is_held(records.get(id)) for id in held)),
        "tasks": list(tasks),
    }  # fmt: skip


def roadmap_document(run: RunRecord, roadmap: Roadmap, records: Records, word: Word) -> dict[str, Json]:
    held = roadmap.reasons
    return {
        "version": VERSION,
        "kind": "roadmap_state",
        "roadmap": run.roadmap,
        "format": roadmap.format,
        "run": run.id,
        "tasks": [_standing(task, records.get(task.id), word, held.get(task.id, "")) for task in roadmap.tasks],
    }


def roadmap_file(roadmap: str) -> str:
    """Where the state of this roadmap is, beneath the state directory."""
    return f"{ROADMAPS}/{safe_name(roadmap)}.json"


def _is_held(record: TaskRecord | None) -> bool:
    """Of a task that its file holds: is it left alone? Somebody may have named it all the same."""
    return record is None or record.state == "PENDING"


def _standing(task: Task, record: TaskRecord | None, word: Word, held: str) -> dict[str, Json]:
    """`evidence` tells a task that landed from one whose box somebody ticked: only the first was verified by us.

    What was dropped is ticked, and nobody did it: it is held.
    """
    if held and _is_held(record):
        record = TaskRecord("", task.id, "SKIPPED", because=held)
    elif record is None or (task.done and record.state == "PENDING"):
        record = TaskRecord("", task.id, "COMPLETED" if task.done else "PENDING")
    landed = record.state == "COMPLETED" and bool(record.execution)
    return {
        "id": task.id,
        "number": task.number,
        "title": cut(task.title, _TITLE_LIMIT, word),
        "phase": task.phase,
        "state": record.state,
        "evidence": "landed" if landed else "ticked" if record.state == "COMPLETED" else "",
        "attempts": record.attempt,
        "execution": record.execution,
        "commit": record.commit,
        "because": cut(record.because, _REASON_LIMIT, word),
        "unverified": cut(record.unverified, _REASON_LIMIT, word),
        "at_ns": record.at_ns,
    }


def _result(task: Task, record: TaskRecord | None, word: Word, held: str = "") -> dict[str, Json]:
    known = record or TaskRecord("", task.id)
    tried: list[Json] = [
        {"attempt": one.attempt, "category": one.category, "strategy": one.strategy, "agent": one.agent}
        for one in known.tried
    ]
    return {
        **_standing(task, record, word, held),
        "agent": known.agent or (known.tried[-1].agent if known.tried else ""),
        "files": known.files,
        "duration_ms": _duration_ms(known),
        "usage": dict(known.usage._asdict()),
        "tried": tried,
        "in_roadmap": True,
    }


def _duration_ms(record: TaskRecord) -> int | None:
    """From its first start to its end, pauses included; None while it has none."""
    if not record.settled or not record.started_ns:
        return None
    return max(0, record.at_ns - record.started_ns) // 1_000_000


def _totals(tasks: list[dict[str, Json]], records: Records, held: int) -> dict[str, Json]:
    """The four numbers that EXECUTION_FINISHED has, what is in none of them (`held`), and what they are made of."""
    states = Counter(str(task["state"]) for task in tasks)
    completed, waiting = states["COMPLETED"], states["NEEDS_REVIEW"]
    failed = sum(states[name] for name in ("FAILED", "TIMEOUT", "BLOCKED", "SKIPPED")) - held
    usage = Usage()
    for record in records.values():
        usage = usage.plus(record.usage)
    return {
        "tasks": len(tasks),
        "completed": completed,
        "failed": failed,
        "waiting": waiting,
        "left": len(tasks) - completed - failed - waiting - held,
        "held": held,
        "states": {name: states[name] for name in sorted(states)},
        "attempts": sum(record.attempt for record in records.values()),
        "usage": dict(usage._asdict()),
    }


# ── files ──


def safe_name(text: str) -> str:
    """A name for a file, one for each text: itself where it is plain, else what is plain of it and a digest.

    Plain names have no `+`, so nothing can be called like what another text was turned into.
    """
    if _PLAIN_NAME.fullmatch(text):
        return text
    plain = _OTHER.sub("_", text[:200]).strip("._-")[:60]
    return f"{plain or 'unnamed'}+{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def replace_file(state: Root, path: str, data: bytes, *, durable: bool = True) -> None:
    """Write aside, sync, rename (X1). Without `durable` a power cut may leave it empty, a kill may not."""
    folder_path, _, name = path.rpartition("/")
    folder = open_folder(state, folder_path)
    try:
        _replace_in(state, folder, name, data, durable)
    finally:
        state.calls.close(folder)


def _replace_in(state: Root, folder: int, name: str, data: bytes, durable: bool) -> None:
    calls, aside = state.calls, f".{name}.new"
    fd = _locked(state, folder, aside)
    try:
        calls.truncate(fd, 0)
        rest = memoryview(data)
        while rest:
            taken = calls.write(fd, rest)
            if taken <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
            rest = rest[taken:]
        if durable:
            calls.fsync(fd)
        calls.rename(aside, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        calls.close(fd)


def _locked(state: Root, folder: int, aside: str) -> int:
    """The file to write to, ours alone: a kill leaves it for the next writer, who takes it over.

    It is renamed under the lock, so one that we lock and still find under this name is nobody's result.
    BlockingIOError while another process writes: what it writes is as new as ours.
    """
    calls = state.calls
    for _ in range(_TRIES):
        fd = calls.open(aside, _WRITE, 0o600, dir_fd=folder)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if calls.stat(aside, dir_fd=folder, follow_symlinks=False).st_ino == calls.fstat(fd).st_ino:
                return fd
        except FileNotFoundError:
            pass  # its last owner gave it its name between our two calls; the next one is ours
        except BaseException:
            calls.close(fd)
            raise
        calls.close(fd)
    raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), aside)


def read_file(state: Root, path: str, most: int) -> bytes | None:
    """The first `most` bytes of a file beneath the state directory; None where there is none."""
    try:
        fd = state.calls.open_beneath(path, _READ, state.fd)
    except FileNotFoundError:
        return None
    try:
        return state.calls.read(fd, most)
    finally:
        state.calls.close(fd)
