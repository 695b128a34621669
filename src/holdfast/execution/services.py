"""Service actions: effects outside the files, after those are in place, each with its way back.

    announced ─▶ begun ─▶ done ──── all of them ──▶ health ─▶ commit
                   └───────┴── anything fails ──▶ files back first, then each one taken back, newest first

| effect                       | with systemd              | otherwise: a program that configuration names     |
|------------------------------|---------------------------|---------------------------------------------------|
| restart, start, stop, reload | systemctl VERB NAME       | end and launch, launch, end, SIGHUP               |
| launch                       | started, remembered under its action's name; taken back by ending it          |
| call                         | an HTTP request; taken back by the call that the plan declares, or not at all |

An undo does the same backwards (`Action.back`): it takes the effect away, and having it again is its way back.

Invariants
  S1  Nothing is done that `store.effects` does not know durably before (its F1).
  S2  A service is left as it was found: who did not run before does not run after, who ran runs.
  S3  Taking back can be repeated: what has ended is not ended twice, what runs is started afresh; only a call is
      made once more (F2), so the call that takes another one back must bear that.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from signal import SIGHUP
from typing import NamedTuple

from holdfast.errors import HoldfastError, InvalidInput, VerificationFailed
from holdfast.model.path import printable
from holdfast.model.plan import Call, Effect, Launch, Service, Signal, Verb, worded
from holdfast.sandbox.daemon import catches, end, is_alive, launch, send, stays
from holdfast.sandbox.process import Command, Finished, clean_environment, run
from holdfast.store.effects import Effects
from holdfast.store.running import Running, launched_name

_GRACE_S = 10.0
# Who falls over its own configuration does so at once; whoever lives longer is the health checks' business.
_SETTLE_S = 0.1
_POLL_S = 0.02
_SYSTEMCTL_OUTPUT = 1 << 16
_ASKING_MS = 10_000
_WITH_FILES = " with the old files"
_BROKEN_OFF = "it was broken off"


class NotStarted(VerificationFailed):
    """The program of an action cannot be started at all: it is not there, or is none."""


class Program(NamedTuple):
    """A service that is a plain process: how the user's own configuration starts it."""

    name: str
    start: tuple[str, ...]


class Action(NamedTuple):
    """One service action. `origin` names it through undo and redo; `back`: the effect is taken away instead of had.

    `ran`, only on the way back: whether the service ran before the effect was had; None when nobody knows.
    """

    service: Service
    origin: str
    back: bool = False
    ran: bool | None = None

    @property
    def wording(self) -> str:
        effect = self.service.effect
        if not self.back:
            return worded(effect)
        chosen = _chosen(effect, self.service.compensation, self.ran)
        words = [f"end {_argv(effect)}"] if isinstance(effect, Launch) else []
        if chosen is not None:
            words.append(worded(chosen) + _WITH_FILES * (isinstance(chosen, Signal) and chosen.verb != "stop"))
        return " and ".join(words) or f"leave {worded(effect).partition(' ')[2]} running"

    @property
    def is_final(self) -> bool:
        """Can it not be taken back?"""
        without = self.service.compensation is None and not isinstance(self.service.effect, Launch)
        return without and not self.back


class Deed(NamedTuple):
    """How an action went: when, and why it failed; empty when it did not.

    `is_begun`: it may have had an effect, also when it failed. On the way back `taken_back` is what was done about it,
    in words, and `stands` why nothing could be; both are empty where nobody tried.
    """

    started_ns: int
    ended_ns: int
    failure: str
    is_begun: bool = True
    taken_back: str = ""
    stands: str = ""


class Returned(NamedTuple):
    """What became of the action of this number on the way back; one of the two is empty (see `Deed`)."""

    number: int
    taken_back: str
    stands: str


class Stands(NamedTuple):
    """An action that could not be taken back, and why. `is_final`: nothing takes it back, however often it is tried."""

    what: str
    why: str
    is_final: bool = False

    @property
    def sentence(self) -> str:
        return f"{self.what} {self.why}"


