"""Service actions are done in order, known durably before they begin, and taken back newest first."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from execution.little_site import put_away, wait_for
from guarded import children, children_of_others
from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.errors import VerificationFailed
from holdfast.execution.services import Action, Deed, Host, Program, Stands, perform_all, take_back_all
from holdfast.model.plan import Call, Effect, Launch, Service, Signal
from holdfast.sandbox.daemon import Daemon, is_alive, send
from holdfast.store.effects import Effects
from holdfast.store.running import LOG_LIMIT, Running, launched_name
from servers import Api, listening

PYTHON = (sys.executable, "-I", "-S", "-c")
STAYS = (*PYTHON, "import time; print('up', flush=True); time.sleep(600)")
FALLS = (*PYTHON, "import sys; sys.exit('cannot read site.conf')")
WITH_WORKER = (*PYTHON, "import os,time; os.fork(); print(os.getpid(), flush=True); time.sleep(600)")
LISTENS = "import signal,sys,time; signal.signal(signal.SIGHUP, lambda *_: open(sys.argv[1],'a').write('again\\n'));"
SITE = Signal("start", "site")


@pytest.fixture
def api() -> Iterator[Api]:
    with listening() as found:
        found.answers |= {"POST /broken": 500, "DELETE /broken": 500, "POST /elsewhere": 302}
        yield found


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Effects]:
    folder = tmp_path / "txn"
    folder.mkdir()
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    yield Effects(CALLS, fd)
    os.close(fd)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with Root(str(tmp_path), CALLS) as state:
        known = Running(state)
        yield known
        for file in (tmp_path / "services").glob("*.json"):
            put_away(known.recall(file.stem))


@pytest.fixture
def host(running: Running, tmp_path: Path) -> Host:
    programs = {"site": STAYS, "falls": FALLS, "workers": WITH_WORKER}
    return Host(running, str(tmp_path), {name: Program(name, argv) for name, argv in programs.items()}, "")


def act(effect: Effect, compensation: Effect | None = None, within_ms: int = 2000, origin: str = "e-test-0") -> Action:
    return Action(Service(effect, compensation, within_ms), origin)


def performed(host: Host, journal: Effects, actions: Sequence[Action], on_failure: str) -> list[str]:
    """What failed, in words."""
    deeds: list[Deed] = []
    perform_all(host, journal, actions, on_failure, deeds.append)
    assert all(deed.started_ns <= deed.ended_ns for deed in deeds)
    return [deed.failure for deed in deeds if deed.failure]


def known(running: Running, name: str = "site") -> Daemon:
    found = running.recall(name)
    assert found is not None
    return found


# ── plain processes ──


def test_a_plain_process_is_started_restarted_and_stopped(host: Host, running: Running) -> None:
    """A service that configuration names is a process: restart gives another one, stop ends it."""
    host.perform(act(SITE))
    first = known(running).identity
    host.perform(act(SITE))
    assert known(running).identity == first, "start of what runs starts nothing"
    host.perform(act(Signal("restart", "site")))
    second = known(running).identity
    assert (is_alive(first), is_alive(second)) == (False, True)
    host.perform(act(Signal("stop", "site")))
    assert (is_alive(second), running.recall("site")) == (False, None)


def test_reload_waits_until_the_program_listens(running: Running, tmp_path: Path) -> None:
    """Reload right after a start does not kill the program: SIGHUP is sent once there is a handler for it."""
    note = tmp_path / "note"
    argv = (*PYTHON, f"import time; time.sleep(0.3); {LISTENS} time.sleep(600)", str(note))
    host = Host(running, str(tmp_path), {"site": Program("site", argv)}, "")
    host.perform(act(SITE))
    host.perform(act(Signal("reload", "site")))
    wait_for(note.exists)
    assert is_alive(known(running).identity)


def test_reload_of_a_program_that_does_not_listen_fails_and_spares_it(host: Host, running: Running) -> None:
    """A program without a handler would die of SIGHUP: it is not sent, and that is said."""
    host.perform(act(SITE))
    with pytest.raises(VerificationFailed, match="does not listen for SIGHUP"):
        host.perform(act(Signal("reload", "site"), within_ms=200))
    assert is_alive(known(running).identity)


def test_reload_of_what_does_not_run_fails(host: Host) -> None:
    """A service that is not there cannot be reloaded, and that is said."""
    with pytest.raises(VerificationFailed, match="does not run"):
        host.perform(act(Signal("reload", "site")))


def test_a_program_that_falls_over_at_once_has_failed(host: Host, running: Running) -> None:
    """A service that ends as soon as it was started is no success; what it said last is told."""
    with pytest.raises(VerificationFailed, match=r"ended at once: cannot read site\.conf"):
        host.perform(act(Signal("start", "falls")))
    assert running.recall("falls") is None


def test_a_program_that_is_not_there_is_a_failed_action(running: Running, tmp_path: Path) -> None:
    """A command that cannot be started fails like any other action, so that the plan's way back is taken."""
    host = Host(running, str(tmp_path), {"site": Program("site", ("no-such-program",))}, "")
    with pytest.raises(VerificationFailed, match="no-such-program"):
        host.perform(act(SITE))
    assert running.recall("site") is None


