"""Record again what the real programs print: `.venv/bin/python tests/agents/record_outputs.py [NAME…]`.

For when a version in scripts/agent-programs moves. Each case runs in the real sandbox against a scripted model; what it
printed goes to outputs/NAME/CASE.jsonl, with the paths of this machine replaced, and how it ended to endings.json.
`test_programs.py` says what is to be heard in each.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from holdfast.agents.claude import Claude  # noqa: E402  # the path comes first
from holdfast.agents.codex import Codex  # noqa: E402
from holdfast.agents.gemini import Gemini  # noqa: E402
from holdfast.agents.goose import Goose  # noqa: E402
from holdfast.agents.opencode import Opencode  # noqa: E402
from holdfast.agents.program import Missing, Program  # noqa: E402
from holdfast.agents.prompt import prompt  # noqa: E402
from holdfast.agents.qwen import Qwen  # noqa: E402
from holdfast.model.agent import Request  # noqa: E402
from holdfast.testing.model_server import ScriptedModel  # noqa: E402
from holdfast.testing.script import Error, Loop, Say, Shell, Step, WriteFile  # noqa: E402
from real_bench import PATH, PROGRAMS, real_bench  # noqa: E402

PROGRAM_MODELS: tuple[tuple[Program, str], ...] = (
    (Claude(), "claude-sonnet-4-5"),
    (Codex(), "gpt-5.5"),
    (Opencode(), "scripted"),
    (Gemini(), "gemini-2.5-flash"),
    (Qwen(), "scripted"),
    (Goose(), "scripted"),
)
HELLO = WriteFile("hello.py", 'print("hello")\n')
DONE = Say("I made hello.py.")
CASES: dict[str, tuple[Step, ...]] = {
    "success": (HELLO, DONE),
    "talk": (Say("I would create hello.py."),),
    "400": (Error(400),),
    "401": (Error(401),),
    "500": (Error(500),),
    "turns": (Shell("date >> loop"), Loop()),
}
# codex has no limit of turns; opencode only tells the model of it, and this one does not listen.
NEVER_ENDS = {("codex", "turns"), ("opencode", "turns")}
TURNS = 3


def recorded(program: Program, model: str, case: str, into: Path) -> int | None:
    """Run one case; its exit code."""
    found = program.find(PATH)
    if isinstance(found, Missing):
        raise SystemExit(found.why)
    request = Request("Create hello.py that prints hello.", turns=TURNS if case == "turns" else 0)
    scripted = ScriptedModel(*CASES[case])
    with tempfile.TemporaryDirectory() as folder, real_bench(Path(folder), scripted, program.api, model) as real:
        done = real.bench.run(program.headless(found, request, real.access, prompt(request)))
        output = done.finished.output.replace(real.bench.path.encode(), b"/workspace")
    into.mkdir(parents=True, exist_ok=True)
    (into / f"{case}.jsonl").write_bytes(output.replace(str(PROGRAMS.parent).encode(), b"/opt/programs"))
    return done.finished.exit_code


def main(names: list[str]) -> None:
    for program, model in PROGRAM_MODELS:
        if names and program.name not in names:
            continue
        into = HERE / "outputs" / program.name
        cases = [case for case in CASES if (program.name, case) not in NEVER_ENDS]
        endings = {case: recorded(program, model, case, into) for case in cases}
        (into / "endings.json").write_text(json.dumps(endings, indent=1) + "\n", encoding="utf-8")
        print(program.name, endings, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
