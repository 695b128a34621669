"""The command line: it translates and decides nothing.

    argv ─▶ verb (one file each, loaded when called) ─▶ holdfast.open(".") ─▶ words, or one JSON document
                                                              └─ HoldfastError ─▶ what happened, what was not changed,
                                                                                  what to do; exit status of its class

A disk or a quota that is full is nobody's defect: wherever it is met, it is told as that, with exit 5.
Anything else that is raised is a defect of ours: a short message and exit 1, with HOLDFAST_DEBUG=1 the traceback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from holdfast.cli.screen import Form, Screen
from holdfast.cli.verbs import program
from holdfast.errors import HoldfastError, Interrupted, InvalidInput, Unsupported

_NO_VERB = "Missing command."  # click's words when nothing but options was given


def main(argv: Sequence[str]) -> int:
    """Carry out one command line; the exit status is returned."""
    if not sys.platform.startswith("linux"):
        print("Holdfast runs on Linux only: it needs renameat2, openat2 and syncfs.", file=sys.stderr)
        return Unsupported.exit_status
    screen = Screen(_form_of(argv), colour="--no-color" not in argv)
    screen.take_over_excepthook()
    try:
        status = _dispatch(argv, screen)
    except (HoldfastError, OSError) as error:
        from holdfast.cli.no_room import as_disk_full  # what went well does not pay for it

        told = as_disk_full(error) or error
        if isinstance(told, OSError):
            raise
        screen.failure(told)
        status = told.exit_status
    except click.UsageError as error:
        if error.ctx is not None and error.message == _NO_VERB:
            screen.note(error.ctx.get_help() + "\n")
        screen.failure(_usage(error))
        status = InvalidInput.exit_status
    except KeyboardInterrupt:
        # A verb that changes something turns this into Interrupted itself, after it has rolled back.
        screen.failure(Interrupted("Interrupted.", hint="Nothing was changed."))
        status = Interrupted.exit_status
    return screen.close(status)


def _dispatch(argv: Sequence[str], screen: Screen) -> int:
    if argv[:1] == ["over-ssh"] or any(word.startswith(("ssh://", "-Cssh://")) for word in argv):
        from holdfast.cli import remote  # a workspace on another host, or we are that host

        status = remote.carry_out(argv, screen)
        if status is not None:
            return status
    try:
        with program.make_context("holdfast", list(argv), obj=screen) as context:
            status = program.invoke(context)
    except click.exceptions.Exit as end:  # --help
        return end.exit_code
    return status if isinstance(status, int) else 0


def _form_of(argv: Sequence[str]) -> Form:
    """Known before parsing, because a usage error must come in the form that was asked for."""
    words = set(argv[: argv.index("--")] if "--" in argv else argv)
    return "stream" if "--stream-json" in words else "json" if "--json" in words else "text"


def _usage(error: click.UsageError) -> InvalidInput:
    where = error.ctx.command_path if error.ctx is not None else "holdfast"
    message = error.format_message().rstrip(".").replace("issing command", "issing verb")
    return InvalidInput(message[:1].lower() + message[1:], hint=f"Nothing was changed. See: {where} --help")