def test_workers_end_with_their_service(host: Host, running: Running, tmp_path: Path) -> None:
    """Ending a service ends what it started, also when the program itself is dead already."""
    host.perform(act(Signal("start", "workers")))
    log = tmp_path / "services" / "workers.log"
    wait_for(lambda: len(log.read_text().split()) == 2)
    pids = [int(word) for word in log.read_text().split()]
    main = known(running, "workers")
    assert main.identity.pid in pids
    os.kill(main.identity.pid, 9)
    wait_for(lambda: not is_alive(main.identity))
    host.perform(act(Signal("stop", "workers")))
    wait_for(lambda: not any(_runs(pid) for pid in pids))


def test_a_service_gets_an_environment_of_its_own(
    running: Running, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable of ours, no descriptor, no ignored signal, nobody's child, its own session; HOME is the user's."""
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(lock, True)
    host = Host(running, str(tmp_path), {"site": Program("site", ("/bin/sleep", "600"))}, "")
    host.perform(act(SITE))
    os.close(lock)
    pid = known(running).identity.pid
    log = tmp_path / "services" / "site.log"
    env = dict(entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_text().split("\0") if entry)
    assert {*env} == {"PATH", "HOME", "LANG", "TMPDIR", "HOLDFAST_SERVICE"}
    assert (env["HOME"], env["TMPDIR"]) == (str(home), "/tmp")
    targets = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    assert targets <= {os.devnull, str(log)}
    status = Path(f"/proc/{pid}/status").read_text()
    facts = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    assert int(facts["PPid"]) != os.getpid()
    assert (os.getsid(pid), os.getpgid(pid)) == (pid, pid)
    assert int(facts["SigBlk"], 16) == 0


def test_no_zombie_stays_with_us(host: Host, running: Running) -> None:
    """A service that is ended, or dies, leaves no dead child in the process that started it."""
    others = children_of_others()
    host.perform(act(SITE))
    assert send(known(running).identity, signal.SIGKILL)
    host.perform(act(Signal("restart", "site")))
    host.perform(act(Signal("stop", "site")))
    assert children() <= others


def test_nothing_begins_that_cannot_be_remembered(running: Running, tmp_path: Path) -> None:
    """When the record of a launch cannot be written, the program has not begun, and none of it runs."""
    note = tmp_path / "note"
    host = Host(running, str(tmp_path), {"site": Program("site", ("/usr/bin/touch", str(note)))}, "")
    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "site.json.new").symlink_to("elsewhere")
    with pytest.raises(VerificationFailed, match="start site"):
        host.perform(act(SITE))
    time.sleep(0.1)
    assert not note.exists()


def test_a_long_log_is_put_aside(host: Host, tmp_path: Path) -> None:
    """A log over the limit is set aside at the next start, and only one of those is kept."""
    folder = tmp_path / "services"
    folder.mkdir()
    (folder / "site.log").write_bytes(b"x" * (LOG_LIMIT + 1))
    host.perform(act(SITE))
    wait_for(lambda: (folder / "site.log").read_text() == "up\n")
    assert (folder / "site.log.1").stat().st_size == LOG_LIMIT + 1
    assert stat.S_IMODE((folder / "site.log").stat().st_mode) == 0o600


def test_logs_of_forgotten_launches_go(host: Host, running: Running, tmp_path: Path) -> None:
    """Tidying removes what ended launches said whose execution is no longer kept, and nothing else."""
    for origin in ("e-gone-0", "e-kept-0", "e-busy-0"):
        host.perform(act(Launch(STAYS), origin=origin))
    for origin in ("e-gone-0", "e-kept-0"):
        host.take_back(act(Launch(STAYS), origin=origin), None)
    host.perform(act(SITE))
    host.perform(act(Signal("stop", "site")))
    running.tidy({"e-kept"})
    left = {path.name for path in (tmp_path / "services").iterdir()}
    assert left == {"launched+e-kept-0.log", "launched+e-busy-0.log", "launched+e-busy-0.json", "site.log"}


# ── systemd ──

_SYSTEMCTL = """#!/bin/sh
# A manager of one service, which keeps in a file whether it is active.
shift
echo "$*" >> {told}
case "$1" in
  is-active) test -e {active} ;;
  start|restart) touch {active} ;;
  stop) rm -f {active} ;;
  reload) echo "Job for $3 failed." >&2; exit 1 ;;
