"""What judges the rest of a tree, by the conventions of each kind of project."""

from __future__ import annotations

import json
import time
from collections import Counter

import pytest

from holdfast.model.testfiles import is_test_file, is_test_settings, names_in, settings_in, skips_in

TESTS = """tests/test_a.py test_a.py a_test.py pkg/tests/data/x.json src/a.test.ts src/__tests__/a.js a.spec.jsx
    src/__snapshots__/a.snap pkg/a_test.go pkg/testdata/x tests/it.rs src/test/java/a/ATest.java src/AIT.java
    src/integrationTest/kotlin/A.kt spec/a_spec.rb test/a_test.rb features/a.feature tests/ATest.php A.Tests/B.cs
    src/ATests.cs fixtures/a.json Tests/Unit/a.php run_tests.sh tests-runner.js pkg/test""".split()
SETTINGS = """conftest.py pkg/conftest.py pytest.ini .coveragerc sitecustomize.py jest.config.js vitest.config.ts
    .mocharc.json .nycrc .config/nextest.toml .rspec spec/spec_helper.rb phpunit.xml phpunit.xml.dist a.runsettings
    xunit.runner.json pytest.py sub/unittest/__init__.py .npmrc vitest.workspace.ts src/setupTests.js
    .cargo/config.toml""".split()
NEITHER = """src/insurance/coverage.py pytest/notes.txt
    src/app.py src/contest.py latest.py testing/fakes.py attest.go src/lib.rs README.md tests/README.md
    node_modules/a/test/b.js .venv/lib/site-packages/a/tests/test_a.py docs/testing.md tests/.gitignore""".split()
# path, text, the tests in it, the lines that skip some
SOURCES = [
    ("tests/test_a.py",
     "def test_a(): pass\nclass T:\n  async def test_b(self): pass\ndef helper(): pass\n", "test_a test_b", 0),
    ("tests/test_a.py", "@pytest.mark.skip\ndef test_a():\n    pytest.skip('x')\n", "test_a", 2),
    ("a.test.js", "it('adds', f);\ntest.skip(\"later\", f)\nxit(`never`, f)\n", "adds later", 2),
    ("a_test.go",
     "func TestA(t *testing.T) {\n\tt.Skip()\n}\nfunc helper() {}\nfunc FuzzB(f *testing.F) {\n", "FuzzB TestA", 1),
    ("src/lib.rs", "#[test]\nfn a() {}\n#[tokio::test]\n#[ignore]\nasync fn b() {}\nfn c() {}\n", "a b", 1),
    ("src/lib.rs", "// #[test]\n// fn a() {}\n/* #[test]\nfn b() {} */ #[test] fn c() {}\n", "c", 0),
    ("src/lib.rs", "#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n", "a mod:tests", 0),
    ("src/lib.rs", "#[cfg(any())]\nmod tests {\n    #[test]\n    fn a() {}\n}\n", "a", 1),
    ("src/ATest.java", "/* never closed\n@Test void a() {}\n// @Test void b() {}\n", "a", 0),
    ("a.test.ts", "it('//', f) // it('no', f)\nit('/*', f)\n", "/* //", 0),
    ("src/lib.rs", "/// ```\n/// one();\n/// ```\n/// ```text\n/// x\n/// ```\nfn one() {}\n", "doctest", 0),
    ("src/test/java/ATest.java",
     "@Test\n@Disabled\nvoid adds() {}\n@ParameterizedTest void more(int i) {}\n", "adds more", 1),
    ("spec/a_spec.rb", "it 'adds' do\nend\nxit 'never' do\nend\ndef test_b\nend\n", "adds test_b", 1),
    ("tests/ATest.php",
     "public function testA() {}\n#[Test]\npublic function b() { $this->markTestSkipped(); }\n", "b testA", 1),
    ("A.Tests/B.cs",
     "[Fact]\npublic void Adds() {}\n[Theory(Skip=S)]\n[InlineData(1)]\npublic void More(int i) {}\n", "Adds More", 1),
]  # fmt: skip
SHARED = [
    ("pyproject.toml", "[project]\nname = 'a'\n", "[tool.pytest.ini_options]\naddopts = '-k x'\n"),
    ("setup.cfg", "[metadata]\nname = a\n", "[tool:pytest]\naddopts = -k x\n"),
    ("tox.ini", "[other]\na = 1\n", "[testenv]\ncommands = true\n"),
    ("package.json", '{"name": "a"}', '{"scripts": {"test": "true"}}'),
    ("package.json", '{"scripts": {"docs": "x"}}', '{"scripts": {"test": "npm run unit", "unit": "true"}}'),
    ("package.json", '{"scripts": {"build": "x"}}', '{"jest": {"testMatch": []}}'),
    ("pyproject.toml", "[tool.other]\na = '[tool.pytest]'\n", "[tool]\n'pytest'.ini_options.addopts = '-k x'\n"),
    ("pyproject.toml", "[tool.pytester]\na = 1\n", "[ tool . \"pytest\" . ini_options ]\naddopts = '-k x'\n"),
    ("pyproject.toml", "tool = {ruff = {}}\n", "tool = {pytest = {ini_options = {addopts = '-k x'}}}\n"),
    ("Cargo.toml", "lib = {name = 'a'}\n", "lib = {test = false}\n"),
    ("Cargo.toml", "[workspace]\nresolver = '2'\n", "[workspace]\nmembers = ['a']\n"),
    ("vite.config.ts", "export default {}\n", "export default { test: {} }\n"),
    ("Cargo.toml", "[package]\nname = 'a'\n", "[lib]\ntest = false\n"),
    ("Makefile", "all:\n\tcc a.c\n", "test:\n\ttrue\n"),
    ("pom.xml", "<project></project>", "<project><skipTests>true</skipTests></project>"),
    ("build.gradle", "apply plugin: 'java'\n", "test { enabled = false }\n"),
    ("composer.json", '{"name": "a/b"}', '{"scripts": {"test": "true"}}'),
    ("A/A.csproj", "<Project></Project>", "<Project><IsTestProject>false</IsTestProject></Project>"),
]


