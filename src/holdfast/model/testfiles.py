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
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import NamedTuple

_MOST_NAME = 200
_LONGEST_LINE = 2_000
# In a line of TOML: the time to read `a.a.a = 1` grows with the square of its dots.
_MOST_DOTS = 200
# What a script or a recipe may name of the others.
_WORD_OF_A_SCRIPT = re.compile(r"[\w.:/@-]+")
_WORD_OF_A_RECIPE = re.compile(r"[\w./@-]+")
_DEFINED = re.compile(r"(?:(?:export|unexport|override|private)\s+)*([\w.-]+)\s*(?::{1,3}|[?+!])?=")
_RULE = re.compile(r"([^\s:=#][^:=#]*):")
_RUNS_TESTS = re.compile(r"(tests?|check)\b")
_FOR_ALL = re.compile(r"^\.|[%$]|^(?:SHELL|VPATH|GPATH|MAKE[A-Z]*|GNUMAKEFLAGS|define)$")
# Keys of a target in a Cargo.toml.
_IS_TESTED = ("test", "doctest", "harness")
_WITH_EXAMPLES = (".py", ".rst", ".md", ".txt")

# Directories that hold tests and what they read, whatever the language.
_DIRECTORIES = r"""(^|/)(
    (?i:tests? | specs? | testdata | fixtures) | __tests__ | __mocks__ | __snapshots__ | __fixtures__ | e2e
  | src/[A-Za-z]*Test[A-Za-z]* | [^/]+\.(Unit|Integration|Functional)?Tests?
)/"""
_FILES = {
    "Python, Go, Ruby, Rust and most others": r"(test_[^/]*|[^/]+_(test|spec)|tests?)\.[A-Za-z]+",
    "what a recipe calls": r"(run|check)[-_]?tests?(\.[A-Za-z]+)?|tests?[-_]?runner\.[A-Za-z]+",
    "make, where a target is up to date once there is a file of its name": r"tests?|check",
    "Node": r"[^/]+[.-](test|spec|cy|e2e)\.[cm]?[jt]sx?|test-[^/]+\.[cm]?[jt]s|[^/]+\.snap",
    "Java, Kotlin, Groovy, Scala": r"(Test[^/]*|[^/]*(Test|Tests|TestCase|IT|Spec))\.(java|kt|groovy|scala)",
    "Ruby": r"[^/]+\.feature",
    "PHP": r"[^/]*(Test|Cest|Cept)\.php|[^/]+\.phpt",
    ".NET": r"[^/]*Tests?\.(cs|fs|vb)",
}
_SETTINGS = {
    # A module of that name beside the code is found before the one that is installed.
    "Python": r"conftest\.py|\.?pytest\.(ini|toml)|\.coveragerc|sitecustomize\.py|usercustomize\.py|[^/]+\.pth"
    r"|(_?pytest|unittest|doctest|pluggy|iniconfig)(\.py|/([^/]+/)*[^/]+\.py)",
    "Node": r"(jest|vitest|karma|ava|playwright|cypress|wdio)\.(config|conf|setup|workspace)\.[^/]+|\.mocharc(\.[^/]+)?"
    r"|\.(nyc|c8)rc(\.[^/]+)?|\.taprc|\.npmrc|cypress\.json|jasmine\.json|bunfig\.toml|setupTests\.[jt]sx?"
    r"|(jest|vitest|test)[.-]setup\.[cm]?[jt]s|setup[.-](jest|vitest|tests?)\.[cm]?[jt]s",
    "Rust": r"nextest\.toml|\.cargo/config(\.toml)?",
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


def _sections(wanted: str) -> Callable[[str], str]:
    """The sections of an INI text whose names fit."""
    is_wanted = re.compile(wanted)

    def find(text: str) -> str:
        found, inside = [], False
        for line in text.splitlines():
            header = line.strip()[:_LONGEST_LINE]
            if header.startswith("["):
                inside = is_wanted.match(header.strip("[] \t")) is not None
            if inside:
                found.append(line)
        return "\n".join(line for line in found if line.strip())

    return find


def _tables(choose: Callable[[dict[str, object]], dict[str, object]]) -> Callable[[str], str]:
    """What is chosen of a TOML document, however its keys are spelled. What cannot be read counts as a whole."""

    def find(text: str) -> str:
        import tomllib  # seldom needed, and not at the start of a command

        if any(line.count(".") > _MOST_DOTS for line in text.split("\n")):
            return text
        try:
            found = {key: value for key, value in choose(tomllib.loads(text)).items() if value}
            return json.dumps(found, sort_keys=True, default=str) if found else ""
        except (ValueError, RecursionError):
            return text

    return find


def _of_python(document: dict[str, object]) -> dict[str, object]:
    tools = _table(document, "tool")
    return {name: tools.get(name) for name in ("pytest", "coverage", "tox", "nox")}


def _of_cargo(document: dict[str, object]) -> dict[str, object]:
    """Targets that are tests, what says of another that it is not tested, and which packages there are."""
    found: dict[str, object] = {"test": document.get("test"), "profile": _table(document, "profile").get("test")}
    found["autotests"] = _chosen(_table(document, "package"), "autotests")
    found["lib"] = _chosen(_table(document, "lib"), *_IS_TESTED)
    for kind in ("bin", "example"):
        targets = document.get(kind)
        listed = [target for target in targets if isinstance(target, dict)] if isinstance(targets, list) else []
        found[kind] = [chosen for target in listed if (chosen := _chosen(target, *_IS_TESTED))]
    found["workspace"] = _chosen(_table(document, "workspace"), "members", "default-members", "exclude")
    return found


def _table(document: dict[str, object], name: str) -> dict[str, object]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _chosen(table: dict[str, object], *names: str) -> dict[str, object]:
    return {name: table[name] for name in names if name in table}


def _keys(*wanted: str) -> Callable[[str], str]:
    """Of a JSON object: these keys, and the scripts that run tests. What is no object counts as a whole."""

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
            found["scripts"] = _scripts_of_tests({name: str(script) for name, script in named.items()})
        return json.dumps(found, sort_keys=True) if any(found.values()) else ""

    return find


def _scripts_of_tests(scripts: dict[str, str]) -> dict[str, str]:
    """Those that run tests, and all that these lead to; `run-s unit:*` may lead to any."""
    first = [name for name in scripts if re.match(r"(pre|post)?test\b", name)]

    def led(name: str) -> Iterable[str]:
        words = _WORD_OF_A_SCRIPT.findall(scripts[name])
        return [stage + word for word in words for stage in ("", "pre", "post")]

    reached = _reached(first, scripts, led)
    if any("*" in scripts[name] for name in reached):
        return scripts
    return {name: scripts[name] for name in reached}


def _reached(first: Iterable[str], known: Collection[str], led: Callable[[str], Iterable[str]]) -> list[str]:
    """All that is known and can be come to from the first, each once."""
    found, rest = dict.fromkeys(first), list(first)
    while rest:
        for name in led(rest.pop()):
            if name in known and name not in found:
                found[name] = None
                rest.append(name)
    return list(found)


def _whole_if(form: str) -> Callable[[str], str]:
    """All of it, where it speaks of tests at all: what of a build file concerns them, only its program knows."""
    speaks = re.compile(form)
    return lambda text: text if any(speaks.search(line[:_LONGEST_LINE]) for line in text.splitlines()) else ""


def _targets(text: str) -> str:
    """Of a Makefile: the recipes by which tests are run, with all targets and variables that these lead to.

    What holds for all recipes counts wherever tests are run: which shell runs them, rules by pattern, conditions.
    """
    blocks: dict[str, list[list[str]]] = {}
    everywhere: list[str] = []
    phony: list[str] = []
    block = everywhere
    for line in text.replace("\\\n", " ").splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.startswith("\t"):
            block.append(line)
            continue
        if line.startswith(".PHONY"):
            phony += _WORD_OF_A_RECIPE.findall(line)
            continue
        defined, rule = _DEFINED.match(line), _RULE.match(line)
        names = [defined[1]] if defined is not None else rule[1].split() if rule is not None else []
        if not names or any(_FOR_ALL.search(name) for name in names):
            everywhere.append(line)
            block = everywhere
            continue
        block = [line]
        for name in names:
            blocks.setdefault(name, []).append(block)
    first = [name for name in blocks if _RUNS_TESTS.match(name)]
    if not first:
        return ""
    read: dict[int, list[str]] = {}  # one rule may stand under many names, and is read and told once

    def led(name: str) -> Iterable[str]:
        for block in blocks[name]:
            if id(block) not in read:
                read[id(block)] = block
                yield from _WORD_OF_A_RECIPE.findall("\n".join(block))

    shared = [name for line in everywhere for name in _WORD_OF_A_RECIPE.findall(line) if name in blocks]
    reached = _reached(dict.fromkeys([*first, *shared]), blocks, led)
    everywhere += sorted({*phony} & {*reached})
    return "\n".join([*everywhere, *(line for block in read.values() for line in block)])


_GRADLE = _whole_if(r"\btest\b|Test\b|JUnit")
_SHARED: dict[str, Callable[[str], str]] = {
    "pyproject.toml": _tables(_of_python),
    "setup.cfg": _sections(r"tool:pytest|coverage:|aliases"),
    "tox.ini": _sections(r"pytest|testenv|coverage:"),
    "package.json": _keys("jest", "mocha", "ava", "nyc", "c8", "vitest", "tap", "jasmine", "cypress", "workspaces"),
    "composer.json": _keys("autoload-dev"),
    "Cargo.toml": _tables(_of_cargo),
    "pom.xml": _whole_if(r"surefire|failsafe|skipTests|skipITs|maven\.test|testFailureIgnore"),
    "build.gradle": _GRADLE,
    "build.gradle.kts": _GRADLE,
    "Makefile": _targets,
    "makefile": _targets,
    "GNUmakefile": _targets,
    "Rakefile": _whole_if(r"test|spec"),
    **{f"vite.config.{end}": _whole_if(r"\btest\b") for end in ("js", "mjs", "cjs", "ts", "mts", "cts")},
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
        skips=r"#\[(?:cfg_attr\([^)]*,\s*)?ignore\b|#!?\[cfg\(\s*(?:any|not\(\s*all)\(\s*\)",
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


# Languages with `//` and `/* … */`, by the quotes that hold a text of any length in them, besides `"` and "`".
_LIKE_C = {(".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx", ".php", ".phpt", ".groovy"): "'",
           (".rs", ".go", ".java", ".kt", ".scala", ".cs", ".fs"): ""}  # fmt: skip
_COMMENTS = {
    quotes: re.compile(
        "|".join(rf"{quote}(?:[^{quote}\\]|\\.?)*+{quote}?" for quote in ('"', "`", *quotes))
        + r"|'(?:[^'\\]|\\.)'|(?P<line>//)|(?P<block>/\*)"
    )
    for quotes in ("", "'")
}


_BORDER, _END = re.compile(r"/\*|\*/"), re.compile(r"\*/")
_NESTED = (".rs", ".kt", ".scala")


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
        quotes = next((quotes for endings, quotes in _LIKE_C.items() if path.endswith(endings)), None)
        lines = list(_lines(text) if quotes is None else _without_comments(quotes, text, nested=path.endswith(_NESTED)))
        found.update(_named(language, lines))
        if path.endswith(".rs"):
            found.update(_rust_modules(lines))
            found.update(_rust_examples(text))
    if doctests and path.endswith(_WITH_EXAMPLES):
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


def _named(language: _Compiled, lines: Iterable[str]) -> Iterator[str]:
    marked = False
    for line in lines:
        mark = language.marked.search(line)
        rest = line[mark.end() :] if mark is not None else line
        marked = marked or mark is not None
        found = (language.after.search(rest) if marked else None) or language.named.search(line)
        if found is not None:
            yield next(name for name in found.groups() if name)
            marked = False


def _rust_modules(lines: Iterable[str]) -> Iterator[str]:
    """Modules that are there for tests alone. One that is no longer marked so holds its tests, and none is run."""
    marked = False
    for line in lines:
        marked = marked or "#[cfg(test)]" in line
        if marked and (found := re.search(r"\bmod\s+(\w+)", line)):
            yield f"mod {found[1]}"
            marked = False


def _without_comments(quotes: str, text: str, *, nested: bool = False) -> Iterator[str]:
    """The lines of a text in a language of the family of C. A comment that is never closed is none (I2).

    `nested`: comments hold comments. Where that does not come out even, something else was taken for one.
    """
    lines = text.splitlines()
    if nested and not _is_even(quotes, lines):
        nested = False
    yield from (line for line, _ in _outside_comments(quotes, lines, nested=nested))


def _is_even(quotes: str, lines: list[str]) -> bool:
    depths = [depth for _, depth in _outside_comments(quotes, lines, nested=True)]
    return not any(depths[-1:])


def _outside_comments(quotes: str, lines: list[str], *, nested: bool) -> Iterator[tuple[str, int]]:
    """Each line without its comments, and in how many comments it ends."""
    last = max((number for number, line in enumerate(lines) if "*/" in line), default=-1)
    form, border, depth = _COMMENTS[quotes], _BORDER if nested else _END, 0
    for number, line in enumerate(lines):
        kept: list[str] = []
        at, last_end = 0, line.rfind("*/")
        while found := (border if depth else form).search(line, at):
            if depth:
                depth += -1 if found[0] == "*/" else 1
                at = found.end()
                continue
            kept.append(line[at : found.start() if found.lastgroup else found.end()])
            at = found.end()
            if found.lastgroup == "line":
                at = len(line)
            elif found.lastgroup == "block":
                depth = int(at <= last_end or number < last)
        if not depth:
            kept.append(line[at:])
        yield "".join(kept)[:_LONGEST_LINE], depth


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
