"""Reading a roadmap of 10,000 tasks (1 MB), beside the tokens of markdown-it-py, on which the reader stands.

    python benchmarks/roadmap.py

The library only finds the structure of the Markdown; the reader goes on to tasks, ids, files and dependencies.
Processor time counts, the contestants take turns, medians are compared. The one goal is that time grows with the file.
"""

from __future__ import annotations

from _measure import Verdict, milliseconds, on_the_processor, turns
from markdown_it import MarkdownIt

from holdfast.intake.roadmap import parse, ticked

TASKS = 10_000
ROUNDS = 5


def roadmap(tasks: int) -> str:
    """A hundred tasks a phase, ten a section; with prose, and now and then code, subtasks and dependencies."""
    parts = ["# Roadmap\n\n"]
    for number in range(tasks):
        phase, section = divmod(number // 10, 10)
        if number % 100 == 0:
            parts.append(
                f"## Phase {phase + 1}: Part {phase + 1} of the work\n\n"
                f"**Goal**: everything of part {phase + 1} works\n**Priority**: high\n**Effort**: 3 days\n\n"
            )
        if number % 10 == 0:
            parts.append(f"### {phase + 1}.{section + 1} Area {section + 1}\n\n**Files**: `part_{phase}/area.py`\n\n")
        box = "x" if number % 3 == 0 else " "
        parts.append(f"- [{box}] Add case {number} to the table of `part_{phase}`\n  The case is read from the file.\n")
        if number % 10 == 5:
            parts.append("  ```python\n  assert read(1) == 2\n  ```\n  - [ ] with a test\n")
        if number % 10 == 7:
            parts.append(f"  Depends on **Add case {number - 1} to the table of `part_{phase}`**\n")
    return "".join(parts)


def main() -> None:
    text, twice = roadmap(TASKS), roadmap(2 * TASKS)
    data = text.encode()
    found = parse(data)
    assert len(found.tasks) == TASKS and not found.remarks
    assert sum(len(task.after) for task in found.tasks) == TASKS // 10
    markdown = MarkdownIt()
    done = {task.id: not task.done for task in found.tasks}
    medians = turns(
        ROUNDS,
        {
            "holdfast": on_the_processor(lambda: parse(data)),
            "markdown-it-py": on_the_processor(lambda: markdown.parse(text)),
            "twice": on_the_processor(lambda: parse(twice.encode())),
            "ticked": on_the_processor(lambda: ticked(data, "ROADMAP.md", done)),
        },
    )
    print(
        f"  {TASKS:,} tasks, {len(data) / 1e6:.2f} MB: "
        + ", ".join(f"{k} {milliseconds(v)} ms" for k, v in medians.items())
    )
    print(f"  against markdown-it-py's tokens: {medians['holdfast'] / medians['markdown-it-py']:.2f}")
    print(Verdict("twice the file", medians["twice"] / medians["holdfast"], 2.5).line())


if __name__ == "__main__":
    main()
