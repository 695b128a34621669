"""doctor: it says what is so, and nothing else; unusable is exit 2."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.signing import load_or_create_signer

# Into a user namespace that may have no others: there bubblewrap has nothing to work with.
WITHOUT_A_SANDBOX = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()
assert libc.unshare(0x10000000) == 0
for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
    open(f"/proc/self/{name}", "w").write(text)
open("/proc/sys/user/max_user_namespaces", "w").write("0")
from holdfast.cli import main
sys.exit(main(sys.argv[1:]))
"""
ANN = "a1" * 32
BOB = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"


@pytest.fixture
def configure(home: Path) -> Any:
    """Write the user's own configuration, as the user would: private."""

    def written(text: str) -> Path:
        folder = home / "xdg_config_home" / "holdfast"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)
        (folder / "config.toml").chmod(0o600)
        return folder / "config.toml"

    return written


def checks(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in document["checks"]}


def values(document: dict[str, Any]) -> dict[str, tuple[Any, list[str]]]:
    return {row["key"]: (row["value"], row["layers"]) for row in document["configuration"]["values"]}


def test_doctor_tries_everything_out(guarded: Any) -> None:
    """Each promise was tried on this file system, and nothing of the trial is left behind."""
    before = sorted(os.listdir(guarded.directory / ".holdfast"))
    told = guarded.fresh("doctor", "--json").document
    assert told["status"] == "usable"
    assert {"exchange", "no-replace", "openat2", "syncfs", "lock"} <= {k for k, holds in told["holds"].items() if holds}
    assert told["file_system"] not in ("", "unknown")
    left = set(os.listdir(guarded.directory / ".holdfast")) - set(before)
    assert left <= {"shadows"} and not list((guarded.directory / ".holdfast").glob("shadows/*"))
    text = guarded("doctor").out
    for words in ("Atomic", "Shadows", "Sandbox", "Ledger key", "Anchor", "Policy", "Configuration", "Usable here."):
        assert words in text


def test_the_environment_that_programs_see_is_told(guarded: Any) -> None:
    """Which of the user's tools are shown to programs, in a line that is no verdict."""
    (told,) = [row for row in guarded("doctor", "--json").document["checks"] if row["name"] == "Environment"]
    assert "Python 3" in told["detail"] and told["ok"] is None


def test_doctor_works_outside_a_workspace(program: Any) -> None:
    """It tells what would hold in this directory, and leaves nothing in it."""
    done = program("doctor")
    assert done.status == 0
    assert "holdfast init" in done.out
    assert "project" not in done.out.partition("Configuration")[2].partition("\n")[0]
    assert list(program.directory.iterdir()) == []


def test_doctor_finds_a_key_that_others_can_read(guarded: Any, home: Path) -> None:
    """A ledger key open to others is trouble: exit 2, and the line says so."""
    (key,) = home.rglob("ledger.key")
    key.chmod(0o644)
    done = guarded("doctor")
    assert done.status == 2
    assert "open to other users" in done.out
    assert "Not usable here" in done.out


def test_a_signing_key_open_to_others_is_trouble(guarded: Any, home: Path) -> None:
    """A key that others could have copied proves nothing about who approved: exit 2."""
    load_or_create_signer(str(home / "xdg_config_home/holdfast/signing.key"))
    (home / "xdg_config_home/holdfast/signing.key").chmod(0o640)
    done = guarded("doctor", "--json")
    assert (done.status, checks(done.document)["Signing key"]["ok"]) == (2, False)
    assert done.document["keys"]["public"] == ""


def test_the_sandbox_is_told_with_what_it_enforces(guarded: Any) -> None:
    """Each guarantee is listed with how it is kept, and the words are those that a simulation reports."""
    found = guarded("doctor", "--json").document["sandbox"]
    if not found["sandboxed"]:
        pytest.skip(f"no sandbox here: {found['why_not']}")
    assert found["bubblewrap"][0].isdigit()
    held = {row["what"] for row in found["guarantees"] if row["enforced"]}
    assert {"files", "network", "processes", "privileges", "limits"} <= held
    assert "network: none, own namespace" in found["enforced"]


def test_the_words_of_the_sandbox_are_those_a_policy_can_demand(guarded: Any, configure: Any) -> None:
    """A policy that demands every word doctor prints does not refuse a command that ran here; another word does."""
    found = guarded("doctor", "--json").document["sandbox"]
    if not found["sandboxed"]:
        pytest.skip(f"no sandbox here: {found['why_not']}")
    change = {"intent": "x", "steps": [{"run": ["touch", "made"]}], "health": [{"run": ["true"]}]}
    configure("[policy]\nsandbox = ['a moat']")
    assert guarded.apply(change).status == 4
    configure(f"[policy]\nsandbox = {found['enforced']!r}")
    assert guarded.apply(change).status in (0, 3)


