"""Test files: what in a tree judges the rest of it, by the conventions of each kind of project. The one list of it.

    is_test_file(path) ....... a test, or what tests read: fixtures, snapshots, data
    is_test_settings(path) ... a file that is there to choose, configure or change tests
    settings_in(path, text) .. what configures tests in a file that is there for more: pyproject.toml, package.json, …
    names_in(path, text) ..... the tests that a file holds, by name; in sources too, where tests stand beside the code
    skips_in(path, text) ..... the lines by which tests in it are left out

Invariants
  I1  Texts are read line by line, each line once: no text makes this slow.
  I2  In doubt a file counts as one of these: it is then looked at once more, and at worst a person is asked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

_MOST_NAME = 200
_LONGEST_LINE = 2_000
_WITH_EXAMPLES = (".py", ".rst", ".md", ".txt")

# Directories that hold tests and what they read, whatever the language.
_DIRECTORIES = r"""(^|/)(
    tests? | specs? | __tests__ | __mocks__ | __snapshots__ | __fixtures__ | fixtures | testdata | e2e
  | src/[A-Za-z]*Test[A-Za-z]* | [^/]+\.(Unit|Integration|Functional)?Tests?
)/"""
_FILES = {
    "Python, Go, Ruby, Rust and most others": r"(test_[^/]*|[^/]+_(test|spec)|tests?)\.[A-Za-z]+",
    "Node": r"[^/]+[.-](test|spec|cy|e2e)\.[cm]?[jt]sx?|test-[^/]+\.[cm]?[jt]s|[^/]+\.snap",
    "Java, Kotlin, Groovy, Scala": r"(Test[^/]*|[^/]*(Test|Tests|TestCase|IT|Spec))\.(java|kt|groovy|scala)",
    "Ruby": r"[^/]+\.feature",
    "PHP": r"[^/]*(Test|Cest|Cept)\.php|[^/]+\.phpt",
    ".NET": r"[^/]*Tests?\.(cs|fs|vb)",
}
_SETTINGS = {
    "Python": r"conftest\.py|\.?pytest\.(ini|toml)|\.coveragerc|sitecustomize\.py|usercustomize\.py|[^/]+\.pth",
    "Node": r"(jest|vitest|karma|ava|playwright|cypress|wdio)\.(config|conf|setup)\.[^/]+|\.mocharc(\.[^/]+)?"
    r"|\.(nyc|c8)rc(\.[^/]+)?|\.taprc",
    "Rust": r"nextest\.toml",
    "Java": r"junit-platform\.properties|testng\.xml",
    "Ruby": r"\.rspec|spec_helper\.rb|rails_helper\.rb|test_helper\.rb|cucumber\.ya?ml",
    "PHP": r"phpunit(\.dist)?\.xml(\.dist)?|codeception\.ya?ml",
    ".NET": r"[^/]+\.runsettings|xunit\.runner\.json",
}
_TEST_FILE = re.compile(rf"{_DIRECTORIES}|(^|/)({'|'.join(_FILES.values())})$", re.VERBOSE)
_TEST_SETTINGS = re.compile(rf"(^|/)({'|'.join(_SETTINGS.values())})$")
# Other people's code, and words about tests: neither judges anything here.
_NONE = re.compile(
    r"(^|/)(node_modules|vendor|third_party|\.venv|venv|site-packages|\.tox|\.nox)/"
    r"|(^|/)(readme|changelog|licen[cs]e|contributing)[^/]*$|(^|/)\.git(ignore|keep|attributes)$",
    re.IGNORECASE,
)


def is_test_file(path: str) -> bool:
    """By its path alone."""
    return _TEST_FILE.search(path) is not None and _NONE.search(path) is None


def is_test_settings(path: str) -> bool:
    """By its path alone; `settings_in` is for files that hold other things too."""
    return _TEST_SETTINGS.search(path) is not None and _NONE.search(path) is None


def concerns_tests(path: str, *, doctests: bool = False) -> bool:
    """Could a change of this file be one of tests or their settings? What it says tells the rest."""
    if is_test_file(path) or is_test_settings(path) or _settings_of(path) is not None:
        return True
    language = _language(path)
    return (language is not None and language.anywhere) or (doctests and path.endswith(_WITH_EXAMPLES))


# ── settings in files that are there for more ──


def settings_in(path: str, text: str) -> str:
    """What of the text configures tests; empty where nothing does, and for files that nothing is known about."""
    find = _settings_of(path)
    return find(text) if find is not None else ""


def _settings_of(path: str) -> Callable[[str], str] | None:
    name = path.rpartition("/")[2]
    find = _SHARED.get(name) or next((find for end, find in _SHARED_ENDINGS.items() if name.endswith(end)), None)
    return None if _NONE.search(path) else find


def _sections(wanted: str, keys: str = r"(?!)") -> Callable[[str], str]:
    """The sections of an INI or TOML text whose names fit, and single keys wherever they stand."""
    is_wanted, is_key = re.compile(wanted), re.compile(keys)

    def find(text: str) -> str:
        found, inside = [], False
        for line in text.splitlines():
            header = line.strip()[:_LONGEST_LINE]
            if header.startswith("["):
                inside = is_wanted.match(header.strip("[] \t\"'")) is not None
            if inside or is_key.match(header):
                found.append(line)
        return "\n".join(line for line in found if line.strip())

    return find


def _keys(*wanted: str, scripts: str = r"(pre|post)?test\b") -> Callable[[str], str]:
    """Of a JSON object: these keys, and the scripts that run tests. What is no object counts as a whole."""
    runs_tests = re.compile(scripts)

    def find(text: str) -> str:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if not isinstance(document, dict):
            return text
        found = {key: document[key] for key in wanted if key in document}
        named = document.get("scripts")
        if isinstance(named, dict):
            found["scripts"] = {key: value for key, value in named.items() if runs_tests.match(key)}
        return json.dumps(found, sort_keys=True) if any(found.values()) else ""

    return find


def _whole_if(form: str) -> Callable[[str], str]:
    """All of it, where it speaks of tests at all: what of a build file concerns them, only its program knows."""
    speaks = re.compile(form)
    return lambda text: text if any(speaks.search(line[:_LONGEST_LINE]) for line in text.splitlines()) else ""


def _targets(text: str) -> str:
    """Of a Makefile: the recipes by which tests are run."""
    found, inside = [], False
    for line in text.splitlines():
        if line[:1] not in ("\t", " ", "#", ""):
            inside = re.match(r"(tests?|check)\b[^=]*:(?!=)|[A-Za-z_]*(PY)?TEST[A-Za-z_]*\s*[:?+]?=", line) is not None
        if inside:
            found.append(line)
    return "\n".join(found)


_GRADLE = _whole_if(r"\btest\b|Test\b|JUnit")
_SHARED: dict[str, Callable[[str], str]] = {
    "pyproject.toml": _sections(r"tool\.(pytest|coverage|tox|nox)\b", r"tool\.(pytest|coverage)\."),
    "setup.cfg": _sections(r"tool:pytest|coverage:|aliases"),
    "tox.ini": _sections(r"pytest|testenv|coverage:"),
    "package.json": _keys("jest", "mocha", "ava", "nyc", "c8", "vitest", "tap"),
    "composer.json": _keys("autoload-dev"),
    "Cargo.toml": _sections(r"test\b|profile\.test\b", r"(auto)?tests?\s*=|doctest\s*=|harness\s*="),
    "pom.xml": _whole_if(r"surefire|failsafe|skipTests|skipITs|maven\.test|testFailureIgnore"),
    "build.gradle": _GRADLE,
    "build.gradle.kts": _GRADLE,
    "Makefile": _targets,
    "makefile": _targets,
    "GNUmakefile": _targets,
    "Rakefile": _whole_if(r"test|spec"),
}
_SHARED_ENDINGS = {
    ".csproj": _whole_if(r"Test"),
    ".fsproj": _whole_if(r"Test"),
    ".vbproj": _whole_if(r"Test"),
}


# ── tests by their names ──


class _Language(NamedTuple):
    """`named` holds a test's name in one line; `marked` announces one whose name, by `after`, stands there or below."""

    named: str = r"(?!)"
    marked: str = r"(?!)"
    after: str = r"(?!)"
    skips: str = r"(?!)"
    # Tests are marked as such, and so are tests wherever they stand.
    anywhere: bool = False


