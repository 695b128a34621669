"""What the proofs about simulate, decide, approve, execute share: a full look at a workspace, people with keys,
simulations that the real command executes later, and an enemy's pen for what lies in `.holdfast`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from blake3 import blake3

from guarded import ME, Ground, with_package
from holdfast.engine.checking import Verified
from holdfast.engine.simulator import Simulated
from holdfast.errors import HoldfastError
from holdfast.model.approval import Approval
from holdfast.model.decision import Decision
from holdfast.model.plan import Plan, Step
from holdfast.store.signing import Signer, load_or_create_signer

_HOUR_NS = 3_600 * 10**9


class Standing(NamedTuple):
    """All that a person or a program could notice about one path."""

    mode: int
    owner: tuple[int, int]
    mtime_ns: int
    inode: int
    content: str


def listing(root: Path) -> dict[str, Standing]:
    """Every path of a workspace, itself included, but for `.holdfast` and `.git`; directories with their times."""
    found = {".": _standing(root)}
    waiting = [root]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            if entry.name in (".holdfast", ".git"):
                continue
            path = Path(entry.path)
            found[os.path.relpath(path, root)] = _standing(path)
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
    return found


def _standing(path: Path) -> Standing:
    about = os.lstat(path)
    content = ""
    if path.is_symlink():
        content = f"to {os.readlink(path)}"
    elif path.is_file():
        content = blake3(path.read_bytes()).hexdigest()
    return Standing(about.st_mode, (about.st_uid, about.st_gid), about.st_mtime_ns, about.st_ino, content)


@contextmanager
def nothing_changes(ground: Ground) -> Iterator[None]:
    """Not one byte, mode, owner, time or inode of the workspace, and not its digest."""
    before, digest = listing(ground.path), ground.hf.tree().digest
    yield
    assert listing(ground.path) == before
    assert ground.hf.tree().digest == digest
    assert ground.journal() == []


@contextmanager
def refused(
    ground: Ground, kind: type[HoldfastError], status: int, says: str = "", *, ending: str = "ABORTED"
) -> Iterator[None]:
    """Ends with this error and exit status, with nothing changed; and the ledger says how it ended.

    An empty `ending` is for what is refused before it is an attempt at all.
    """
    attempts = len(ground.ledger_statuses())
    with nothing_changes(ground), pytest.raises(kind, match=says or None) as caught:
        yield
    assert caught.value.exit_status == status
    assert not caught.value.changed
    assert ground.ledger_statuses()[attempts:] == ([ending] if ending else [])
    assert ground.hf.audit().ok


# ── people ──


class Person(NamedTuple):
    """Somebody with a key. `me` is whoever sits at this keyboard: the key in the user's configuration."""

    name: str
    signer: Signer


def me() -> Person:
    return Person(ME, load_or_create_signer())


def somebody(name: str) -> Person:
    return Person(name, Signer(blake3(name.encode()).digest()))


def configure(text: str) -> None:
    """The user's own config.toml."""
    place = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    (place / "config.toml").write_text(text)
    (place / "config.toml").chmod(0o600)


def approvers(*people: Person, more: str = "") -> str:
    """Configuration in which these people approve; `[policy]` and the like go into `more`."""
    rows = "".join(f'{person.name} = "{person.signer.public}"\n' for person in people)
    return f'[me]\nname = "{ME}"\n[approvers]\n{rows}{more}'


def yes_of(person: Person, decision: Decision, **changed: Any) -> Approval:
    """That person's signed yes, made on their own machine; `changed` is said before signing."""
    now = time.time_ns()
    approval = Approval(
        id=f"a-{os.urandom(6).hex()}",
        answer="approve",
        by=person.name,
        key="",
        simulation=decision.simulation,
        simulation_digest=decision.simulation_digest,
        plan=decision.plan_digest,
        change_set=decision.change_set,
        base=decision.base,
        policy=decision.policy,
        issued_ns=now,
        expires_ns=now + _HOUR_NS,
    )
    return person.signer.signed(replace(approval, **changed))


def hand_in(ground: Ground, *answers: Approval) -> None:
    """File answers that were signed elsewhere."""
    ground.hf.pipeline.file(list(answers))


# ── simulations between two commands ──


class Case(NamedTuple):
    """A plan that was simulated, verified, kept and decided on."""

    simulated: Simulated
    verified: Verified
    decision: Decision

    @property
    def id(self) -> str:
        return self.simulated.report.id


def kept_case(ground: Ground, *steps: Step, **fields: Any) -> Case:
    """`holdfast simulate` and `holdfast evaluate`."""
    hf = ground.hf
    found = hf.simulate(Plan("a test", steps, **fields))
    verified = hf.verify(found)
    kept = hf.keep(found, verified)
    return Case(kept, verified, hf.evaluate(kept, verified))


def execute(ground: Ground, case: Case) -> None:
    """As the command does it, in a process of its own: nothing comes from memory."""
    told = command(ground, "execute", case.id)
    assert told.status == 0, told.message


class Told(NamedTuple):
    status: int
    message: str


def command(ground: Ground, *words: str) -> Told:
    """The real command; its exit status, and what it says about an error."""
    argv = [sys.executable, "-m", "holdfast", "-C", str(ground.path), "--json", *words]
    done = subprocess.run(argv, capture_output=True, env=with_package(), timeout=60, check=False)
    said = json.loads(done.stdout)
    error = said.get("error")
    assert (error is None) == (done.returncode == 0), done.stderr.decode()
    assert error is None or error["changed"] is False
    return Told(done.returncode, "" if error is None else error["message"])


def refuses_to_execute(ground: Ground, case: Case, status: int, says: str) -> None:
    """`holdfast execute` ends with this status; nothing changed, and the ledger knows of the attempt."""
    before = _refusals(ground, case)
    with nothing_changes(ground):
        told = command(ground, "execute", case.id)
    assert (told.status, says in told.message) == (status, True), told
    assert _refusals(ground, case) == before + 1
    assert ground.hf.audit().ok


def _refusals(ground: Ground, case: Case) -> int:
    """How often the ledger says that this simulation was refused."""
    return sum(
        entry.body.get("simulation") == case.id and (entry.kind == "refusal" or entry.body.get("status") == "ABORTED")
        for entry in ground.hf.ledger.entries()
    )


# ── an enemy's pen ──


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Rewrite a kept document; `change` edits it in place."""
    document = json.loads(path.read_bytes())
    before = json.dumps(document)
    change(document)
    assert json.dumps(document) != before, "an attack that changes nothing proves nothing"
    path.write_bytes(json.dumps(document).encode())


def edit_tables(ground: Ground, statement: str, **values: object) -> int:
    """Write into holdfast.db behind Holdfast's back; how many rows were hit."""
    database = sqlite3.connect(ground.state / "holdfast.db", isolation_level=None)
    try:
        return database.execute(statement, values).rowcount
    finally:
        database.close()
