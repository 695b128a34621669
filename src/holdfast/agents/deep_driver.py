"""Inside the sandbox, with a Python that has deepagents: one task for a deep agent, told as it happens.

Orders on standard input: task, model, provider, url, key, turns. What happens goes to standard output, as `driven`
tells. Its files are those of the working directory, which it knows as `/`; it has no shell.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

_RETRIES = 1
_SECONDS = 300
_PLACE = "The working directory is / : every file you see is part of the project, and paths begin there."
# The graph counts its own steps: a request and the tools it asks for are several.
_STEPS_A_TURN = 10


def tell(what: str, **fields: object) -> None:
    print(json.dumps({"holdfast": what, **fields}), flush=True)


class Told:
    """What the agent did, message by message."""

    def __init__(self) -> None:
        self.words = ""
        self.calls: dict[str, tuple[str, list[str]]] = {}
        self.given = self.made = 0

    def message(self, message: Any) -> None:
        kind = getattr(message, "type", "")
        if kind == "ai":
            self._said(message)
        elif kind == "tool":
            title, paths = self.calls.get(message.tool_call_id, (str(message.name), []))
            status = "failed" if getattr(message, "status", "") == "error" else "done"
            tell("used", call=message.tool_call_id, title=title, status=status, paths=paths)

    def _said(self, message: Any) -> None:
        usage = message.usage_metadata or {}
        self.given += int(usage.get("input_tokens", 0))
        self.made += int(usage.get("output_tokens", 0))
        text = message.text if isinstance(message.text, str) else message.text()
        if text.strip():
            self.words = text
            tell("said", text=text)
        for call in message.tool_calls:
            path = call["args"].get("file_path") or call["args"].get("path") or ""
            paths = [str(path).lstrip("/")] if path else []
            title = f"{call['name']} {' '.join(paths)}".strip()
            self.calls[call["id"]] = (title, paths)
            tell("used", call=call["id"], title=title, status="begun", paths=paths)


def agent_for(orders: dict[str, Any]) -> Any:
    chat = importlib.import_module("langchain.chat_models").init_chat_model(
        orders["model"],
        model_provider=orders["provider"],
        base_url=orders["url"],
        api_key=orders["key"],
        max_retries=_RETRIES,
        timeout=_SECONDS,
    )
    backend = importlib.import_module("deepagents.backends").FilesystemBackend(root_dir=os.getcwd(), virtual_mode=True)
    return importlib.import_module("deepagents").create_deep_agent(model=chat, backend=backend, system_prompt=_PLACE)


def work(orders: dict[str, Any], told: Told) -> None:
    turns = int(orders["turns"])
    config = {"recursion_limit": turns * _STEPS_A_TURN} if turns else {}
    task = {"messages": [{"role": "user", "content": orders["task"]}]}
    for update in agent_for(orders).stream(task, config=config, stream_mode="updates"):
        for state in update.values():
            messages = state.get("messages", ()) if isinstance(state, dict) else ()
            # Some updates replace the whole list, and are no news.
            for message in messages if isinstance(messages, (list, tuple)) else ():
                told.message(message)


def main() -> None:
    told = Told()
    error, status = "", 0
    try:
        work(json.load(sys.stdin), told)
    except Exception as failure:  # noqa: BLE001  (whatever the library raises is told as its end)
        error = f"{type(failure).__name__}: {failure}"
        status = int(getattr(failure, "status_code", 0) or 0)
    tell(
        "ended",
        success=not error,
        words=told.words,
        error=error,
        status=status,
        why=error[:200],
        input_tokens=told.given,
        output_tokens=told.made,
        tool_calls=len(told.calls),
    )


if __name__ == "__main__":
    main()