esac
"""


@pytest.fixture
def systemd(running: Running, tmp_path: Path) -> Host:
    program = tmp_path / "systemctl"
    program.write_text(_SYSTEMCTL.format(told=tmp_path / "told", active=tmp_path / "active"))
    program.chmod(0o755)
    return Host(running, str(tmp_path), {}, str(program))


def test_systemd_is_told_by_name_and_verb(systemd: Host, journal: Effects, tmp_path: Path) -> None:
    """Where the configuration knows no program, systemctl is asked, and asked to compensate."""
    (tmp_path / "active").touch()
    actions = (act(Signal("restart", "nginx"), Signal("restart", "nginx")),)
    performed(systemd, journal, actions, "rollback")
    assert take_back_all(systemd, journal, actions) == (("nginx restarted with the old files",), ())
    assert (tmp_path / "told").read_text() == "is-active -- nginx\nrestart -- nginx\nrestart -- nginx\n"


def test_a_unit_that_was_not_active_is_stopped_again(systemd: Host, journal: Effects, tmp_path: Path) -> None:
    """A restart of a service that did not run is taken back by stopping it."""
    actions = (act(Signal("restart", "nginx"), Signal("restart", "nginx")),)
    performed(systemd, journal, actions, "rollback")
    assert (tmp_path / "active").exists()
    assert take_back_all(systemd, journal, actions) == (("nginx stopped",), ())
    assert not (tmp_path / "active").exists()


def test_what_systemd_says_is_told(systemd: Host) -> None:
    """A failing systemctl fails the action with its last line."""
    with pytest.raises(VerificationFailed, match=r"reload nginx: Job for nginx failed\."):
        systemd.perform(act(Signal("reload", "nginx")))


def test_an_unknown_service_without_systemd_is_refused(host: Host) -> None:
    """Where neither systemd nor the configuration knows a service, the refusal says what to configure."""
    with pytest.raises(VerificationFailed, match="no systemd here") as caught:
        host.perform(act(Signal("restart", "nginx")))
    assert "[services.nginx]" in caught.value.hint


@pytest.mark.parametrize("on_failure", ["rollback", "stop", "continue"])
def test_what_cannot_begin_is_never_taken_back(host: Host, journal: Effects, api: Api, on_failure: str) -> None:
    """An action without means fails before it is announced: only what was done before it is taken back."""
    actions = (
        act(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE")),
        act(Signal("restart", "nginx"), Signal("restart", "nginx")),
    )
    if on_failure == "rollback":
        with pytest.raises(VerificationFailed, match="no systemd here"):
            performed(host, journal, actions, on_failure)
    else:
        assert len(performed(host, journal, actions, on_failure)) == 1
    assert take_back_all(host, journal, actions) == ((f"DELETE {api.url}/a made",), ())
    assert api.lines == ["POST /a", "DELETE /a"]


def test_what_may_have_begun_is_taken_back_though_its_means_are_gone(host: Host, journal: Effects) -> None:
    """Announced, then a crash, then another configuration: nobody knows that nothing happened, so a person is told."""
    journal.announce(1)
    journal.begun(0, True)
    stands = take_back_all(host, journal, (act(Signal("restart", "nginx"), Signal("restart", "nginx")),))[1]
    assert [item.what for item in stands] == ["restart nginx"]
    assert "no systemd here" in stands[0].why


# ── launches and calls ──


def test_a_launched_program_is_ended_again(host: Host, running: Running, journal: Effects) -> None:
    """Launch needs no declared way back: whoever launched it ends it, and nothing of it is left."""
    actions = (act(Launch(STAYS)),)
    assert performed(host, journal, actions, "rollback") == []
    started = known(running, launched_name("e-test-0")).identity
    assert is_alive(started)
    done, stands = take_back_all(host, journal, actions)
    assert (len(done), stands, is_alive(started)) == (1, (), False)
    assert journal.standing(1) == []


@pytest.mark.parametrize("on_failure", ["rollback", "stop"])
@pytest.mark.parametrize(
    ("argv", "why"), [("./nope", "not found"), ("./broken", "cannot be started: Exec format error")]
)
def test_a_program_that_cannot_be_started_is_nothing_to_take_back(
    host: Host, journal: Effects, running: Running, tmp_path: Path, argv: str, why: str, on_failure: str
) -> None:
    """It is named once, nothing is said to have been ended, and no way back is taken that the plan declares."""
    broken = tmp_path / "broken"
    broken.write_bytes(b"no program")
    broken.chmod(0o755)
    actions = (act(Launch((argv, "-q")), Call("http://127.0.0.1:9/x")),)
    if on_failure == "rollback":
        with pytest.raises(VerificationFailed) as caught:
            performed(host, journal, actions, on_failure)
        assert caught.value.message == f"launch {argv} -q: {why}"
    else:
        assert performed(host, journal, actions, on_failure) == [f"launch {argv} -q: {why}"]
    assert take_back_all(host, journal, actions) == ((), ())
    assert running.recall(launched_name("e-test-0")) is None


def test_a_service_that_cannot_be_started_is_not_said_to_be_stopped(
    running: Running, tmp_path: Path, journal: Effects
) -> None:
    """Of a start that came to nothing there is nothing to take back; of a restart the service that it ended is."""
    host = Host(running, str(tmp_path), {"site": Program("site", ("no-such-program",))}, "")
    actions = (act(SITE, Signal("stop", "site")), act(Signal("restart", "site"), Signal("restart", "site")))
    assert len(performed(host, journal, actions, "continue")) == 2
    assert [item.number for item in journal.standing(2)] == [1]


def test_a_launch_that_is_over_is_not_said_to_be_ended(host: Host, journal: Effects) -> None:
    """A program that fell over at once was ended by nobody."""
    actions = (act(Launch(FALLS)),)
    assert len(performed(host, journal, actions, "stop")) == 1
    ((told,), stands) = take_back_all(host, journal, actions)
    assert (told.endswith("had nothing to take back"), stands) == (True, ())


def test_a_launch_that_never_came_about_is_taken_back_too(host: Host, journal: Effects) -> None:
    """After a crash between the note and the launch there is nothing to end, and that is no failure."""
    actions = (act(Launch(STAYS)),)
    journal.announce(1)
    journal.begun(0, False)
    assert take_back_all(host, journal, actions)[1] == ()


def test_calls_are_made_and_taken_back_newest_first(host: Host, journal: Effects, api: Api) -> None:
    """Declared compensations run in reverse order, with method and body as the plan says."""
    actions = (
        act(Call(f"{api.url}/a", "POST", "one"), Call(f"{api.url}/a", "DELETE")),
        act(Call(f"{api.url}/b", "POST", "two"), Call(f"{api.url}/b", "DELETE")),
    )
    performed(host, journal, actions, "rollback")
    take_back_all(host, journal, actions)
    assert api.lines == ["POST /a", "POST /b", "DELETE /b", "DELETE /a"]
    assert api.seen[1].body == b"two"


@pytest.mark.parametrize("path", ["/broken", "/elsewhere"])
def test_an_error_or_a_redirect_is_a_failure(host: Host, api: Api, path: str) -> None:
    """A call that is answered with an error, or sent elsewhere, has failed; no redirect is followed."""
    with pytest.raises(VerificationFailed, match="answered"):
        host.perform(act(Call(api.url + path)))
    assert api.lines == [f"POST {path}"]


def test_a_call_ends_in_time_whatever_the_server_does(host: Host) -> None:
    """A server that sends a byte now and then cannot hold a call longer than it may take."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def drip() -> None:
            link, _ = server.accept()
            with link:
                while not over.wait(0.05):
                    try:
                        link.send(b"H")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        started = time.monotonic()
        with pytest.raises(VerificationFailed, match="did not answer in time"):
            host.perform(act(Call(f"http://127.0.0.1:{server.getsockname()[1]}/"), within_ms=400))
        took = time.monotonic() - started
        over.set()
        thread.join()
    assert took < 3


