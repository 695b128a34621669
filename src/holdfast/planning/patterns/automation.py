"""automation_enabled_status: which automations a repository has, which are enabled, and when they run.

Looked at: CI of the common services, hooks kept in the tree, schedules, updaters, targets of make, scripts of npm.
Each kind has one rule over the text of its file. No YAML is decoded: the rules look at lines and indentation,
which is how these files are written; what a rule cannot read it calls enabled only if the file says something at all.

Not looked at: `.git/hooks`, which belong to one clone, and whatever a service's own pages switch off.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import NamedTuple

from holdfast.model.canonical import Json
from holdfast.planning.patterns import schemas
from holdfast.planning.patterns.documents import as_json, document_files, document_reads, table_in_markdown
from holdfast.planning.patterns.pattern import Draft, Facts, Inputs, Pattern

_OFF = re.compile(r"\.(disabled|off|bak|orig|old)$")
_BY_HAND = frozenset({"workflow_dispatch", "workflow_call", "repository_dispatch"})


class Automation(NamedTuple):
    """`when` says what starts it; `why` is for one that is not enabled."""

    kind: str
    path: str
    name: str
    enabled: bool
    when: tuple[str, ...] = ()
    why: str = ""


_Rule = Callable[[str, str, str], list[Automation]]


def _plain(kind: str, path: str, text: str) -> list[Automation]:
    """Enabled when something stands in it besides comments."""
    said = any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines())
    return [Automation(kind, path, path.rpartition("/")[2], said, why="" if said else "the file is empty")]


def _workflow(kind: str, path: str, text: str) -> list[Automation]:
    """A workflow of GitHub: its events, and whether a job is left that may run."""
    named = re.search(r"(?m)^name:[ \t]*(.+?)[ \t]*$", text)
    name = named[1].strip("'\"") if named else path.rpartition("/")[2]
    events = _events(text)
    jobs = _jobs(text)
    why = (
        "nothing starts it"
        if not events
        else "it has no job"
        if not jobs
        else "every job says if: false"
        if all(off for off in jobs.values())
        else ""
    )
    when = tuple("by hand" if event in _BY_HAND else event for event in events)
    return [Automation(kind, path, name, not why, tuple(dict.fromkeys(when)), why)]


def _section(text: str, key: str) -> tuple[str, list[str]]:
    """What stands behind a key of the first column, and the indented lines below it."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        found = re.match(rf"(?:{key}|\"{key}\"|'{key}'):[ \t]*([^#]*)", line)
        if found is None:
            continue
        below: list[str] = []
        for later in lines[number + 1 :]:
            if later.strip() and not later[0].isspace() and not later.startswith(("#", "-")):
                break
            if later.strip() and not later.lstrip().startswith("#"):
                below.append(later)
        return found[1].strip(), below
    return "", []


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _events(text: str) -> list[str]:
    inline, below = _section(text, "on")
    if inline:
        return re.findall(r"[a-z_]+", inline)
    if not below:
        return []
    first = _indent(below[0])
    found: list[str] = []
    for line in below:
        event = re.match(r" *(?:- *)?([a-z_]+) *:?", line)
        cron = re.search(r"cron: *['\"]?([^'\"#]+)", line)
        if _indent(line) == first and event is not None and event[1] != "schedule":
            found.append(event[1])
        elif cron is not None:
            found.append(f"schedule {cron[1].strip()}")
    return found


def _jobs(text: str) -> dict[str, bool]:
    """Each job, and whether it is switched off."""
    _, below = _section(text, "jobs")
    found: dict[str, bool] = {}
    inner = -1
    for line in below:
        if _indent(line) == _indent(below[0]):
            found[line.strip().rstrip(":")] = False
            inner = -1
            continue
        inner = _indent(line) if inner < 0 else inner
        if found and _indent(line) == inner and re.match(r" *if: *(false|\$\{\{ *false *\}\}) *(#.*)?$", line):
            found[list(found)[-1]] = True
    return found


def _pre_commit(kind: str, path: str, text: str) -> list[Automation]:
    hooks = re.findall(r"(?m)^[ ]*-[ ]+id:[ ]*['\"]?([\w.-]+)", text)
    if not hooks:
        return [Automation(kind, path, "pre-commit", False, why="it names no hook")]
    return [Automation(kind, path, hook, True, ("commit",)) for hook in dict.fromkeys(hooks)]


def _hook(kind: str, path: str, text: str) -> list[Automation]:
    name = path.rpartition("/")[2]
    return [found._replace(when=(name,)) for found in _plain(kind, path, text)]


def _timer(kind: str, path: str, text: str) -> list[Automation]:
    when = tuple(re.findall(r"(?m)^(On\w+=.+?)[ \t]*$", text))
    why = "" if when else "it has no time"
    return [Automation(kind, path, path.rpartition("/")[2], bool(when), when, why)]


