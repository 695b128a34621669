"""holdfast demo: the whole story in a temporary directory, with real commands, and every outcome checked.

Nothing outside that directory is read or written: keys, anchors and settings of the story live in it too.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import holdfast
from holdfast.cli import demo_script as script
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.sandbox.process import Command, Finished, clean_environment, run
from holdfast.store.signing import load_or_create_signer

_COMMAND_MS = 30_000
_STORY_MS = 120_000
_PAUSE_S = 0.6
_INDENT = 4


class Act(NamedTuple):
    """One promise of the story, and whether it was kept."""

    claim: str
    kept: bool


@verb(name="demo")
def command(face: Face) -> int:
    """Tell the whole story in a temporary directory: nothing of yours is touched, no key is needed."""
    with TemporaryDirectory(prefix="holdfast-demo-") as place:
        story = _Story(face.screen, Path(place))
        story.tell()
    kept = bool(story.acts) and story.is_over and all(act.kept for act in story.acts)
    face.screen.answer(
        {
            "kind": "demo",
            "id": holdfast.__version__,
            "status": "ok" if kept else "failed",
            "acts": [act._asdict() for act in story.acts],
        }
    )
    face.screen.say()
    face.screen.say(f"All {len(story.acts)} outcomes were as promised." if kept else "Something was not as promised.")
    return 0 if kept else 1


class _Story:
    def __init__(self, screen: Screen, place: Path) -> None:
        self._screen = screen
        self._place = place
        self._site = place / "site"
        self._environment = _environment(place)
        self._port = 0
        self.acts: list[Act] = []
        self.is_over = False

    def tell(self) -> None:
        """The service lives exactly as long as the story: it is told while the service runs, and then ends it."""
        for path, text in script.FILES.items():
            self._write(self._site / path, text)
        server = self._write(self._place / "service.py", script.SERVICE)
        argv = (sys.executable, str(server), str(self._site / "conf/site.conf"))
        run(Command(argv, str(self._place), self._environment, _STORY_MS, grace_ms=100), on_output=self._on_service)

    def _on_service(self, line: bytes) -> None:
        ready = re.match(rb"ready (\d+)\n", line)
        if ready is None or self._port:
            return
        self._port = int(ready[1])
        acts = (
            self._applied,
            self._rolled_back,
            self._undone,
            self._killed,
            self._approved,
            self._agreed,
            self._audited,
            self._driven,
        )
        for act in acts:
            act()
            time.sleep(_PAUSE_S if sys.stdout.isatty() else 0)
        self.is_over = True
        self._ask("quit")

    # ── the acts ──

    def _applied(self) -> None:
        self._heading("1  A change is shown, checked and applied, and the service stays well")
        self._holdfast("init")
        self._change_file("release-2.yaml", script.RELEASE_2, show=True)
        done = self._holdfast("apply", "../release-2.yaml", "--yes")
        self._claim("it was applied", done.exit_code == 0 and "release 2" in self._read("conf/site.conf"))
        self._claim("the service is healthy", self._ask("health") == 200)

    def _rolled_back(self) -> None:
        self._heading("2  A change that breaks the service is rolled back by itself")
        before = self._tree()
        self._change_file("too-many.yaml", script.TOO_MANY)
        done = self._holdfast("apply", "../too-many.yaml", "--yes")
        self._claim("the health check failed: exit 6", done.exit_code == 6)
        self._claim(f"the tree digest is as before: {before[:16]}…", bool(before) and self._tree() == before)
        self._claim("the service is healthy again", self._ask("health") == 200)

    def _undone(self) -> None:
        self._heading("3  Somebody edits a file; an undo of the first change keeps that edit")
        self._shown_command("echo 'admin = me' >> conf/site.conf")
        self._write(self._site / "conf/site.conf", self._read("conf/site.conf") + script.EDIT)
        id = self._newest("Switch to release 2")
        done = self._holdfast("undo", id, "--yes")
        text = self._read("conf/site.conf")
        self._claim("release 2 is gone", done.exit_code == 0 and "release 1" in text and "release 2" not in text)
        self._claim("the edit is still there", script.EDIT in text)

    def _killed(self) -> None:
        self._heading("4  The process is killed in mid-apply, and the next command repairs that")
        before = self._tree()
        self._change_file("release-3.yaml", script.RELEASE_3)
        self._shown_command("holdfast apply ../release-3.yaml --yes    # SIGKILL in mid-apply")
        done = self._run(sys.executable, "-c", script.KILLED, "../release-3.yaml")
        self._claim("it was killed", done.signal == 9)
        self._claim("it left release 3 half done", "release 3" in self._read("conf/site.conf"))
        self._holdfast("status")
        self._claim(f"the tree digest is as before: {before[:16]}…", bool(before) and self._tree() == before)

    def _approved(self) -> None:
        self._heading("5  A change is simulated and approved; somebody edits its plan; execution refuses")
        self._change_file("release-4.yaml", script.RELEASE_4)
        id = self._simulated("../release-4.yaml")
        self._holdfast("approve", id)
        plan = self._site / ".holdfast/simulations" / id / "plan"
        self._substitute(plan, "Release 4", "Release 9")
        refused = self._holdfast("execute", id)
        self._claim("execution refuses the edited plan: exit 12", refused.exit_code == 12)
        self._substitute(plan, "Release 9", "Release 4")
        done = self._holdfast("execute", id)
        built = self._site / "releases/4/index.html"
        self._claim("the plan as it was approved lands", done.exit_code == 0 and "4" in built.read_text())

    def _agreed(self) -> None:
        self._heading("6  A risky change needs two people besides its author")
        people = self._people()
        self._change_file("deploy.yaml", script.DEPLOYMENT)
        id = self._simulated("../deploy.yaml")
        plan = str(self._document("show", id).get("plan_id", ""))
        first = self._holdfast("execute", id)
        self._claim("nobody approved it: exit 3", first.exit_code == 3)
        self._holdfast("approve", id, "--plan", plan, person=people[0])
        second = self._holdfast("execute", id)
        self._claim("one of two is not enough: exit 3", second.exit_code == 3)
        self._holdfast("approve", id, "--plan", plan, person=people[1])
        third = self._holdfast("execute", id)
        landed = (self._site / ".github/workflows/deploy.yml").exists()
        self._claim("with two it lands", third.exit_code == 0 and landed)
        self._holdfast("trace", id)

    def _audited(self) -> None:
        self._heading("7  Everything is in a ledger; one flipped byte of it is found")
        self._holdfast("log")
        self._claim("the ledger is whole", self._holdfast("audit", "verify").exit_code == 0)
        self._shown_command("flip one bit in .holdfast/ledger.jsonl")
        ledger = self._site / ".holdfast/ledger.jsonl"
        data = bytearray(ledger.read_bytes())
        data[data.index(b"release 2")] ^= 1
        ledger.write_bytes(data)
        self._claim("the flipped bit is found: exit 12", self._holdfast("audit", "verify").exit_code == 12)

    def _driven(self) -> None:
        self._heading("8  A roadmap is driven to done; what an agent only claims is caught by the checks, and mended")
        project = self._project()
        self._holdfast("-C", "../project", "init", person="dev")
        done = self._holdfast("-C", "../project", "run", "--agent", "helper", "--yes", person="dev")
        self._claim("every task landed: exit 0", done.exit_code == 0)
        told = done.output.decode("utf-8", "backslashreplace")
        caught = "not good yet" in told and "1 attempt, mended once" in told
        self._claim("work that failed its test was caught, and mended, as the lines above say", caught)
        self._claim("the boxes are ticked", (project / "ROADMAP.md").read_text(encoding="utf-8").count("- [x]") == 2)
        self._shown_command("git -C ../project log --oneline")
        log = self._run("git", "-C", str(project), "log", "--oneline").output.decode("utf-8", "replace")
        self._quote(log)
        self._claim("each task is one commit", len(log.splitlines()) == 3)

    def _project(self) -> Path:
        """A repository of its own, for somebody whose configuration names the agent."""
        project = self._place / "project"
        for path, text in script.PROJECT.items():
            self._write(project / path, text)
        identity = ("-c", "user.name=Dev", "-c", "user.email=dev@localhost")
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "Begin")):
            self._run("git", "-C", str(project), *identity, *words)
        helper = self._write(self._place / "helper.py", script.HELPER)
        agents = script.AGENTS.replace("PYTHON", sys.executable).replace("HELPER", str(helper))
        config = self._write(self._place / "home/dev/holdfast/config.toml", agents)
        config.chmod(0o600)
        config.parent.chmod(0o700)
        return project

    # ── how it is told ──

    def _heading(self, text: str) -> None:
        self._screen.say()
        self._screen.say(self._screen.style(text, "bold"))

    def _shown_command(self, text: str) -> None:
        self._screen.say(self._screen.style(f"  $ {text}", "cyan"))

    def _claim(self, claim: str, kept: bool) -> None:
        self.acts.append(Act(claim, kept))
        sign = self._screen.style("✓", "green") if kept else self._screen.style("✗", "red")
        self._screen.say(f"  {sign} {claim}")

    def _holdfast(self, *words: str, person: str = "") -> Finished:
        self._shown_command(f"{person + '$ ' if person else ''}holdfast " + " ".join(words))
        done = self._run(sys.executable, "-m", "holdfast", *words, person=person)
        self._quote(done.output.decode("utf-8", "backslashreplace"))
        return done

    def _quote(self, text: str) -> None:
        for line in text.rstrip("\n").split("\n"):
            self._screen.say(" " * _INDENT + shown(line.replace(str(self._place), "…")))

    def _substitute(self, path: Path, old: str, new: str) -> None:
        """As a person would, and for all to see."""
        self._shown_command(f"sed -i 's/{old}/{new}/' {path.relative_to(self._site)}")
        self._write(path, path.read_text(encoding="utf-8").replace(old, new))

    def _change_file(self, name: str, text: str, *, show: bool = False) -> None:
        whole = text.replace("PORT", str(self._port))
        self._write(self._place / name, whole)
        if show:
            self._shown_command(f"cat ../{name}")
            self._quote(whole)

    # ── what it is made of ──

    def _run(self, *argv: str, person: str = "") -> Finished:
        own = {"XDG_CONFIG_HOME": str(self._place / "home" / person)} if person else {}
        return run(Command(argv, str(self._site), {**self._environment, **own}, _COMMAND_MS))

    def _simulated(self, file: str) -> str:
        """The simulation that was shown, by the id that a person reads off the screen."""
        told = self._holdfast("simulate", file).output.decode("utf-8", "backslashreplace")
        found = re.findall(r"\bs-[a-z0-9]+", told)
        return found[-1] if found else ""

    def _people(self) -> tuple[str, str]:
        """Ann and Ben have keys of their own; the author's configuration, and theirs, name both as approvers."""
        author = Path(self._environment["XDG_CONFIG_HOME"]) / "holdfast"
        homes = {"ann": self._place / "home/ann/holdfast", "ben": self._place / "home/ben/holdfast", "me": author}
        for home in homes.values():
            home.mkdir(mode=0o700, parents=True, exist_ok=True)
        keys = {name: load_or_create_signer(str(homes[name] / "signing.key")).public for name in ("ann", "ben")}
        for name, home in homes.items():
            text = script.PEOPLE.replace("NAME", name).replace("ANN", keys["ann"]).replace("BEN", keys["ben"])
            self._write(home / "config.toml", text)
            (home / "config.toml").chmod(0o600)
            if home != author:  # one host, one ledger: they share its key
                (home / "ledger.key").write_bytes((author / "ledger.key").read_bytes())
                (home / "ledger.key").chmod(0o600)
        return "ann", "ben"

    def _document(self, *words: str) -> dict[str, object]:
        output = self._run(sys.executable, "-m", "holdfast", "--json", *words).output
        found = json.loads(output.splitlines()[-1]) if output else {}
        return found if isinstance(found, dict) else {}

    def _tree(self) -> str:
        tree = self._document("status").get("tree")
        return str(tree["digest"]) if isinstance(tree, dict) else ""

    def _newest(self, intent: str) -> str:
        items = self._document("log", "--search", intent).get("items")
        return str(items[0]["id"]) if isinstance(items, list) and items else ""

    def _ask(self, path: str) -> int:
        """The status that the service answers with; 0 when it does not answer."""
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            connection.request("GET", f"/{path}")
            return connection.getresponse().status
        except (OSError, HTTPException):
            return 0
        finally:
            connection.close()

    def _read(self, path: str) -> str:
        return (self._site / path).read_text(encoding="utf-8")

    def _write(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def _environment(place: Path) -> dict[str, str]:
    """What a stranger's shell would have, with a home of its own and the very Holdfast that tells the story."""
    package = os.path.dirname(os.path.dirname(os.path.abspath(holdfast.__file__)))
    homes = {name: str(place / "home" / name.lower()) for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME")}
    (place / "home").mkdir(mode=0o700)
    own = {"PYTHONPATH": package, "COLUMNS": str(80 - _INDENT), "NO_COLOR": "1"}
    return {**clean_environment(str(place / "home")), **homes, **own}
