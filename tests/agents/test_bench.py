"""The bench: one sandbox, one HOME, one time and one budget for everything that an agent starts."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

from agents.benches import bench_at
from holdfast.agents.bench import MOST_TRANSCRIPT, SandboxBench
from holdfast.agents.protocol import Start
from holdfast.errors import LimitReached
from holdfast.model.agent import Said, Spent, Usage, Used
from holdfast.sandbox.profile import Limits, Profile
from holdfast.workspace.shadow import open_shadow
from shaded import shaded

SH = "/bin/sh"


def shell(text: str, *, files: tuple[tuple[str, str], ...] = (), **env: str) -> Start:
    return Start((SH, "-c", text), env, files)


def test_what_is_needed_is_in_the_home_before_the_start(tmp_path: Path) -> None:
    """Files of a Start are below HOME, and what the program leaves there can be read; none of it is a change."""
    with bench_at(tmp_path, {"a.txt": b"a"}) as site:
        start = shell('cp "$HOME/.config/x.json" b.txt; echo 7 > "$HOME/session"', files=((".config/x.json", "{}"),))
        assert site.bench.run(start).finished.exit_code == 0
        assert site.bench.read_home("session") == b"7\n"
        assert set(site.changed()) == {"b.txt"}


def test_the_home_outlives_a_run(tmp_path: Path) -> None:
    """The next attempt finds the session of the first, and settings that were tampered with are ours again."""
    with bench_at(tmp_path, {"a.txt": b"a"}) as site:
        site.bench.run(shell('echo 1 > "$HOME/kept"; ln -sf /etc/passwd "$HOME/s"', files=(("s", "ours"),)))
        done = site.bench.run(shell('cat "$HOME/kept" "$HOME/s"', files=(("s", "ours"),)))
        assert done.finished.output == b"1\nours"


def test_lines_come_as_they_are_said(tmp_path: Path) -> None:
    """Whole lines, the last one also without an end."""
    heard: list[bytes] = []
    with bench_at(tmp_path, {"a.txt": b"a"}) as site:
        site.bench.run(shell("printf 'one\\ntwo\\nthree'"), on_line=heard.append)
    assert heard == [b"one", b"two", b"three"]


def test_standard_input_reaches_the_program(tmp_path: Path) -> None:
    """And ends."""
    with bench_at(tmp_path, {"a.txt": b"a"}) as site:
        assert site.bench.run(shell("cat"), stdin=b"words").finished.output == b"words"


def test_the_time_of_an_attempt_that_was_none_is_given_back(tmp_path: Path) -> None:
    """As where the provider of its model was away; without that, it stays spent."""
    with bench_at(tmp_path, {"a.txt": b"a"}, within_ms=500) as site:
        site.bench.begin()
        assert site.bench.run(shell("sleep 20")).limit == "time"
        with pytest.raises(LimitReached, match="time is used up"):
            site.bench.run(shell("true"))
        site.bench.give_time_back()
        site.bench.begin()
        assert site.bench.run(shell("sleep 20")).limit == "time"


@pytest.mark.long
def test_only_running_costs_time(tmp_path: Path) -> None:
    """Between two runs an agent's work is checked; that is not its time. What it used is used."""
    with bench_at(tmp_path, {"a.txt": b"a"}, within_ms=3_000) as site:
        assert site.bench.run(shell("sleep 0.2")).limit == ""
        time.sleep(3.1)
        assert site.bench.run(shell("sleep 0.2")).limit == ""
        assert site.bench.run(shell("sleep 60")).limit == "time"
        with pytest.raises(LimitReached, match="time is used up"):
            site.bench.run(shell("true"))


def test_a_transcript_belongs_to_one_attempt_and_is_bounded(tmp_path: Path) -> None:
    """What it was told, what was printed and what happened, each with its moment, bounded; `begin` starts anew."""
    with bench_at(tmp_path, {"a.txt": b"a"}) as site:
        site.bench.begin("do it")
        site.bench.run(shell("printf 'one\\n\\377two'"))
        site.bench.see(Used("1", "edit", "done", ("a.txt",)))
        rows = [json.loads(line) for line in site.bench.transcript().splitlines()]
        moments = [row.pop("at_ns") for row in rows]
        assert moments == sorted(moments) and moments[0] > 0
        assert rows == [
            {"kind": "told", "text": "do it"},
            {"kind": "printed", "text": "one\n\ufffdtwo"},
            {"call": "1", "title": "edit", "status": "done", "paths": ["a.txt"], "kind": "used"},
        ]
        site.bench.begin()
        assert site.bench.transcript() == b""
        for _ in range(90):
            site.bench.see(Said("x" * (1 << 20)))
        *_, cut, last = (json.loads(line) for line in site.bench.transcript().splitlines())
        assert (cut["cut"], set(cut["text"])) == (1 << 20, {"x"}) and len(cut["text"]) < 1 << 20
        assert last["kind"] == "left_out" and 0 < last["rows"] < 83
        assert MOST_TRANSCRIPT // 2 < len(site.bench.transcript()) <= MOST_TRANSCRIPT + 100


def test_many_threads_tell_whole_lines(tmp_path: Path) -> None:
    """The one that talks and the one that counts do not mix their words."""
    with bench_at(tmp_path, {"a.txt": b"a"}) as site:
        bench = site.bench
        threads = [
            threading.Thread(target=lambda: [bench.see(Said("word" * 50)) for _ in range(200)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(site.seen) == 800
        assert all(json.loads(line)["text"] == "word" * 50 for line in bench.transcript().splitlines())


def test_spending_is_seen_and_a_reason_to_stop_ends_the_run(tmp_path: Path) -> None:
    """Each new total once, the last one too; a word from `stop` is the limit."""
    totals = iter([Usage(1, 10, 1, 0)] * 3)
    seen: list[object] = []
    with shaded(tmp_path / "workspace", {"a.txt": b"a"}) as site, open_shadow(site) as shadow:
        spent = Usage()

        def spending() -> Usage:
            nonlocal spent
            spent = next(totals, Usage(2, 20, 2, None))
            return spent

        bench = SandboxBench(
            shadow.view,
            shadow.new_home(),
            Profile(limits=Limits(time_ms=60_000)),
            within_ms=60_000,
            watcher=seen.append,
            spending=spending,
            stop=lambda: "budget" if spent.requests == 2 else "",
        )
        assert bench.run(shell("sleep 60")).limit == "budget"
    assert seen == [Spent(Usage(1, 10, 1, 0)), Spent(Usage(2, 20, 2, None))]


def test_a_person_works_in_a_copy_only(tmp_path: Path) -> None:
    """Layers are put together in the sandbox alone; where there is nobody, nobody is waited for."""
    asked: list[str] = []

    def person(instructions: str, directory: str) -> bool:
        asked.append(instructions)
        (Path(directory) / "made.txt").write_text("by hand\n")
        return True

    with bench_at(tmp_path / "1", {"a.txt": b"a"}, kind="copy", person=person) as site:
        assert site.bench.wait_for_person("do it") is True
        assert set(site.changed()) == {"made.txt"}
    with bench_at(tmp_path / "2", {"a.txt": b"a"}, kind="copy") as site:
        assert site.bench.wait_for_person("do it") is False
    with bench_at(tmp_path / "3", {"a.txt": b"a"}, person=person) as site:
        if site.shadow.kind == "copy":
            pytest.skip(f"no overlay here: {site.shadow.why}")
        assert site.bench.wait_for_person("do it") is False
    assert asked == ["do it"]