class Host:
    """The machine's services. `running` remembers what was launched; `programs` are those systemd does not know.

    `systemctl` is the program to ask systemd with; empty where there is none.
    """

    def __init__(self, running: Running, cwd: str, programs: Mapping[str, Program], systemctl: str) -> None:
        self._running = running
        self._cwd = cwd
        self._programs = programs
        self._systemctl = systemctl

    def runs(self, action: Action) -> bool | None:
        """Does it run now, what this action is about? None when there is no such thing, or nobody can tell."""
        with _in_our_words(action.wording):
            match action.service.effect:
                case Signal(_, name):
                    return self.is_running(name)
                case Launch():
                    return self.is_running(launched_name(action.origin))
                case Call():
                    return None

    def require_means(self, action: Action) -> None:
        """VerificationFailed for what cannot even begin here: nobody knows a service of this name."""
        service = action.service
        wanted = _chosen(service.effect, service.compensation, action.ran) if action.back else service.effect
        if isinstance(wanted, Signal) and wanted.name not in self._programs and not self._systemctl:
            raise VerificationFailed(
                f"{worded(wanted)}: there is no systemd here, and the configuration names no program of this name",
                hint=f'Say how it is started in the user\'s config.toml: [services.{wanted.name}] start = ["…"]',
            )

    def perform(self, action: Action) -> None:
        """Do it, or VerificationFailed."""
        with _in_our_words(action.wording):
            if action.back:
                self._take_away(action.service, action.origin, action.ran)
            else:
                self._have(action.service.effect, action.origin, action.service.within_ms)

    def take_back(self, action: Action, ran: bool | None) -> str:
        """Compensate; what was done is returned in words. VerificationFailed when it cannot be."""
        with _in_our_words("could not be taken back"):
            if action.back:
                return self._bring_back(action.service, action.origin, ran)
            return self._take_away(action.service, action.origin, ran)

    def is_running(self, name: str) -> bool | None:
        if name not in self._programs and "+" not in name:
            return self._ask("is-active", name, _ASKING_MS).exit_code == 0 if self._systemctl else None
        daemon = self._running.recall(name)
        return daemon is not None and is_alive(daemon.identity)

    def _take_away(self, service: Service, origin: str, ran: bool | None) -> str:
        ended = ""
        if isinstance(service.effect, Launch) and self._end(launched_name(origin), service.within_ms):
            ended = f"ended {_argv(service.effect)}"
        chosen = _chosen(service.effect, service.compensation, ran)
        if chosen is None:
            return ended or f"{worded(service.effect)} had nothing to take back"
        if isinstance(chosen, Signal) and chosen.verb == "reload" and self.is_running(chosen.name) is False:
            chosen = Signal("start", chosen.name)  # it died of what it was told to read
        self._have(chosen, origin, service.within_ms)
        return "; ".join(filter(None, (ended, _done(chosen))))

    def _bring_back(self, service: Service, origin: str, ran: bool | None) -> str:
        """The way back of a way back: the effect is there again."""
        if isinstance(service.effect, Launch):
            if ran is False or self.is_running(launched_name(origin)):
                return f"{worded(service.effect)} had nothing to bring back"
        elif service.compensation is not None:
            return self._take_away(service._replace(effect=service.compensation, compensation=service.effect),
                                   origin, ran)  # fmt: skip
        self._have(service.effect, origin, service.within_ms)
        return _done(service.effect)

    def _have(self, effect: Effect, origin: str, within_ms: int) -> None:
        match effect:
            case Signal():
                self._signal(effect, within_ms)
            case Launch(argv):
                try:
                    self._start(launched_name(origin), argv)
                except NotStarted as error:  # its name is in the words about the action
                    raise NotStarted(error.message.removeprefix(printable(argv[0])).lstrip(": ")) from error
            case Call():
                _call(effect, within_ms)

    def _signal(self, effect: Signal, within_ms: int) -> None:
        program = self._programs.get(effect.name)
        if program is None:
            self._tell_systemd(effect, within_ms)
        elif effect.verb == "reload":
            self._reload(effect.name, within_ms)
        else:
            if effect.verb in ("restart", "stop"):
                self._end(effect.name, within_ms)
            if effect.verb in ("restart", "start") and not self.is_running(effect.name):
                self._end(effect.name, within_ms)  # what a program that died left behind may hold its port
                self._start(effect.name, program.start)

    def _reload(self, name: str, within_ms: int) -> None:
        """Only once it listens: a program without a handler would die of it."""
        daemon = self._running.recall(name)
        patience = time.monotonic() + within_ms / 1000
        while daemon is not None and is_alive(daemon.identity):
            if catches(daemon.identity, SIGHUP):
                if send(daemon.identity, SIGHUP) and stays(daemon.identity, _SETTLE_S):
                    return
                raise VerificationFailed(f"{name} ended when it was told to reload")
            if time.monotonic() >= patience:
                raise VerificationFailed(f"{name} does not listen for SIGHUP, so it cannot be reloaded")
            time.sleep(_POLL_S)
        raise VerificationFailed(f"{name} does not run, so it cannot be reloaded")

    def _start(self, name: str, argv: tuple[str, ...]) -> None:
        log = self._running.open_log(name)
        # Nothing of ours but what a program needs: keys and tokens in our environment are not the service's.
        env = clean_environment(os.path.expanduser("~"), tmpdir="/tmp")
        try:
            daemon = launch(argv, self._cwd, env, log.fd, lambda daemon: self._running.remember(name, daemon))
        except InvalidInput as error:
            self._running.forget(name)
            raise NotStarted(error.message) from error
        finally:
            os.close(log.fd)
        if not stays(daemon.identity, _SETTLE_S):
            said = printable(self._running.last_line(name, log.start))
            self._end(name, 0)
            raise VerificationFailed(f"{printable(argv[0])} ended at once{f': {said}' if said else ''}")

    def _end(self, name: str, within_ms: int) -> bool:
        """False where nothing is known to have been started under this name."""
        daemon = self._running.recall(name)
        if daemon is None:
            return False
        if not end(daemon, min(_GRACE_S, within_ms / 1000)):
            raise VerificationFailed(f"{name} could not be ended")
        self._running.forget(name)
        return True

    def _tell_systemd(self, effect: Signal, within_ms: int) -> None:
        self.require_means(Action(Service(effect), ""))
        finished = self._ask(effect.verb, effect.name, within_ms)
        if finished.timed_out:
            raise VerificationFailed(f"{worded(effect)}: systemd was not done with it within {within_ms} ms")
        if not finished.succeeded:
            said = finished.output.decode("utf-8", "replace").strip().splitlines()
            raise VerificationFailed(f"{worded(effect)}: {printable(said[-1]) if said else 'it failed'}")

    def _ask(self, verb: Verb | str, name: str, within_ms: int) -> Finished:
        argv = (self._systemctl, "--no-ask-password", verb, "--", name)
        return run(Command(argv, "/", clean_environment("/", tmpdir="/tmp"), within_ms, _SYSTEMCTL_OUTPUT))


