"""Settings: three files, what they may say, and whom they may belong to. Real files."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from gates.building import cases_in
from holdfast.errors import InvalidInput
from holdfast.model.configuration import Settings
from holdfast.settings import MANAGED_FILE, NO_WORKSPACE, Places, Whose, load, places_of

CASES = dict(cases_in("settings"))
LAYERS = ("managed", "user", "project")


def places_in(folder: Path, files: Mapping[str, str]) -> Places:
    for name in LAYERS:
        (folder / name).mkdir(mode=0o755)
        if name in files:
            (folder / name / "x.toml").write_text(files[name], encoding="utf-8")
            (folder / name / "x.toml").chmod(0o644)
    return Places(*(str(folder / name / "x.toml") for name in LAYERS), managed_owner=os.geteuid())


def whose(case: Mapping[str, Any]) -> Whose:
    """The workspace that a case `is`; its user has three."""
    return Whose(lambda: case["is"], lambda: ("w-one", "w-two", "w-none")) if "is" in case else NO_WORKSPACE


def value_of(settings: Settings, dotted: str) -> object:
    def step(value: object, name: str) -> object:
        return value[int(name)] if isinstance(value, tuple) and name.isdigit() else getattr(value, name)

    return reduce(step, dotted.split("."), settings)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "error" in case])
def test_wrong_settings_are_refused(name: str, tmp_path: Path) -> None:
    """A file that says too much, or says it wrongly, is refused with the file, the table and the key."""
    places = places_in(tmp_path, CASES[name]["files"])
    with pytest.raises(InvalidInput) as caught:
        load(places, whose(CASES[name]))
    assert [part for part in CASES[name]["error"] if part not in caught.value.message] == []
    assert any(place in caught.value.message for place in places[:3])


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if "holds" in case])
def test_settings_are_read(name: str, tmp_path: Path) -> None:
    """The settings in force have the values the case names."""
    settings = load(places_in(tmp_path, CASES[name]["files"]), whose(CASES[name]))
    assert {key: repr(value_of(settings, key)) for key in CASES[name]["holds"]} == {
        key: str(value) for key, value in CASES[name]["holds"].items()
    }


def test_the_policy_is_passed_on_layer_by_layer(tmp_path: Path) -> None:
    """Each file with a [policy] table gives one layer, as decoded; a file without one gives none."""
    settings = load(places_in(tmp_path, {"managed": "[policy]", "user": "", "project": "[policy]\npeople = 3"}))
    assert [(source.layer, dict(source.values)) for source in settings.policy] == [
        ("managed", {}),
        ("project", {"people": 3}),
    ]


def test_settings_say_where_each_value_comes_from(tmp_path: Path) -> None:
    """Every key that some file states is listed with its file."""
    places = places_in(tmp_path, {"user": "[run]\nparallel = 2", "project": "[hints]\nagent = ['Use tabs']"})
    origins = [(origin.key, origin.layer, origin.file) for origin in load(places).origins]
    assert origins == [("run.parallel", "user", places.user), ("hints.agent", "project", places.project)]


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o646])
@pytest.mark.parametrize("layer", ["managed", "user"])
def test_a_trusted_file_that_others_may_write_is_refused(layer: str, mode: int, tmp_path: Path) -> None:
    """The user's and the managed file are refused while somebody else may write them."""
    places = places_in(tmp_path, {layer: ""})
    (tmp_path / layer / "x.toml").chmod(mode)
    with pytest.raises(InvalidInput, match="can be written by others"):
        load(places)


def test_a_trusted_file_in_a_directory_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Whoever may write the directory may replace the file; a link does not lead around that."""
    places = places_in(tmp_path, {"user": ""})
    (tmp_path / "user").chmod(0o777)
    with pytest.raises(InvalidInput, match="can be written by others"):
        load(places)
    (tmp_path / "managed" / "x.toml").symlink_to(tmp_path / "user" / "x.toml")
    with pytest.raises(InvalidInput, match="can be written by others"):
        load(places._replace(user=""))


@pytest.mark.root
def test_a_trusted_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    """A user's file that belongs to another user is refused."""
    places = places_in(tmp_path, {"user": ""})
    os.chown(places.user, 12345, 12345)
    with pytest.raises(InvalidInput, match="belongs to another user"):
        load(places)


def test_the_managed_file_must_belong_to_root(tmp_path: Path) -> None:
    """A managed file of an ordinary user is no managed file."""
    places = places_in(tmp_path, {"managed": ""})
    os.chown(places.managed, 12345, -1) if os.geteuid() == 0 else None
    with pytest.raises(InvalidInput, match="belongs to another user"):
        load(places._replace(managed_owner=0))


def test_a_projects_file_may_belong_to_anybody_and_is_never_a_link(tmp_path: Path) -> None:
    """A project's file is untrusted anyway, so its mode does not matter; but it must not read from elsewhere."""
    places = places_in(tmp_path, {"project": "[hints]\nagent = ['a']"})
    (tmp_path / "project" / "x.toml").chmod(0o666)
    assert load(places).hints == ("a",)
    (tmp_path / "project" / "x.toml").rename(tmp_path / "elsewhere")
    (tmp_path / "project" / "x.toml").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput, match="symbolic link"):
        load(places)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A FIFO or a directory in place of a file is refused at once; so is a file without end."""
    places = places_in(tmp_path, {})
    os.mkfifo(places.project)
    with pytest.raises(InvalidInput, match="not a regular file"):
        load(places)
    os.unlink(places.project)
    os.mkdir(places.project)
    with pytest.raises(InvalidInput, match="not a regular file"):
        load(places)
    os.rmdir(places.project)
    with open(places.project, "wb") as file:
        file.truncate(2_000_000)
    with pytest.raises(InvalidInput, match="larger than"):
        load(places)


@pytest.mark.parametrize("data", [b"\xff\xfe", b"a = " + b"[" * 5000 + b"]" * 5000, b"\0"])
def test_bytes_that_are_no_toml_are_refused(data: bytes, tmp_path: Path) -> None:
    """Bytes that are not UTF-8, nested without end, or not TOML at all are refused."""
    places = places_in(tmp_path, {})
    Path(places.project).write_bytes(data)
    with pytest.raises(InvalidInput, match="is not TOML"):
        load(places)


def test_the_places_follow_the_environment(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's file is below XDG_CONFIG_HOME where that is absolute, and below ~/.config otherwise."""
    assert places_of("/w") == Places(MANAGED_FILE, f"{home}/xdg_config_home/holdfast/config.toml", "/w/holdfast.toml")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert places_of("/w").user == f"{home}/.config/holdfast/config.toml"


def test_reading_no_file_costs_no_parser(tmp_path: Path) -> None:
    """Where there is no configuration, the TOML parser is not even imported."""
    program = (
        "import sys; from holdfast.settings import load, Places; load(Places('', '', sys.argv[1])); "
        "print(*{'tomllib', 'difflib', 'asyncio', 'subprocess'} & set(sys.modules))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "none")], capture_output=True, text=True, check=True
    )
    assert ran.stdout.split() == []