_NODE = _Language(
    named=rf"\b(?:it|test|specify)(?:\.\w+)?\s*\(\s*['\"`](?P<name>[^'\"`]{{1,{_MOST_NAME}}})",
    skips=r"\b(?:it|test|describe|suite|context|specify)\.(?:skip|todo|only|failing|fixme)\b"
    r"|\b(?:xit|xdescribe|xtest|xcontext|fit|fdescribe)\s*\(|\bskip\s*:\s*(?!false)",
)
_JVM = _Language(
    named=r"\bvoid\s+(?P<name>test\w*)\s*\(",
    marked=r"@(?:\w+\.)*(?:Test|ParameterizedTest|RepeatedTest|TestFactory|TestTemplate|Property)\b",
    after=r"\b(?:void|fun|def)\s+[`'\"]?(?P<name>\w[\w ]{0,199})",
    skips=r"@(?:Disabled|Ignore|EnabledIf|DisabledIf|DisabledOn|EnabledOn)|\bassum(?:e|ing)\w*\s*\(|enabled\s*=\s*false",
    anywhere=True,
)
_DOTNET = _Language(
    marked=r"[\[,<]\s*(?:Fact|Theory|Test|TestCase|TestMethod|DataTestMethod|Property)\b",
    after=r"\b(?:void|Task(?:<[^>]{0,99}>)?|ValueTask|let|Sub|Function)\s+(?P<name>[\w`][\w` ]{0,199})",
    skips=r"\bSkip\s*=|[\[<]\s*(?:Ignore|Explicit)\b|Assert\.(?:Ignore|Inconclusive)",
    anywhere=True,
)
_LANGUAGES: dict[tuple[str, ...], _Language] = {
    (".py",): _Language(
        named=r"^\s*(?:async\s+)?def\s+(?P<name>test\w*)\s*\(",
        skips=r"\bmark\.(?:skip|skipif|xfail)\b|\bunittest\.(?:skip|expectedFailure)|\.skipTest\(|\bSkipTest\b"
        r"|\bpytest\.(?:skip|importorskip|xfail)\(|__test__\s*=\s*False|\bcollect_ignore",
    ),
    (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx"): _NODE,
    (".go",): _Language(
        named=r"^func\s+(?P<name>(?:Test|Benchmark|Fuzz|Example)\w*)\s*\(",
        skips=r"\.Skip(?:Now|f)?\(|^//go:build\s+ignore",
    ),
    (".rs",): _Language(
        marked=r"#\[(?:\w+::)*(?:test|rstest|test_case|quickcheck|wasm_bindgen_test)\b",
        after=r"\bfn\s+(?P<name>\w+)",
        skips=r"#\[(?:cfg_attr\([^)]*,\s*)?ignore\b",
        anywhere=True,
    ),
    (".java", ".kt", ".groovy", ".scala"): _JVM,
    (".rb",): _Language(
        named=r"^\s*(?:it|specify|scenario|example|test)\s*\(?\s*['\"](?P<name>[^'\"]{1,200})|def\s+(?P<other>test_\w+)",
        skips=r"\b(?:xit|xdescribe|xcontext|xspecify|pending|skip)\b",
    ),
    (".php", ".phpt"): _Language(
        named=r"function\s+(?P<name>test\w*)\s*\(|\b(?:it|test)\s*\(\s*['\"](?P<other>[^'\"]{1,200})",
        marked=r"#\[Test\b|@test\b",
        after=r"function\s+(?P<name>\w+)\s*\(",
        skips=r"markTest(?:Skipped|Incomplete)|->(?:skip|todo)\(",
    ),
    (".cs", ".fs", ".vb"): _DOTNET,
}


class _Compiled(NamedTuple):
    named: re.Pattern[str]
    marked: re.Pattern[str]
    after: re.Pattern[str]
    skips: re.Pattern[str]
    anywhere: bool


def _compiled(language: _Language) -> _Compiled:
    named, marked, after, skips = map(re.compile, language[:4])
    return _Compiled(named, marked, after, skips, language.anywhere)


_BY_SUFFIX = {suffix: _compiled(language) for suffixes, language in _LANGUAGES.items() for suffix in suffixes}


def names_in(path: str, text: str, *, doctests: bool = False) -> Counter[str]:
    """The tests in a text, by name, each as often as it is there. `doctests`: examples in Python texts are run."""
    language = _language(path)
    found: Counter[str] = Counter()
    if language is not None and (language.anywhere or is_test_file(path)):
        found.update(_named(language, text))
    if path.endswith(".rs"):
        found.update(_rust_examples(text))
    elif doctests and path.endswith(_WITH_EXAMPLES):
        found.update(_python_examples(text))
    return found


def skips_in(path: str, text: str) -> Counter[str]:
    """The lines that leave tests out, without what is around them."""
    language = _language(path)
    if language is None or not (language.anywhere or is_test_file(path) or is_test_settings(path)):
        return Counter()
    return Counter(line.strip() for line in _lines(text) if language.skips.search(line))


def _language(path: str) -> _Compiled | None:
    return None if _NONE.search(path) else _BY_SUFFIX.get(path[path.rfind(".") :])


def _lines(text: str) -> Iterator[str]:
    return (line[:_LONGEST_LINE] for line in text.splitlines())


def _named(language: _Compiled, text: str) -> Iterator[str]:
    marked = False
    for line in _lines(text):
        mark = language.marked.search(line)
        rest = line[mark.end() :] if mark is not None else line
        marked = marked or mark is not None
        found = (language.after.search(rest) if marked else None) or language.named.search(line)
        if found is not None:
            yield next(name for name in found.groups() if name)
            marked = False


def _rust_examples(text: str) -> Iterator[str]:
    """Code in documentation, which `cargo test` runs."""
    inside = False
    for line in _lines(text):
        words = line.strip()
        if not words.startswith(("///", "//!")):
            inside = False
        elif words[3:].strip().startswith("```"):
            if not inside and not re.search(r"\b(?:text|ignore|no_run|toml|sh|bash|json)\b", words):
                yield "doctest"
            inside = not inside


def _python_examples(text: str) -> Iterator[str]:
    owner = "the module"
    for line in _lines(text):
        if found := re.match(r"\s*(?:async\s+)?(?:def|class)\s+(\w+)", line):
            owner = found[1]
        if line.lstrip().startswith(">>> "):
            yield f"doctest of {owner}"