def test_without_a_sandbox_doctor_says_what_that_means(guarded: Any) -> None:
    """A host that cannot confine programs is usable for files, and the reason and the meaning are told."""
    done = guarded.python(WITHOUT_A_SANDBOX, "doctor")
    assert done.status == 0, done
    assert "Sandbox        none: " in done.out
    assert "run steps, and checks, are refused" in done.out
    assert "user namespace" in done.out
    told = guarded.python(WITHOUT_A_SANDBOX, "doctor", "--json").document
    assert (told["sandbox"]["sandboxed"], told["sandbox"]["enforced"], told["status"]) == (False, [], "usable")


def test_without_a_sandbox_unconfined_checks_are_called_by_their_name(guarded: Any, configure: Any) -> None:
    """Where the user lets checks run without a sandbox, doctor says UNCONFINED and which file says so."""
    configure("[sandbox]\nwithout = 'allow'")
    done = guarded.python(WITHOUT_A_SANDBOX, "doctor")
    assert done.status == 0
    assert "UNCONFINED" in done.out and "plans with run steps are refused" in done.out
    assert "sandbox.without  allow  (user)" in done.out


@pytest.mark.root
def test_a_workspace_with_strangers_files_gets_copies(guarded: Any) -> None:
    """Whose files a workspace holds decides whether its shadow is an overlay, and doctor names the file."""
    os.chown(guarded.directory / "old.txt", 70_000, 70_000)
    told = guarded("doctor", "--json").document["shadows"]
    assert told["kind"] == "copy"
    assert "old.txt belongs to 70000:70000" in told["why_not_overlay"]


def test_the_public_key_is_told_as_a_colleague_needs_it(guarded: Any, home: Path, configure: Any) -> None:
    """The line can be put into another person's configuration as it stands, and makes this user an approver there."""
    configure("[me]\nname = 'alice'")
    public = load_or_create_signer(str(home / "xdg_config_home/holdfast/signing.key")).public
    line = f'alice = "{public}"'
    assert line in guarded("doctor").out
    configure(f"[me]\nname = 'alice'\n[approvers]\n{line}\nbob = '{BOB}'")
    done = guarded("doctor")
    assert "2 people: alice (you), bob; from high on, 2 of them  ok" in done.out


def test_an_approver_with_a_foreign_key_is_warned(guarded: Any, home: Path, configure: Any) -> None:
    """Who is named with somebody else's key learns that the own yes is worth nothing; files can still be changed."""
    load_or_create_signer(str(home / "xdg_config_home/holdfast/signing.key"))
    configure(f"[me]\nname = 'alice'\n[approvers]\nalice = '{BOB}'")
    done = guarded("doctor")
    assert done.status == 0
    assert "your yes counts for nothing" in done.out


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            f"[approvers]\nann = '{ANN}'\nbob = '{BOB}'\n[policy]\npeople = 3",
            "3 people from high on, and there are 2 different",
        ),
        (
            f"[approvers]\nann = '{BOB}'\nbob = '{BOB}'",
            "2 people from high on, and there is 1 different key of people: one",
        ),
        (f"[approvers]\nann = '{ANN}'\n[policy]\npeople = 2", "one person decides such changes alone"),
        ("[policy]\npeople = 2", "there are 0 different keys of people: one person decides"),
        (
            f"[approvers]\nann = '{ANN}'\nrobot = '{BOB}'\n[agents.robot]\ncommand = ['true']",
            "there is 1 different key of people",
        ),
    ],
)
def test_more_people_than_keys_is_a_warning(guarded: Any, configure: Any, text: str, told: str) -> None:
    """Policy that wants more people than have keys of their own is told, with what it comes to; exit 0 all the same."""
    configure(text)
    done = guarded("doctor")
    assert (done.status, told in done.out) == (0, True), done.out
    (line,) = (line for line in done.out.splitlines() if line.startswith("Approvers"))
    assert line.endswith("  no")


@pytest.mark.parametrize(
    "text", ["", f"[approvers]\nann = '{ANN}'", f"[approvers]\nann = '{ANN}'\nbob = '{BOB}'\n[policy]\npeople = 2"]
)
def test_as_many_people_as_keys_is_none(guarded: Any, configure: Any, text: str) -> None:
    """Nor is somebody alone who never asked for more."""
    configure(text)
    assert "policy wants" not in guarded("doctor").out


def test_values_are_told_with_the_file_that_decided(guarded: Any, configure: Any) -> None:
    """Lists add up and name all their layers; a default names none; policy answers name the layer that tightened."""
    configure("[workspace]\nhidden = ['.env']\n[limits]\nmemory = '2GB'\n[policy]\nlow_risk = 'ask'")
    (guarded.directory / "holdfast.toml").write_text(
        "[workspace]\nhidden = ['secrets/**']\n[policy]\nwithout_health = 'deny'\nsecrets = 'allow'"
    )
    found = values(guarded("doctor", "--json").document)
    assert found["workspace.hidden"] == ([".env", "secrets/**"], ["user", "project"])
    assert found["limits.memory"] == (2_000_000_000, ["user"])
    assert found["limits.processes"] == (200, [])
    assert found["policy.low_risk"] == ("ask", ["user"])
    assert found["policy.without_health"] == ("deny", ["project"])
    assert found["policy.secrets"] == ("ask", [])


