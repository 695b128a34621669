"""Record again what the real programs ask their model: `.venv/bin/python tests/agents/record_requests.py [NAME…]`.

For when a version in scripts/agent-programs moves. Each program works in the real sandbox against a scripted model,
over each of its transports; what it asked, as it left the program, goes to requests/NAME.jsonl, one line for each set
of fields. Long texts are cut: the shape is what the proxy judges. `proxy/test_recorded_requests.py` sends them again.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from holdfast.agents.aider import Aider  # noqa: E402  # the path comes first
from holdfast.agents.claude import Claude  # noqa: E402
from holdfast.agents.codex import Codex  # noqa: E402
from holdfast.agents.deep import Deep  # noqa: E402
from holdfast.agents.gemini import Gemini  # noqa: E402
from holdfast.agents.goose import Goose  # noqa: E402
from holdfast.agents.opencode import Opencode  # noqa: E402
from holdfast.agents.programs import ProgramAgent  # noqa: E402
from holdfast.agents.protocol import Agent  # noqa: E402
from holdfast.agents.qwen import Qwen  # noqa: E402
from holdfast.model.agent import Request  # noqa: E402
from holdfast.model.agent_settings import AgentSettings  # noqa: E402
from holdfast.testing.model_server import Json, ScriptedModel, Seen  # noqa: E402
from holdfast.testing.script import Say, Shell, WriteFile  # noqa: E402
from real_bench import PATH, PROGRAMS, real_bench  # noqa: E402

PROGRAM_MODELS = (
    (Claude(), "claude-sonnet-4-5"), (Codex(), "gpt-5.5"), (Opencode(), "scripted"),
    (Gemini(), "gemini-2.5-flash"), (Qwen(), "scripted"), (Goose(), "scripted"),
)  # fmt: skip
_LONGEST = 60


def agents() -> list[tuple[Agent, str]]:
    """Every agent over each of its transports, with the model it is to ask for."""
    found: list[tuple[Agent, str]] = []
    for program, model in PROGRAM_MODELS:
        for transport in ("headless", "acp"):
            found.append((ProgramAgent(program, AgentSettings(program.name, transport=transport, model=model)), model))
    found += [(Aider(AgentSettings("aider", model=model)), model) for model in ("scripted", "gpt-4o")]
    found += [(Deep(AgentSettings("deep", model=model)), model) for model in ("scripted", "claude-sonnet-4-5")]
    return found


def asked(agent: Agent, model: str) -> list[Seen]:
    scripted = ScriptedModel(WriteFile("hello.py", 'print("hello")\n'), Shell("cat hello.py"), Say("I made hello.py."))
    assert agent.api is not None
    with (
        tempfile.TemporaryDirectory() as folder,
        real_bench(Path(folder), scripted, agent.api, model, provider_tools=True) as real,
    ):
        result = agent.work(Request("Create hello.py that prints hello.", expected=("hello.py",)), real.bench)
        print(agent.name, model, result.transport, result.ending, result.detail, len(scripted.seen), flush=True)
        return [_relocated(seen, real.bench.path) for seen in scripted.seen if seen.method == "POST"]


def _relocated(seen: Seen, workspace: str) -> Seen:
    """Without the paths of this machine."""
    body = seen.body.replace(workspace.encode(), b"/workspace").replace(str(PROGRAMS.parent).encode(), b"/opt/programs")
    return seen._replace(body=body)


def cut(value: Json) -> Json:
    if isinstance(value, str) and len(value) > _LONGEST:
        return value[:_LONGEST] + " […]"
    if isinstance(value, list):
        return [cut(item) for item in value]
    if isinstance(value, dict):
        return {name: cut(item) for name, item in value.items()}
    return value


def main(names: list[str]) -> None:
    os.environ["PATH"] = PATH
    lines: dict[str, dict[str, str]] = {}
    for agent, model in agents():
        if names and agent.name not in names:
            continue
        for seen in asked(agent, model):
            body = cut(json.loads(seen.body))
            line = {"api": seen.api, "path": seen.path, "body": body}
            # The last of its kind has the longest conversation.
            lines.setdefault(agent.name, {})[f"{seen.path} {sorted(body)}"] = json.dumps(line, ensure_ascii=False)
    (HERE / "requests").mkdir(exist_ok=True)
    for name, kept in lines.items():
        (HERE / "requests" / f"{name}.jsonl").write_text("\n".join(kept.values()) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
