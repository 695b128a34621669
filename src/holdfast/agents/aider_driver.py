"""Inside the sandbox, with the Python that aider is installed for: one task through aider's own API.

Orders on standard input: task, model, files, format of edits (empty for aider's own choice), and `another` where that
format did not help. What happens goes to standard output, as `driven` tells.
aider ends with 0 whatever happens, so how it went is told by what it did: requests begun and ended, errors it showed,
edits it made, and files that it created for an edit which then failed.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
from typing import Any

_MOST_FILES = 5_000
_RETRY_S = 2
_STATUSES = {"AuthenticationError": 401, "PermissionDeniedError": 403, "BadRequestError": 400, "RateLimitError": 429}
# An edit, or a whole file, in the midst of words, with the name of its file before it.
_EDIT = re.compile(
    r"(?:^\S+\n)?^`{3,}[^\n]*\n<{5,9} SEARCH.*?^>{5,9} REPLACE\n`{3,}\n?|^\S+\n(`{3,})[^\n]*\n.*?^\1[ \t]*$\n?",
    re.MULTILINE | re.DOTALL,
)
# For the map of the repository that aider makes for its model: what it keeps of it, and how large it may be.
_MAP_CACHE, _MAP_TOKENS = ".aider/map", 1024
_FAILURE = re.compile(r"litellm\.(\w*Error|Timeout)")


def tell(what: str, **fields: object) -> None:
    print("\n" + json.dumps({"holdfast": what, **fields}), flush=True)


def files_below(root: str) -> list[str]:
    """What the model may name; what begins with a dot is not for editing."""
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += (os.path.relpath(os.path.join(folder, name), root) for name in sorted(names))
        if len(found) > _MOST_FILES:
            break
    return found[:_MOST_FILES]


def recording(base: Any, log: list[str]) -> Any:
    """aider's way to talk to a person: says yes, and remembers what went wrong."""

    class Recording(base):  # type: ignore[misc]  # a class that is known only inside
        def tool_error(self, message: str = "", strip: bool = True) -> None:
            log.append(str(message))
            super().tool_error(message, strip)

        def tool_warning(self, message: str = "", strip: bool = True) -> None:
            log.append(str(message))
            super().tool_warning(message, strip)

        def offer_url(self, *args: object, **rest: object) -> bool:
            return False  # there is no browser

    return Recording(yes=True, pretty=False, fancy_input=False)


def is_empty(name: str) -> bool:
    return os.path.isfile(name) and not os.path.getsize(name)


class Edits:
    """The edits of a coder, told when they are tried; `unfit` while the last ones could not be made."""

    def __init__(self, coder: Any) -> None:
        self.count = 0
        self.unfit = False
        self.made: set[str] = set()
        self._coder, self._apply = coder, coder.apply_updates
        coder.apply_updates = self._applied

    def _applied(self) -> Any:
        """What it names as edited it has only meant to; when some did not fit, it asks its model again."""
        meant = self._apply()
        paths = sorted(map(os.path.normpath, meant or ()))
        self.unfit = bool(self._coder.reflected_message) or (self.unfit and not paths)
        if not self.unfit:
            self.made.update(paths)
        for path in paths:
            self.count += 1
            status = "failed" if self.unfit else "done"
            tell("used", call=f"edit-{self.count}", title=f"edit {path}", status=status, paths=[path])
        return meant


def coder_for(orders: dict[str, Any], io: Any) -> Any:
    models, coders = importlib.import_module("aider.models"), importlib.import_module("aider.coders")
    base = importlib.import_module("aider.coders.base_coder")
    # Its own patience is two minutes; whoever waits has a limit of their own.
    base.RETRY_TIMEOUT = models.RETRY_TIMEOUT = _RETRY_S  # type: ignore[attr-defined]
    name = f"openai/{orders['model']}"
    model = models.Model(name, weak_model=name)
    model.extra_params = {**(model.extra_params or {}), "max_retries": 0}
    form = orders["format"] or model.edit_format
    if orders["another"]:
        form = "diff" if form == "whole" else "whole"
    root = os.getcwd()
    # Only what is there: aider creates what it is given and is not, and leaves it empty when it fails.
    names = [os.path.join(root, name) for name in orders["files"]]
    coder = coders.Coder.create(
        main_model=model,
        edit_format=form,
        io=io,
        fnames=[name for name in names if os.path.isfile(name)],
        use_git=False,
        auto_commits=False,
        dirty_commits=False,
        auto_lint=False,
        stream=False,
        map_tokens=0,
        suggest_shell_commands=False,
        detect_urls=False,
    )
    coder.root = root
    coder.get_all_relative_files = lambda: files_below(root)
    coder.repo_map = map_of(coder, io)
    return coder


def map_of(coder: Any, io: Any) -> Any:
    """aider makes a map only in a repository of git; of the files in one it needs nothing but their names."""
    maps = importlib.import_module("aider.repomap").RepoMap
    maps.TAGS_CACHE_DIR = os.path.join(os.path.expanduser("~"), _MAP_CACHE)  # not into the workspace
    return maps(_MAP_TOKENS, coder.root, coder.main_model, io, coder.gpt_prompts.repo_content_prefix)


def main() -> None:
    orders = json.load(sys.stdin)
    before = set(files_below(os.getcwd()))
    log: list[str] = []
    sent: list[str] = []
    io = recording(importlib.import_module("aider.io").InputOutput, log)
    coder = coder_for(orders, io)
    edits = Edits(coder)
    coder.event = lambda name, **rest: sent.append(name)
    coder.run_one(orders["task"], preproc=False)
    known = before | edits.made
    empty = [name for name in files_below(os.getcwd()) if name not in known and is_empty(name)]
    answered = sent.count("message_send") == sent.count("message_send_starting")
    why = ""
    if coder.num_exhausted_context_windows:
        why = "the conversation became too long for its model"
    elif not answered:
        why = "its model did not answer"
    elif coder.reflected_message or edits.unfit:
        why = "its model's edits could not be applied"
    elif empty:
        why = f"it left files empty: {', '.join(sorted(empty)[:5])}"
    tell(
        "ended",
        success=not why,
        words=_EDIT.sub("", str(coder.partial_response_content or "")),
        error="\n".join(log[-5:]) if why else "",
        status=0 if answered or coder.num_exhausted_context_windows else status_in(log),
        why=why,
        input_tokens=coder.total_tokens_sent,
        output_tokens=coder.total_tokens_received,
        cost=coder.total_cost or None,
        tool_calls=edits.count,
    )


def status_in(log: list[str]) -> int:
    named = [found for line in log for found in _FAILURE.findall(line)]
    return _STATUSES.get(named[-1], 500) if named else 500


if __name__ == "__main__":
    main()
