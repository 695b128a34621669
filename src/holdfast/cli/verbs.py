"""The verbs by name, and the options that every one of them takes, before or after its name.

A verb's module is imported when the verb is called; `--help` lists them from the table here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import click

from holdfast.cli.screen import OF_NO_BRANCH, Screen

VERBS = {
    "init": "Put a directory under guard.",
    "doctor": "Say what this host and file system can keep.",
    "demo": "Tell the whole story in a temporary directory.",
    "apply": "Make the changes of a change file or of words: all of them, or none.",
    "plan": "Read a change file or words into a plan.",
    "simulate": "Try a plan in a shadow, with its checks.",
    "evaluate": "Say what policy thinks of a simulation.",
    "approve": "Approve exactly what was simulated.",
    "reject": "Say no to a simulation.",
    "execute": "Carry out a simulation, if every gate is open.",
    "diff": "Show what an execution changed, or what a change file would.",
    "show": "Show an execution or a plan.",
    "trace": "Walk the chain of custody around an id.",
    "log": "List what happened, newest first.",
    "status": "Say how the workspace stands.",
    "undo": "Take back an execution, keeping later edits.",
    "restore": "Go back to how things stood at a moment.",
    "recover": "Repair what a crash left.",
    "gc": "Forget old files that undo no longer needs.",
    "policy": "Check the policy.",
    "run": "Drive a roadmap to done.",
    "tasks": "List the tasks of a roadmap or a run.",
    "land": "Bring a branch in through the gates.",
    "resume": "Go on with a run where it was.",
    "retry": "Try tasks again that did not land.",
    "review": "Decide about tasks that wait for a person.",
    "sync": "Tick the roadmap as things stand.",
    "reset": "Set tasks back to do.",
    "stop": "Ask a run to stop, from any terminal.",
    "worker": "Work for runs on other machines, or attend this workspace's triggers.",
    "agents": "List the agents: which can be used here, and why not.",
    "fix": "Have an agent repair the first check that fails.",
    "patches": "List patches, and decide about those in quarantine.",
    "patterns": "List recipes that need no model, or make a plan of one.",
    "audit": "Check the ledger, and decide again what was decided.",
}


# The address by which a workspace is named on the host where the command was typed.
SEEN_AS = "HOLDFAST_SEEN_AS"


class Options(NamedTuple):
    """What the global options say."""

    directory: str
    wait: float
    # Empty: the workspace itself.
    branch: str = ""


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """The same option may stand before and after the verb; the last one given counts."""
    if value not in (None, False) and parameter.name is not None:
        context.meta[parameter.name] = value


def options_of(context: click.Context) -> Options:
    meta = context.meta
    return Options(meta.get("directory", "."), meta.get("wait", 0.0), meta.get("branch", ""))


def global_options() -> list[click.Parameter]:
    stream = "JSON events, a line each; the document is the last."
    return [
        _option("-C", "directory", type=click.Path(), metavar="DIR", help="Work as if started in DIR."),
        _option("--branch", "branch", metavar="NAME", help="Work on that branch, in a work tree that Holdfast keeps."),
        _option("--json", "json_form", is_flag=True, help="Print exactly one JSON document."),
        _option("--stream-json", "stream_form", is_flag=True, help=stream),
        _option("--wait", "wait", type=click.FloatRange(min=0), metavar="SECONDS", help="Wait for another process."),
        _option("--no-color", "no_color", is_flag=True, help="No colours (NO_COLOR=1 says the same)."),
    ]


def _option(*names: str, **settings: Any) -> click.Option:
    return click.Option(list(names), expose_value=False, callback=_remember, **settings)


class Face(NamedTuple):
    """What a verb is given: where to work, and whom to tell."""

    options: Options
    screen: Screen


def verb(**settings: Any) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a function whose first argument is a Face."""

    def made(function: Callable[..., int | None]) -> click.Command:
        def called(**arguments: object) -> int | None:
            return function(_face(click.get_current_context()), **arguments)

        called.__doc__ = function.__doc__
        # click's decorators below ours left the parameters here.
        called.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        command: click.Command = click.command(**settings)(called)
        command.params += global_options()
        return command

    return made


def _face(context: click.Context) -> Face:
    import os

    from holdfast.errors import InvalidInput
    from holdfast.model.path import printable

    options = options_of(context)
    screen = context.find_object(Screen)
    assert screen is not None  # put there by cli.main
    if context.meta.get("branch") == "":
        raise InvalidInput(
            "--branch needs the name of a branch",
            hint="Nothing was changed. For example: --branch night. The workspace itself is: --branch .",
        )
    screen.branch = "" if options.branch == "." else options.branch
    # Whoever called us over ssh gave an address, and not the directory that we were given.
    directory = os.environ.get(SEEN_AS, options.directory)
    screen.directory = "" if directory == "." else printable(directory)
    if screen.branch and context.info_name in OF_NO_BRANCH:
        raise InvalidInput(
            f"{context.info_name} is not about a branch", hint="Nothing was changed. Leave --branch out."
        )
    try:
        os.chdir(options.directory)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        raise InvalidInput(f"{printable(options.directory)}: {str(reason).lower()}") from None
    return Face(options, screen)


class Program(click.Group):
    """A group whose commands are files in this directory."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"holdfast.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], VERBS, n=1)
            guess = f'; did you mean "{near[0]}"?' if near else ""
            raise click.UsageError(f'unknown verb "{args[0]}"{guess}', ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


def _version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from holdfast import __version__

        print(f"holdfast {__version__}")
        context.exit()


program = Program(
    "holdfast",
    help="Change repositories and hosts, all or nothing, with proof.",
    epilog="Exit status: 0 done, 1 internal error, 2 invalid input, 3 approval needed, 4 denied, 5 blocked, "
    "6 check failed (never applied, or rolled back), 7 a human is needed, 8 conflict, 9 locked, 10 limit reached, "
    "11 agent failed, 12 tampering, 13 landed but for a step under continue or stop, 130 interrupted.",
    subcommand_metavar="VERB …",
    no_args_is_help=False,
    params=[
        *global_options(),
        click.Option(["--version", "-V"], is_flag=True, is_eager=True, expose_value=False, callback=_version),
    ],
)
