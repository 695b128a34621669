"""Small projects of several kinds, each right as it stands, and whether this machine has the tools for them."""

from __future__ import annotations

import os
import pwd
import re
import shutil
from pathlib import Path

import pytest

from holdfast.environment.found import Shell
from holdfast.environment.tools import tools_of
from holdfast.sandbox.process import Command, run

REAL_HOME = pwd.getpwuid(os.getuid()).pw_dir

PYTHON = {
    "pyproject.toml": "[tool.pytest.ini_options]\n[tool.mypy]\nfiles = ['app']\n[tool.ruff]\n",
    "app/__init__.py": "",
    "app/core.py": "def double(x: int) -> int:\n    return 2 * x\n",
    "tests/test_core.py": "from app.core import double\n\n\ndef test_double() -> None:\n    assert double(2) == 4\n",
}
NODE = {
    "package.json": '{"name": "x", "scripts": {"test": "node check.js"}}',
    "lib.js": "module.exports = { double: (x) => 2 * x };\n",
    "check.js": "const { double } = require('./lib');\nif (double(2) !== 4) process.exit(1);\n",
}
RUST = {
    "Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn double(x: i32) -> i32 { 2 * x }\n#[test]\nfn doubles() { assert_eq!(double(2), 4); }\n",
}
GO = {
    "go.mod": "module x\n\ngo 1.19\n",
    "double.go": "package x\n\nfunc Double(x int) int { return 2 * x }\n",
    "double_test.go": (
        'package x\n\nimport "testing"\n\nfunc TestDouble(t *testing.T) {\n'
        '\tif Double(2) != 4 {\n\t\tt.Fatal("wrong")\n\t}\n}\n'
    ),
}
RUBY = {
    "Rakefile": "task :default\n",
    "lib/twice.rb": "def twice(x) = 2 * x\n",
    "spec/twice_spec.rb": (
        'require_relative "../lib/twice"\nRSpec.describe("twice") { it("doubles") { expect(twice(2)).to eq(4) } }\n'
    ),
}
GRADLE = {
    "build.gradle": "apply plugin: 'java'\n",
    "src/main/java/Sum.java": "class Sum { static int of(int a, int b) { return a + b; } }\n",
}
MAKE = {"Makefile": "test:\n\t@test $$(cat sum.txt) = 4\n", "sum.txt": "4\n"}
# Versions that agree with each other; where the user's repository holds others, the test says so.
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>x</groupId><artifactId>x</artifactId><version>1</version>
  <properties>
    <maven.compiler.source>17</maven.compiler.source>
    <maven.compiler.target>17</maven.compiler.target>
    <project.build.sourceEncoding>UTF-8</project.build.sourceEncoding>
  </properties>
  <dependencies>
    <dependency>
      <groupId>org.junit.jupiter</groupId><artifactId>junit-jupiter</artifactId>
      <version>5.10.2</version><scope>test</scope>
    </dependency>
  </dependencies>
  <build><plugins>
    <plugin><artifactId>maven-resources-plugin</artifactId><version>3.3.1</version></plugin>
    <plugin><artifactId>maven-compiler-plugin</artifactId><version>3.13.0</version></plugin>
    <plugin><artifactId>maven-surefire-plugin</artifactId><version>3.2.5</version></plugin>
  </plugins></build>
</project>
"""
MAVEN = {
    "pom.xml": POM,
    "src/main/java/Sum.java": "class Sum { static int of(int a, int b) { return a + b; } }\n",
    "src/test/java/SumTest.java": (
        "import static org.junit.jupiter.api.Assertions.assertEquals;\nimport org.junit.jupiter.api.Test;\n"
        "class SumTest { @Test void adds() { assertEquals(4, Sum.of(2, 2)); } }\n"
    ),
}


def need(tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")


def need_maven(tmp_path: Path) -> None:
    """One that heeds what checks are told, and builds the right project offline out of the user's own repository."""
    need("mvn")
    env = {name: os.environ[name] for name in ("PATH", "HOME")}
    version = run(Command(("mvn", "--version"), str(tmp_path), env, 60_000)).output.decode(errors="replace")
    told = dict(tools_of(Shell(os.environ, REAL_HOME), "/nonexistent", ()).variables)
    if re.search(r"Apache Maven 3\.[0-8]\.", version) and "MAVEN_OPTS" not in told:
        pytest.skip("a Maven before 3.9 does not read MAVEN_ARGS, in which checks are told where the packages are")
    for name, text in MAVEN.items():
        (tmp_path / "tried" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tried" / name).write_text(text)
    argv = ("mvn", "--offline", "--batch-mode", f"-Dmaven.repo.local={REAL_HOME}/.m2/repository", "test")
    tried = run(Command(argv, str(tmp_path / "tried"), env, 120_000))
    if tried.exit_code != 0:
        lines = [line for line in tried.output.decode(errors="replace").splitlines() if "ERROR" in line]
        pytest.skip(f"mvn cannot build offline here: {lines[0][:300] if lines else 'it says nothing'}")