def perform_all(
    host: Host, effects: Effects, actions: Sequence[Action], on_failure: str, note: Callable[[Deed], None]
) -> None:
    """In order; each one is noted. A failure is raised, unless the plan says to stop there or to continue."""
    effects.announce(len(actions))
    for number, action in enumerate(actions):
        ran = host.runs(action)
        started = time.time_ns()
        is_begun = False
        try:
            _begin(host, effects, number, action, ran)
            is_begun = True
            host.perform(action)
        except VerificationFailed as error:
            if isinstance(error, NotStarted) and _only_starts(action):
                is_begun = False
                effects.never_begun(number)
            note(Deed(started, time.time_ns(), error.message, is_begun))
            if on_failure == "rollback":
                raise
            if on_failure == "stop":
                return
        except BaseException as error:
            # Ctrl-C too: what was begun is known, whatever breaks it off.
            said = f"{_BROKEN_OFF}: {error}" if str(error) else _BROKEN_OFF
            note(Deed(started, time.time_ns(), said, is_begun))
            raise
        else:
            note(Deed(started, time.time_ns(), ""))
            effects.done(number)


def _only_starts(action: Action) -> bool:
    """Is it nothing but the start of a program? Then nothing is to be taken back where that was not started."""
    effect = action.service.effect
    return not action.back and (isinstance(effect, Launch) or (isinstance(effect, Signal) and effect.verb == "start"))