def test_a_call_that_is_not_answered_says_so(host: Host) -> None:
    """We hang up when its time is over, so it is not told that the server closed anything."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/"
        for _ in range(3):  # whichever notices first, the clock or the read
            with pytest.raises(VerificationFailed) as caught:
                host.perform(act(Call(url), within_ms=200))
            assert caught.value.message == f"POST {url}: did not answer in time"


def test_what_was_begun_and_failed_is_taken_back_too(host: Host, journal: Effects, api: Api) -> None:
    """An action that failed half-way may have had an effect: its compensation runs as well."""
    actions = (act(Call(f"{api.url}/broken"), Call(f"{api.url}/a", "DELETE")),)
    with pytest.raises(VerificationFailed):
        performed(host, journal, actions, "rollback")
    done, stands = take_back_all(host, journal, actions)
    assert (len(done), stands) == (1, ())


def test_without_a_way_back_it_is_said(host: Host, journal: Effects, api: Api) -> None:
    """A call without compensation is named as something that cannot be taken back, each time."""
    actions = (act(Call(f"{api.url}/a")),)
    performed(host, journal, actions, "rollback")
    for _ in range(2):
        assert take_back_all(host, journal, actions) == (
            (),
            (Stands(f"POST {api.url}/a", "cannot be taken back", is_final=True),),
        )


def test_a_compensation_that_fails_stands_and_the_others_go(host: Host, journal: Effects, api: Api) -> None:
    """Each compensation is tried, whatever became of the one before it; what stands can be tried again."""
    actions = (
        act(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE")),
        act(Call(f"{api.url}/b"), Call(f"{api.url}/broken", "DELETE")),
    )
    performed(host, journal, actions, "rollback")
    done, stands = take_back_all(host, journal, actions)
    assert (len(done), [item.what for item in stands]) == (1, [f"POST {api.url}/b"])
    assert "could not be taken back" in stands[0].why
    assert [item.number for item in journal.standing(2)] == [1]


@pytest.mark.parametrize(("on_failure", "reached"), [("stop", False), ("continue", True)])
def test_the_plan_says_whether_to_go_on(host: Host, journal: Effects, api: Api, on_failure: str, reached: bool) -> None:
    """After a failed action `stop` does no more, `continue` does the rest; both tell what failed."""
    actions = (act(Call(f"{api.url}/broken")), act(Call(f"{api.url}/later")))
    failures = performed(host, journal, actions, on_failure)
    assert len(failures) == 1
    assert ("POST /later" in api.lines) == reached


# ── as it was found ──

_AS_FOUND = [
    # runs before, effect, compensation, runs after taking back
    (False, "start", "stop", False),
    (True, "start", "stop", True),
    (False, "stop", "start", False),
    (True, "stop", "start", True),
    (False, "restart", "restart", False),
    (True, "restart", "restart", True),
]


@pytest.mark.parametrize(("before", "effect", "compensation", "after"), _AS_FOUND)
def test_a_service_is_left_as_it_was_found(
    host: Host, journal: Effects, before: bool, effect: str, compensation: str, after: bool
) -> None:
    """Who did not run before does not run after the way back, and who ran does, whatever the action was."""
    if before:
        host.perform(act(SITE))
    actions = (act(Signal(effect, "site"), Signal(compensation, "site")),)  # type: ignore[arg-type]
    performed(host, journal, actions, "rollback")
    assert take_back_all(host, journal, actions)[1] == ()
    assert host.is_running("site") is after


def test_what_died_of_a_reload_is_started_again(host: Host, running: Running, journal: Effects) -> None:
    """A service that is gone when its reload is taken back is started, because it ran before."""
    host.perform(act(SITE))
    journal.announce(1)
    journal.begun(0, True)
    assert send(known(running).identity, signal.SIGKILL)
    wait_for(lambda: host.is_running("site") is False)
    actions = (act(Signal("reload", "site"), Signal("reload", "site")),)
    assert take_back_all(host, journal, actions) == (("site started with the old files",), ())
    assert host.is_running("site")


@pytest.mark.parametrize("effect", [Launch(STAYS), Signal("restart", "site")])
def test_a_way_back_has_a_way_back(host: Host, running: Running, journal: Effects, effect: Effect) -> None:
    """An undo that fails leaves what it was undoing: the launched program, the restarted service, run again."""
    forth = act(effect, effect if isinstance(effect, Signal) else None)
    host.perform(forth)
    back = forth._replace(back=True, ran=isinstance(effect, Signal))
    performed(host, journal, (back,), "rollback")
    assert host.runs(back) is isinstance(effect, Signal)
    assert take_back_all(host, journal, (back,))[1] == ()
    assert host.runs(back) is True


def test_while_files_wait_for_a_person_services_are_told_again(host: Host, journal: Effects) -> None:
    """Told once with the files half-way, a service stays on the list until they are settled."""
    actions = (act(Signal("restart", "site"), Signal("restart", "site")), act(Launch(STAYS)))
    performed(host, journal, actions, "rollback")
    take_back_all(host, journal, actions, files_settled=False)
    assert [item.number for item in journal.standing(2)] == [0]
    take_back_all(host, journal, actions)
    assert journal.standing(2) == []


def _runs(pid: int) -> bool:
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False
