"""Java: Maven or Gradle, offline. The wrapper script is not used: it downloads the tool it runs."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checks.levels import Check
from holdfast.checks.project import Found, Kind, Place

_MAVEN = ("mvn", "--offline", "--batch-mode", "--quiet")
# It takes the user's home from the accounts, not from HOME, and cannot do without one to write in.
_GRADLE = ("gradle", "--gradle-user-home=.gradle/home", "--offline", "--no-daemon", "--console=plain")


def _maven(place: Place) -> Iterator[Found]:
    probe = ("mvn", "--version")
    yield Check("types", place.root, (*_MAVEN, "test-compile"), "there is a pom.xml", "mvn", probe)
    yield Check("tests", place.root, (*_MAVEN, "test"), "there is a pom.xml", "mvn", probe)


def _gradle(place: Place) -> Iterator[Found]:
    probe = ("gradle", "--version")
    why = f"there is a {place.first(*GRADLE.markers)}"
    yield Check("types", place.root, (*_GRADLE, "testClasses"), why, "gradle", probe)
    yield Check("tests", place.root, (*_GRADLE, "test"), why, "gradle", probe)


MAVEN = Kind("Java (Maven)", ("pom.xml",), _maven, (".mvn/maven.config", ".mvn/jvm.config"))
GRADLE = Kind(
    "Java (Gradle)",
    ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"),
    _gradle,
    ("gradle.properties",),
)