def test_a_table_in_a_table_is_told_by_what_is_set_in_it(guarded: Any, configure: Any) -> None:
    """An agent's limits are keys with their values; what nobody set has no words."""
    configure("[agents.mine]\ncommand = ['true']\nlimits = { memory = '2GB' }")
    said = guarded("doctor").out
    assert "limits.memory_bytes=2000000000" in said and "None" not in said


def test_checkpoints_are_told_as_runs_make_them(guarded: Any, configure: Any) -> None:
    """Unset, a run commits inside a repository; `none` is what somebody wrote who wants no commits."""
    assert "checkpoint git inside a repository" in guarded("doctor").out
    configure('[run]\ncheckpoint = "none"\n')
    assert values(guarded("doctor", "--json").document)["run.checkpoint"] == ("none", ["user"])


def test_triggers_are_told_with_what_their_kind_means(guarded: Any, configure: Any) -> None:
    """Each trigger is a line with its own keys and its file."""
    configure("[triggers.nightly]\ncron = '0 2 * * *'\nagent = 'mine'\n[triggers.inbox]\nqueue = 'in'\nsettle = '2s'")
    found = values(guarded("doctor", "--json").document)
    assert found["triggers.nightly"] == (
        {"kind": "cron", "roadmap": "", "agent": "mine", "cron": "0 2 * * *", "timezone": "UTC"},
        ["user"],
    )
    assert found["triggers.inbox"][0] == {"kind": "queue", "roadmap": "", "agent": "", "queue": "in", "settle_ms": 2000}
    text = guarded("doctor").out
    assert "kind=cron, agent=mine, cron=0 2 * * *, timezone=UTC  (user)" in text


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("user", "[limts]\nmemory = '2GB'", "limts is not known here"),
        ("user", "not toml at all", "is not TOML"),
        ("project", "[sandbox]\nwithout = 'allow'", "is not for a project to say"),
    ],
)
def test_a_broken_configuration_is_not_usable(guarded: Any, configure: Any, file: str, text: str, said: str) -> None:
    """A file that cannot be understood or trusted is exit 2, with the file and the reason; the policy is not known."""
    if file == "user":
        configure(text)
    else:
        (guarded.directory / "holdfast.toml").write_text(text)
    done = guarded("doctor")
    assert done.status == 2
    assert said in done.out
    assert "Policy         not known: the configuration cannot be read  NO" in done.out


def test_a_configuration_that_others_can_write_is_not_usable(guarded: Any, configure: Any) -> None:
    """Whoever may write the file could have written anything: exit 2, and the remedy."""
    configure("").chmod(0o666)
    done = guarded("doctor")
    assert done.status == 2
    assert "can be written by others" in done.out and "chmod go-w" in done.out


def test_a_policy_that_fails_its_own_tests_is_not_usable(guarded: Any) -> None:
    """The rule, its layer and the path are named; exit 2, because such a policy decides nothing."""
    rule = "[[policy.rules]]\nname = 'Keeps the db'\npaths = ['db/**']\nrisk = 'high'\nmatch = ['data/x']"
    (guarded.directory / "holdfast.toml").write_text(rule)
    done = guarded("doctor")
    assert done.status == 2
    assert "'Keeps the db' (project) does not match data/x" in done.out
    assert "1 FAIL" in done.out
    document = guarded("doctor", "--json").document
    assert (document["status"], len(document["policy"]["failures"])) == ("unusable", 1)


def test_agents_that_can_be_used_are_named(guarded: Any, configure: Any) -> None:
    """By name and version; the others are for `holdfast agents`."""
    configure("[agents.mine]\ncommand = ['true']\n[agents.gone]\ncommand = ['no-such-program-here']")
    (line,) = (line for line in guarded("doctor").out.splitlines() if line.startswith("Agents"))
    assert "mine" in line and "gone" not in line and "holdfast agents" in line


def test_credentials_in_the_workspace_are_warned_of_unless_hidden(guarded: Any) -> None:
    """With the line that hides them; a file of plain settings is none, and no file is read through a link."""
    (guarded.directory / ".npmrc").write_text("registry=https://npm.example/\n")
    (guarded.directory / ".netrc").symlink_to("/etc/passwd")
    assert "Secrets" not in guarded("doctor").out
    (guarded.directory / ".npmrc").write_text("//npm.example/:_authToken=abc\n")
    told = guarded("doctor")
    assert told.status == 0 and ".npmrc may hold a secret, and is visible to programs and agents" in told.out
    assert '[workspace] hidden = [".npmrc"]' in told.out
    (guarded.directory / "holdfast.toml").write_text('[workspace]\nhidden = [".npmrc"]\n')
    assert "Secrets" not in guarded("doctor").out