def test_tests_and_their_settings_are_known_by_their_paths() -> None:
    """Every convention has its example, and what only looks like one is none."""
    assert [path for path in TESTS if not is_test_file(path)] == []
    assert [path for path in SETTINGS if not is_test_settings(path)] == []
    assert [path for path in NEITHER if is_test_file(path) or is_test_settings(path)] == []


@pytest.mark.parametrize(("path", "text", "names", "skips"), SOURCES)
def test_the_tests_of_a_text_are_found_by_name(path: str, text: str, names: str, skips: int) -> None:
    """Each language by its own marks, and so are the lines that leave tests out."""
    assert sorted(name.replace("mod ", "mod:") for name in names_in(path, text).elements()) == names.split()
    assert skips_in(path, text).total() == skips


@pytest.mark.parametrize(("path", "other", "tests"), SHARED)
def test_settings_of_tests_are_found_in_files_that_hold_more(path: str, other: str, tests: str) -> None:
    """A change elsewhere in such a file is none of its test settings."""
    assert settings_in(path, other) == ""
    assert settings_in(path, tests) != ""


@pytest.mark.parametrize(
    ("path", "base", "other", "tests"),
    [
        ("Makefile", "test: unit\nunit:\n\tpytest $(ARGS)\nARGS = -q\ndocs:\n\tmkdocs\n.PHONY: test docs\n",
         ("mkdocs", "sphinx"), [("pytest", "true"), ("-q", "-k x"), ("test: unit", "test:"), (": test docs", ": docs"),
                                ("test:", "SHELL = /bin/true\ntest:"), ("test:", "include a.mk\ntest:")]),
        ("package.json", '{"scripts": {"test": "run-p u:a", "u:a": "x", "preu:a": "y", "docs": "z"}}',
         ("z", "zz"), [('"x"', '"true"'), ('"y"', '"exit 0"'), ("u:a\",", 'u:*",')]),
    ],
)  # fmt: skip
def test_what_a_test_run_leads_to_is_one_of_its_settings(
    path: str, base: str, other: tuple[str, str], tests: list[tuple[str, str]]
) -> None:
    """Whatever a recipe or script for tests calls belongs to it, and what others call does not."""
    assert settings_in(path, base.replace(*other)) == settings_in(path, base)
    assert [change for change in tests if settings_in(path, base.replace(*change)) == settings_in(path, base)] == []


@pytest.mark.parametrize(
    ("path", "test"),
    [("src/lib.rs", "#[test]\nfn one() {}"), ("ATest.kt", "@Test fun one() {}")],
)
def test_comments_in_comments_hide_tests(path: str, test: str) -> None:
    """Where comments nest, a test is out only once all are closed; what does not come out even is read as before."""
    inside = f"/* /* */\n{test}\n*/\n"
    assert names_in(path, inside) == Counter()
    assert names_in(path, f"{inside}{test}\n") == names_in(path, f"{test}\n")
    assert names_in(path, f"/* src/* */\n{test}\n") == names_in(path, f"{test}\n")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Makefile", "a:b\n" * 200_000),
        ("Makefile", "".join(f"t{n}: t{n + 1}\n" for n in range(20_000)) + "test: t0\n"),
        ("Makefile", "export " * 150_000),
        ("Makefile", " ".join(f"t{n}" for n in range(20_000)) + ": x\n\techo\ntest: t1\n"),
        ("package.json", json.dumps({"scripts": {"test": "*", **{f"a{n}": "*" for n in range(20_000)}}})),
        ("pyproject.toml", "a = " + "[" * 500_000),
        ("pyproject.toml", "tool.pytest" + ".a" * 400_000 + " = 1"),
        ("Cargo.toml", ("[test" + ".a" * 199 + "]\n") * 1_000),
        ("src/lib.rs", "/*" * 400_000),
        ("src/lib.rs", "/* " * 300_000),
        ("a.test.js", "'\\" * 400_000),
        ("a.test.js", "*//*" * 200_000),
    ],
)
def test_no_settings_and_no_comments_make_it_slow(path: str, text: str) -> None:
    """Reading is linear in the text, and so is following what leads to what."""
    began = time.process_time()
    settings_in(path, text)
    names_in(path, text)
    assert time.process_time() - began < 3


@pytest.mark.parametrize("path", ["src/lib.rs", "a.test.js", "tests/test_a.py", "src/A.java", "A.cs", "spec/a_spec.rb"])
@pytest.mark.parametrize("text", ["#[test] " * 100_000, "#[test]\n" * 100_000, "@Test(" * 100_000, "it('" * 200_000])
def test_no_text_makes_it_slow(path: str, text: str) -> None:
    """A megabyte of whatever marks tests is read in time that is linear in it."""
    began = time.process_time()
    names_in(path, text)
    skips_in(path, text)
    assert time.process_time() - began < 10
