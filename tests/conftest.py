"""What every test may rely on: an environment of its own, and a workspace to break.

No test can read or change the real user's keys, configuration, ledger anchors or git identity.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# One line at the end of a run that says how many kill points, errors and power cuts were tried.
from crash.summary import pytest_terminal_summary as pytest_terminal_summary
from file_systems import KINDS, mounted, why_not
from guarded import USER

# A shell that starts the tests in the background has them ignore Ctrl-C, and so would every program they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Deadlines measure the machine, not the code: it may be shared.
# Stateful tests use real disks, whose slowness is not a fault of the generated data.
# The examples are the same in every run: what fails was changed. `--hypothesis-profile random` looks further.
_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("random", **_SLOW)
settings.register_profile("same", **_SLOW, derandomize=True)
settings.load_profile("same")

_HOMES = ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME")
# Set by git when it runs a hook, and then every git started here would work on the wrong repository.
_GIT_PLACES = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")
_IDENTITY = {"NAME": "Test", "EMAIL": "test@example.invalid"}


_FILE_SYSTEM = pytest.StashKey[ExitStack]()
# What cannot be had on overlayfs, and the tests that need it; each is tried on every other file system.
_NOT_ON_OVERLAYFS = {
    "a shadow cannot be an overlay on overlayfs (it is a copy there)": """[overlay -overlay]
        test_the_kind_of_shadow_makes_no_difference test_attributes_of_a_directory_that_exists_are_refused
        test_an_upper_layer_that_we_do_not_understand_is_refused test_a_layer_made_by_hand
        test_an_owner_who_is_nobody_is_refused test_what_a_look_knows_is_not_read_again
        test_rules_that_are_no_file_are_named test_a_sweep_and_a_beginning_at_once test_an_overlay_is_preferred
        test_both_kinds_capture_the_same test_a_file_of_the_workspace_with_an_overlays_attribute
        test_plans_with_commands_land_as_simulated test_a_moved_base_is_refused_for_plans_with_commands""".split(),
    "owners cannot be mapped on overlayfs, so agents of root do not reach a model whose socket is there": """
        test_what_a_task_spends_is_counted_by_us test_a_budget_ends_the_task test_a_refused_key_is_not_tried_twice
        test_a_model_that_fails_is_asked_again_later test_an_error_of_the_model_counts_for_its_own_attempt_only
        test_no_model_at_all_is_said test_a_limit_in_money_needs_a_price test_nothing_of_a_task_is_left
        test_an_overloaded_model_is_given_time test_a_transcript_tells_what_the_model_was_asked
        tests/crash/test_delegation.py""".split(),
}
Sampled = Callable[[Sequence[Any]], list[Any]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--file-system", choices=KINDS, help="keep all files of the tests on a fresh file system")
    parser.addoption("--sample", type=int, metavar="N", help="try only N of the places of each crash test (fixed seed)")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Every process that runs tests mounts its own; the one that only hands them out needs none."""
    kind = config.option.file_system
    if kind is None or why_not(kind) or config.getoption("numprocesses", None):
        return
    config.stash[_FILE_SYSTEM] = stack = ExitStack()
    place = stack.enter_context(mounted(kind))
    (place / "tmp").mkdir(mode=0o777)
    (place / "tmp").chmod(0o1777)
    tempfile.tempdir = str(place / "tmp")
    config.option.basetemp = str(place / "t")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A sample leaves out what takes long and cannot be sampled."""
    if config.option.sample is None:
        return
    slow = ("crash", "crash_full", "long")
    left_out = [
        item
        for item in items
        if any(item.get_closest_marker(mark) for mark in slow) and "sampled" not in getattr(item, "fixturenames", ())
    ]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _FILE_SYSTEM in config.stash:
        config.stash[_FILE_SYSTEM].close()


def _isolate(environment: pytest.MonkeyPatch, home: Path) -> None:
    environment.setenv("HOME", str(home))
    for name in _HOMES:
        environment.setenv(name, str(home / name.lower()))
    for name in (*_GIT_PLACES, *(name for name in os.environ if name.startswith("HOLDFAST_"))):
        environment.delenv(name, raising=False)
    environment.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for role in ("AUTHOR", "COMMITTER"):
        for key, value in _IDENTITY.items():
            environment.setenv(f"GIT_{role}_{key}", value)


@pytest.fixture(autouse=True, scope="session")
def _home_for_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fixtures wider than one test see no real home either."""
    with pytest.MonkeyPatch.context() as environment:
        _isolate(environment, tmp_path_factory.mktemp("session-home"))
        yield


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh home, outside the test's `tmp_path`; state and configuration go below it."""
    directory = tmp_path_factory.mktemp("home")
    _isolate(monkeypatch, directory)
    return directory


@pytest.fixture
def sampled(request: pytest.FixtureRequest) -> Sampled:
    """All of some places to interrupt at, in order; with --sample N only N of them, the same ones in every run."""
    most: int | None = request.config.option.sample

    def chosen(places: Sequence[Any]) -> list[Any]:
        if most is None or len(places) <= most:
            return list(places)
        numbers = random.Random(request.node.name).sample(range(len(places)), most)
        return [places[number] for number in sorted(numbers)]

    return chosen


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """An empty directory to guard."""
    directory = tmp_path / "workspace"
    directory.mkdir()
    return directory


@pytest.fixture
def public() -> Iterator[Path]:
    """Where an ordinary user can work, outside the test runner's private directories.

    A directory that all may enter, with `home` and `workspace` that belong to that user (to us, where we are not root).
    """
    place = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    place.chmod(0o755)
    for name in ("home", "workspace"):
        (place / name).mkdir()
        if os.geteuid() == 0:
            os.chown(place / name, USER, USER)
    yield place
    shutil.rmtree(place)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what this host cannot do; -ra prints it."""
    kind = item.config.option.file_system
    if kind is not None and (reason := why_not(kind)):
        pytest.skip(reason)
    for reason, names in _NOT_ON_OVERLAYFS.items() if kind == "overlayfs" else ():
        if any(name in item.nodeid for name in names):
            pytest.skip(reason)
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs root")
