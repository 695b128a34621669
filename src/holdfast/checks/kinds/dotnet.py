""".NET: build, then test, without fetching packages."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checks.levels import Check
from holdfast.checks.project import Found, Kind, Place

_PROBE = ("dotnet", "--version")
_ENV = (("DOTNET_CLI_TELEMETRY_OPTOUT", "1"), ("DOTNET_NOLOGO", "1"), ("DOTNET_SKIP_FIRST_TIME_EXPERIENCE", "1"))


def _checks(place: Place) -> Iterator[Found]:
    why = f"there is a {DOTNET.marker_in(place.names)}"
    yield Check("types", place.root, ("dotnet", "build", "--no-restore"), why, "dotnet", _PROBE, _ENV)
    yield Check("tests", place.root, ("dotnet", "test", "--no-restore"), why, "dotnet", _PROBE, _ENV)


DOTNET = Kind(".NET", ("*.sln", "*.csproj", "*.fsproj", "*.vbproj"), _checks, ("Directory.Build.props", "global.json"))
