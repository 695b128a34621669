"""A workspace on another host: the verb is carried out by Holdfast over there, over plain ssh.

    here                                                     there
    ────────────────────────────────────────────────────────────────────────────────────────────────────
    change file ─▶ parcel ──ssh──▶ holdfast over-ssh 1       does it speak our protocol? the parcel goes into its store
    ─────────────────────────ssh──▶ holdfast -C PATH VERB …  everything else: rehearsal, consent, transaction, recovery
    output and exit status  ◀─────

Invariants
  H1  Nothing is decided here. Workspace, ledger, keys and policy are those of the other side.
  H2  What ssh hands to the login shell over there is quoted word by word; nothing typed here is ever code there.
  H3  Keys, known hosts and their checking are the user's own ssh configuration; none of it is turned off.
      Without a terminal ssh asks nothing (BatchMode).
  H4  A change file is complete over there before the verb begins, so a lost connection never cuts one short.
  H5  An exit status that is none of ours means that the connection, or the program over there, was lost.
      A verb that only looks changed nothing (exit 5); how any other ended is not known (exit 7), and never guessed.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click

from holdfast.cli.address import SCHEME, Address, address_of
from holdfast.cli.screen import Screen
from holdfast.cli.verbs import SEEN_AS, program
from holdfast.errors import Blocked, HoldfastError, InvalidInput, NeedsHuman, Unsupported
from holdfast.model.path import printable

PROTOCOL = 1
OTHER_SIDE = "over-ssh"

_LOOKING = frozenset("doctor diff show log status audit trace policy agents tasks report patterns".split())
# Verbs whose first operand may be a change file; what else it may be decides what is sent as it stands.
_CHANGE_FILES = {"apply": "words", "plan": "words", "diff": "an id"}
OUR_STATUSES = frozenset((*range(14), 130))
_NOT_FOUND = (126, 127)
_LOST_STATUS = 255
_SSH = ("ssh", "-a", "-x", "-o", "ClearAllForwardings=yes", "-o", "RemoteCommand=none",
        "-o", "ServerAliveInterval=15", "-o", "ServerAliveCountMax=4")  # fmt: skip
# A login that is not interactive often lacks the directory where pip and pipx put programs.
_PROGRAM = 'exec env PATH="$PATH:$HOME/.local/bin"'


class Line(NamedTuple):
    """A command line, taken apart: everything but -C; the verb; where in `words` its first operand stands."""

    directory: str
    words: tuple[str, ...]
    verb: str
    operand: int | None


def carry_out(argv: Sequence[str], screen: Screen) -> int | None:
    """Carry out a command line on the host its last -C names; None when that is this one after all."""
    if argv[:1] == [OTHER_SIDE]:
        from holdfast.cli.other_side import answer

        return answer(argv[1:], PROTOCOL)
    line = line_of(argv, screen)
    if not line.directory.startswith(SCHEME):
        return None
    address = address_of(line.directory)
    line, parcel = _packed(line)
    terminal = _has_terminal(screen)
    place = _greeted(address, parcel, terminal=terminal)
    words = list(line.words)
    if parcel is not None and line.operand is not None:
        words[line.operand] = place
    if os.environ.get("NO_COLOR"):
        words.insert(0, "--no-color")
    return _carried_out(address, words, line.verb, screen, terminal=terminal)


def line_of(argv: Sequence[str], screen: Screen) -> Line:
    """Options may stand anywhere, so the commands themselves are asked which word is the verb and which the operand."""
    context = click.Context(program, info_name="holdfast", obj=screen)
    command: click.Command = program
    valued = _valued(command)
    directory, verb, operand = ".", "", None
    words: list[str] = []
    rest = iter(argv)
    options_over = False
    for word in rest:
        if word == "--" and not options_over:
            options_over = True
        elif options_over or word == "-" or not word.startswith("-"):
            if isinstance(command, click.Group):
                command = _resolved(command, context, word)
                verb, valued = verb or word, valued | _valued(command)
            elif operand is None:
                operand = len(words)
        elif word.startswith("-C"):
            directory = word[2:] or next(rest, "")
            continue
        words.append(word)
        if not options_over and word in valued:
            words += [value for value in (next(rest, None),) if value is not None]
    return Line(directory, tuple(words), verb, operand)


def _resolved(group: click.Group, context: click.Context, word: str) -> click.Command:
    _, command, _ = group.resolve_command(context, [word])
    assert command is not None  # click raised a usage error otherwise
    return command


def _valued(command: click.Command) -> frozenset[str]:
    options = (param for param in command.params if isinstance(param, click.Option))
    return frozenset(name for option in options if not option.is_flag and not option.count for name in option.opts)


def _packed(line: Line) -> tuple[Line, bytes | None]:
    """The change file that goes along, if there is one. Files are looked for here; words and ids are sent as is."""
    otherwise = _CHANGE_FILES.get(line.verb)
    if otherwise is None or line.operand is None:
        return line, None
    word = line.words[line.operand]
    if word == "-" or os.path.lexists(word):
        from holdfast.intake.parcel import parcel_of

        return line, parcel_of(word)
    looks_right = " " in word.strip() if otherwise == "words" else "/" not in word and "." not in word
    if not looks_right:
        raise InvalidInput(
            f"{printable(word)}: no such file here", hint="A change file is read on this side, and sent."
        )
    return line, None


def _has_terminal(screen: Screen) -> bool:
    """All three, because over a terminal standard output and standard error become one."""
    return screen.can_ask() and sys.stderr.isatty()


def _greeted(address: Address, parcel: bytes | None, *, terminal: bool) -> str:
    """Make sure of the other side, and leave the parcel there; its place is returned."""
    import json

    from holdfast.sandbox.foreground import ask

    words = [OTHER_SIDE, str(PROTOCOL), address.path, "parcel" if parcel is not None else "nothing"]
    status, output = ask(_ssh(address, words, asking=terminal, tty=False), parcel or b"")
    if status == _LOST_STATUS or status < 0:
        raise Blocked(f"{address.shown} cannot be reached; what ssh said stands above", hint="Nothing was changed.")
    try:
        answer = json.loads(output.strip().rpartition(b"\n")[2] or b"null")
    except ValueError:
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("error"), dict) and answer.get("protocol") == PROTOCOL:
        raise _told(answer["error"])
    if status in _NOT_FOUND:
        raise Unsupported(f"there is no holdfast on {address.host}",
                          hint="Install it there, where a login without a terminal finds it.")  # fmt: skip
    if status != 0 or not isinstance(answer, dict) or answer.get("protocol") != PROTOCOL:
        raise Unsupported(f"the holdfast on {address.host} does not speak protocol {PROTOCOL}",
                          hint="Install the same version on both sides: holdfast --version")  # fmt: skip
    return str(answer.get("parcel", ""))


def _told(error: dict[str, object]) -> HoldfastError:
    """An error of the other side as one of ours, by its code."""
    known = {kind.code: kind for kind in _family(HoldfastError) if kind.__init__ is HoldfastError.__init__}
    kind = known.get(str(error.get("code")), HoldfastError)
    return kind(str(error.get("message")), hint=str(error.get("hint")), changed=error.get("changed") is not False)


def _family(kind: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [kind, *(member for child in kind.__subclasses__() for member in _family(child))]


def _carried_out(address: Address, words: list[str], verb: str, screen: Screen, *, terminal: bool) -> int:
    from holdfast.sandbox.foreground import attach

    sys.stdout.flush()
    passing = _Passing()
    on_line = None if screen.form == "text" else passing.line
    argv = _ssh(address, ["-C", address.path, *words], asking=terminal, tty=terminal)
    status = attach(argv, terminal=terminal, on_line=on_line)
    if status in OUR_STATUSES:
        return passing.status(status, screen)
    error = _lost(address, verb)
    if passing.lines and screen.form == "json":
        screen.note(f"{error.message}\n{error.hint}")  # the one document has been given already
    else:
        screen.failure(error)
    return error.exit_status


class _Passing:
    """Standard output of the other side on its way to ours. Nobody reading any more changes nothing over there."""

    def __init__(self) -> None:
        self.lines = 0
        self._lost: OSError | None = None

    def line(self, line: bytes) -> None:
        self.lines += 1
        if self._lost is None:
            try:
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()
            except OSError as error:
                self._lost = error

    def status(self, status: int, screen: Screen) -> int:
        if self._lost is None or isinstance(self._lost, BrokenPipeError):
            return status
        screen.note(f"The answer could not be written: {self._lost.strerror}")
        return status or 1


def _lost(address: Address, verb: str) -> HoldfastError:
    """H5"""
    message = f"The connection to {address.shown} was lost"
    if verb in _LOOKING:
        return Blocked(f"{message}.", hint="Nothing was changed; the verb only looks.")
    return NeedsHuman(
        f"{message}; how it ended is not known.",
        hint="Over there it ends or is rolled back by itself, wholly. Ask how it ended with: "
        f"holdfast -C {shlex.quote(address.shown)} log",
        changed=True,
    )


def _ssh(address: Address, words: Sequence[str], *, asking: bool, tty: bool) -> list[str]:
    """The command line of ssh. The host comes after `--`; what runs over there is one word, quoted inside (H2)."""
    argv = [*_SSH, "-t" if tty else "-T"]
    if not asking:
        argv += ["-o", "BatchMode=yes"]
    if address.user:
        argv += ["-l", address.user]
    if address.port:
        argv += ["-p", str(address.port)]
    seen_as = shlex.quote(f"{SEEN_AS}={address.shown}")
    return [*argv, "--", address.host, f"{_PROGRAM} {seen_as} holdfast {shlex.join(words)}"]
