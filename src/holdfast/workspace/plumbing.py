"""Git as a tool in our hand: started so that nothing a repository says can start a program, fetch, or ask.

Two ways of starting it:
  `around`  the repository's own directory, for its references, history and settings. Overridden where it could do harm.
  `inside`  a private directory of ours with settings of ours, which only borrows the objects and the work tree.
            Filters, watchers, remotes and everything else that the repository configures do not exist there.

Invariants
  P1  No environment of ours, no settings of the user or the host, but where settings are what is asked for.
  P2  Output that is not understood is an error, never an answer.
  P3  Before each command a named point is passed (`git.VERB`), so that a test can stop the world there.
  P4  `lasting`: the command goes on for its few milliseconds when we are killed, since git leaves its lock behind
      when it is killed. It is the child of a program that waits for it, and only that one dies with us.
  P5  No setting of the user stands in an error: of a listing that failed, only git's complaint is told.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Blocked
from holdfast.model.path import printable
from holdfast.sandbox.process import DEFAULT_PATH, Command, Finished, run

_TIMEOUT_MS = 60_000
_MOST = 1 << 26
QUIET: Mapping[str, str] = {
    "PATH": DEFAULT_PATH,
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ALLOW_PROTOCOL": "",
    "GIT_PAGER": "cat",
    "GIT_EDITOR": "false",
}
_OVERRIDES = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.alternateRefsCommand=false",
    "core.sshCommand=false",
    "core.filesRefLockTimeout=5000",
    "credential.helper=",
    "protocol.allow=never",
    "gc.auto=0",
    "i18n.logOutputEncoding=UTF-8",
    # A reference must never be more durable than what it names.
    "core.fsync=committed,index",
)
# Before the verb: nothing that a repository configures starts a program, fetches or asks.
HARMLESS: tuple[str, ...] = tuple(word for setting in _OVERRIDES for word in ("-c", setting))


class Git(NamedTuple):
    """One way of starting git. `variables` change the environment that all ways share; an empty one is taken out."""

    cwd: str
    words: tuple[str, ...]
    variables: tuple[tuple[str, str], ...] = ()
    calls: Calls = CALLS

    def finished(
        self,
        *words: str,
        stdin: bytes = b"",
        pass_fds: tuple[int, ...] = (),
        on_output: Callable[[bytes], None] | None = None,
        lasting: bool = False,
    ) -> Finished:
        self.calls.point(f"git.{words[0]}")
        argv = ("git", "--no-pager", *HARMLESS, *self.words, *words)
        if lasting:
            argv = ("timeout", "60", *argv)
        limit = 1 << 12 if on_output else _MOST
        changed = dict(self.variables)
        kept = {name: value for name, value in QUIET.items() if name not in changed}
        environment = kept | {name: value for name, value in changed.items() if value}
        command = Command(argv, self.cwd, environment, _TIMEOUT_MS, limit, stdin=stdin, pass_fds=pass_fds)
        return run(command, on_output=on_output)

    def asked(self, *words: str, stdin: bytes = b"", pass_fds: tuple[int, ...] = ()) -> bytes:
        """What it prints; Blocked when it fails or prints more than can be understood (P2)."""
        done = self.finished(*words, stdin=stdin, pass_fds=pass_fds)
        if not done.succeeded or done.output_truncated:
            raise refusal(words, done)
        return done.output

    def listed(self, *words: str, stdin: bytes = b"") -> list[bytes]:
        """What it lists, each ended by a NUL."""
        output = self.asked(*words, stdin=stdin)
        if output[-1:] not in (b"", b"\0"):
            raise Blocked(f"git {words[0]} gave an answer that is not understood: {_said(output)}")
        return output.split(b"\0")[:-1]

    def answer(self, *words: str) -> str:
        """One line, or nothing when it says no (exit 1)."""
        done = self.finished(*words)
        if done.exit_code == 1 and not done.output:
            return ""
        if not done.succeeded:
            raise refusal(words, done)
        return os.fsdecode(done.output).removesuffix("\n")


def around(git_dir: str, top: str, calls: Calls, variables: Mapping[str, str] | None = None) -> Git:
    """Git over the repository itself: its directory and work tree are told, never searched for."""
    words = (f"--git-dir={git_dir}", f"--work-tree={top}")
    return Git(top, words, tuple((variables or {}).items()), calls)


def inside(private: str, objects: str, top: str, calls: Calls) -> Git:
    """Git over our own directory, with the repository's objects and work tree."""
    places = (("GIT_DIR", private), ("GIT_OBJECT_DIRECTORY", objects), ("GIT_WORK_TREE", top))
    return Git(top, ("--literal-pathspecs",), places, calls)


def refusal(words: Sequence[str], done: Finished) -> Blocked:
    how = "took too long" if done.timed_out else "failed"
    # Settings hold tokens and passwords: what git had listed of them when it failed is told to nobody (P5).
    reason = _complaints(done.output) if words[0] == "config" else _said(done.output)
    return Blocked(f"git {words[0]} {how}: {reason or 'no reason given'}")


def _complaints(output: bytes) -> str:
    lines = output.replace(b"\0", b"\n").split(b"\n")
    return _said(b"\n".join(line for line in lines if line.startswith((b"fatal: ", b"error: "))))


def _said(output: bytes) -> str:
    return printable(output[-300:].decode("utf-8", "replace").strip())