def _crontab(kind: str, path: str, text: str) -> list[Automation]:
    lines = [line.strip() for line in text.splitlines()]
    jobs = [line for line in lines if re.match(r"(@\w+|[\d*,/-]+(\s+[\w*,/-]+){4})\s+\S", line)]
    if not jobs:
        return [Automation(kind, path, path.rpartition("/")[2], False, why="it has no line that runs something")]
    return [Automation(kind, path, f"line {lines.index(job) + 1}", True, (_when(job),)) for job in jobs]


def _when(job: str) -> str:
    return job.split()[0] if job.startswith("@") else " ".join(job.split()[:5])


def _make(kind: str, path: str, text: str) -> list[Automation]:
    targets = re.findall(r"(?m)^([A-Za-z0-9][\w.-]*)[ \t]*:(?![=:])", text)
    return [Automation(kind, path, target, True, (f"make {target}",)) for target in dict.fromkeys(targets)]


def _npm(kind: str, path: str, text: str) -> list[Automation]:
    try:
        package: object = json.loads(text)
    except (ValueError, RecursionError):
        return [Automation(kind, path, "package.json", False, why="it is not JSON")]
    scripts = package.get("scripts") if isinstance(package, dict) else None
    names = sorted(scripts) if isinstance(scripts, dict) else []
    return [Automation(kind, path, name, True, (f"npm run {name}",)) for name in names]


_RULES: tuple[tuple[str, str, _Rule], ...] = (
    ("ci", r"\.github/workflows/[^/]+\.ya?ml", _workflow),
    ("ci", r"\.gitlab-ci\.yml|\.circleci/config\.yml|Jenkinsfile|azure-pipelines\.yml|\.travis\.yml", _plain),
    ("ci", r"bitbucket-pipelines\.yml|\.drone\.yml|\.woodpecker\.ya?ml|\.woodpecker/[^/]+\.ya?ml", _plain),
    ("hook", r"\.pre-commit-config\.yaml", _pre_commit),
    ("hook", r"\.husky/[a-z-]+|\.githooks/[a-z-]+", _hook),
    ("hook", r"lefthook\.ya?ml", _plain),
    ("schedule", r"(.+/)?[^/]+\.timer", _timer),
    ("schedule", r"(.+/)?crontab|(.+/)?cron\.d/[^/]+", _crontab),
    ("updates", r"\.github/dependabot\.ya?ml|renovate\.json5?|\.renovaterc(\.json)?|\.github/renovate\.json5?", _plain),
    ("target", r"GNUmakefile|[Mm]akefile", _make),
    ("script", r"package\.json", _npm),
)


def _rule_for(path: str) -> tuple[str, _Rule] | None:
    plain = _OFF.sub("", path)
    return next(((kind, rule) for kind, form, rule in _RULES if re.fullmatch(form, plain)), None)


def automations_in(facts: Facts) -> list[Automation]:
    """Every automation of the tree, by kind, path and name."""
    found: list[Automation] = []
    for path in sorted(facts.files):
        known = _rule_for(path)
        if known is None:
            continue
        kind, rule = known
        if _OFF.search(path):
            found.append(Automation(kind, path, path.rpartition("/")[2], False, why="its name switches it off"))
        elif path not in facts.contents:
            found.append(Automation(kind, path, path.rpartition("/")[2], False, why="it is too large to be read"))
        else:
            found += rule(kind, path, facts.text(path))
    return sorted(found, key=lambda each: (each.kind, each.path))


def _build(inputs: Inputs, facts: Facts) -> Draft:
    found = automations_in(facts)
    enabled = sum(each.enabled for each in found)
    rows: list[Json] = [{**each._asdict(), "when": list(each.when)} for each in found]
    status: Json = {"version": 1, "enabled": enabled, "disabled": len(found) - enabled, "automations": rows}
    markdown = table_in_markdown(
        "Automation",
        f"{enabled} enabled, {len(found) - enabled} not. Made from the tree by the pattern {ID}.",
        ("kind", "name", "path", "enabled", "when"),
        [
            (each.kind, each.name, each.path, "yes" if each.enabled else f"no: {each.why}", ", ".join(each.when))
            for each in found
        ],
    )
    files = document_files(inputs, _OUTPUT, as_json(status), markdown)
    return Draft("Record which automations are enabled", files, words=("check the syntax",))


def _reads(inputs: Inputs, files: frozenset[str]) -> tuple[str, ...]:
    wanted = [path for path in files if _rule_for(path) is not None and not _OFF.search(path)]
    return (*sorted(wanted), *document_reads(inputs, _OUTPUT, files))


ID = "automation_enabled_status"
_OUTPUT = "docs/automation-status.json"
STATUS = Pattern(
    ID,
    "Which automations are enabled",
    "Writes or refreshes a document that says which CI jobs, hooks, schedules, make targets and scripts there are.",
    schemas.inputs(
        (),
        output=schemas.path("the JSON document", default=_OUTPUT),
        markdown=schemas.path("a document for people as well, such as docs/automation.md"),
    ),
    {"output": _OUTPUT, "markdown": "docs/automation.md"},
    _build,
    _reads,
)