def _begin(host: Host, effects: Effects, number: int, action: Action, ran: bool | None) -> None:
    """S1; but what cannot begin is never announced, so that nobody is asked to take back what did not happen."""
    try:
        host.require_means(action)
    except VerificationFailed:
        effects.never_begun(number)
        raise
    effects.begun(number, ran)


def take_back_all(
    host: Host,
    effects: Effects,
    actions: Sequence[Action],
    note: Callable[[Returned], None] = lambda _: None,
    *,
    files_settled: bool = True,
) -> tuple[tuple[str, ...], tuple[Stands, ...]]:
    """Newest first, each one tried and noted: what was done, and what still stands.

    While files wait for a person, a service that was told stays on the list: it is told again when they are settled.
    """
    done: list[str] = []
    failed: list[Stands] = []
    for item in effects.standing(len(actions)):
        action = actions[item.number]
        if action.is_final:
            failed.append(Stands(action.wording, "cannot be taken back", is_final=True))
            note(Returned(item.number, "", failed[-1].why))
            continue
        try:
            done.append(host.take_back(action, item.ran))
        except HoldfastError as error:
            failed.append(Stands(action.wording, error.message))
            note(Returned(item.number, "", error.message))
            continue
        note(Returned(item.number, done[-1], ""))
        if files_settled or not isinstance(action.service.effect, Signal):
            effects.taken_back(item.number)
    return tuple(done), tuple(failed)


def _chosen(effect: Effect, compensation: Effect | None, ran: bool | None) -> Effect | None:
    """What takes an effect back, now that it is known whether the service ran before (S2)."""
    if not isinstance(effect, Signal) or not isinstance(compensation, Signal) or effect.name != compensation.name:
        return compensation
    if ran is False:
        return Signal("stop", effect.name)
    if ran and effect.verb == "start" and compensation.verb == "stop":
        return None  # it ran already: nothing was started
    return compensation


def _done(effect: Effect) -> str:
    match effect:
        case Signal("stop", name):
            return f"{name} stopped"
        case Signal(verb, name):
            return f"{name} {verb}ed{_WITH_FILES}"
        case Launch():
            return f"launched {_argv(effect)} again"
        case Call():
            return f"{worded(effect)} made"


def _argv(effect: Launch) -> str:
    return worded(effect).removeprefix("launch ")


@contextmanager
def _in_our_words(what: str) -> Iterator[None]:
    """A program that is not there, a full disk, somebody else's process: the action failed, whatever it was."""
    try:
        yield
    except VerificationFailed as error:
        if what in error.message:
            raise
        kind = NotStarted if isinstance(error, NotStarted) else VerificationFailed
        raise kind(f"{what}: {error.message}", hint=error.hint) from error
    except InvalidInput as error:
        raise VerificationFailed(f"{what}: {error.message}") from error
    except OSError as error:
        raise VerificationFailed(f"{what}: {error.strerror or error}") from error


def _call(effect: Call, within_ms: int) -> None:
    """One request, as it stands: no proxy, and no redirect to somewhere the plan did not name."""
    import socket
    from http.client import HTTPConnection, HTTPException, HTTPSConnection
    from threading import Event, Timer
    from urllib.parse import urlsplit

    parts = urlsplit(effect.url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=within_ms / 1000)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    over = Event()

    def hang_up() -> None:
        """A server that sends a byte now and then would keep each single read within its time."""
        over.set()
        held = connection.sock
        try:
            if held is not None:
                held.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the other side, or we, hung up in this moment

    clock = Timer(within_ms / 1000, hang_up)
    clock.start()
    try:
        connection.request(effect.method, target, effect.body.encode("utf-8", "surrogatepass"))
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        # What a connection says that we closed ourselves would blame the server.
        in_vain = over.is_set() or isinstance(error, TimeoutError)
        raise VerificationFailed(f"{worded(effect)}: {'did not answer in time' if in_vain else error}") from error
    finally:
        clock.cancel()
        connection.close()
        clock.join()
    if not 200 <= status < 300:
        raise VerificationFailed(f"{worded(effect)} answered {status}")
