"""What the lines of logs mean: one table of rules, from the most telling to the least.

The first rule of the table that fits any line decides. A cause outranks its effect: a test that fails because a module
is missing is a missing module. Every expression is searched in one line of bounded length, without nested repetition.

`{module}` rules capture a name: a module of the workspace is a wrong import, any other a missing dependency.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.model.fix import Category


class Rule(NamedTuple):
    category: Category
    form: re.Pattern[str]


def _rules(category: Category, *forms: str) -> tuple[Rule, ...]:
    return tuple(Rule(category, re.compile(form)) for form in forms)


RULES: tuple[Rule, ...] = (
    *_rules(
        "time-out",
        r"did not end within .{1,40} and was killed",
        r"\bpanic: test timed out after ",
        r"Failed: Timeout [(>]",
        r"\bExceeded timeout of \d+ ms\b|\bexceeded timeout of \d+ ?ms\b",
        r"^\+{3,} Timeout \+{3,}",
        r"\b(?:subprocess\.)?TimeoutExpired: ",
    ),
    # Before "killed by SIGKILL", which is how such a program ends.
    *_rules("limit", r"^\[ended by a limit of the sandbox: it "),
    *_rules(
        "conflict",
        r"^(?:E\s{1,20}|\s{1,20}|\d+ \| ?)?<{7} \S",
        r"^CONFLICT \(",
        r"^Automatic merge failed",
        r"^error: patch failed: ",
        r"error: .{1,200}: patch does not apply",
        r"\bMerge conflict marker encountered\b",
    ),
    *_rules(
        "agent error",
        r"\b(?:rate_limit_error|overloaded_error|authentication_error|invalid_api_key|insufficient_quota)\b",
        r"\bcontext_length_exceeded\b|\bprompt is too long\b",
        r"\bAPI Error: [45]\d\d\b",
    ),
    *_rules(
        "environment",
        r"\bNo space left on device\b|\bENOSPC\b|\bDisk quota exceeded\b",
        r"\bCannot allocate memory\b|\bJavaScript heap out of memory\b|\bjava\.lang\.OutOfMemoryError\b",
        r"^(?:E\s+)?MemoryError\b|\bwas killed by SIGKILL\b|\bsignal: 9, SIGKILL\b",
        r"\bTemporary failure in name resolution\b|\bCould not resolve host\b|\bEAI_AGAIN\b|\bENOTFOUND\b",
        r"\bConnection refused\b|\bECONNREFUSED\b|\bNetwork is unreachable\b",
        r"\bAddress already in use\b|\bEADDRINUSE\b",
        r"\bRead-only file system\b|\bEROFS\b|\bToo many open files\b|\bEMFILE\b",
        r"\bPermission denied\b|\bEACCES\b",
        r"\bUnsupported engine\b|\brequires a different Python\b|\binvalid target release: ",
    ),
    # JavaScript calls this a SyntaxError; it is an import of what is not there.
    *_rules("import", r"\bdoes not provide an export named\b"),
    *_rules(
        "syntax",
        r"\b(?:SyntaxError|IndentationError|TabError): ",
        r"\berror TS1\d{3}: ",
        r"^error: (?:expected |unexpected closing delimiter|mismatched closing delimiter)",
        r"^error: this file contains an unclosed delimiter",
        r":\d+:\d+: syntax error: ",
        r"\.java:\d+: error: (?:'.{1,20}' expected|class, interface, enum, or record expected|illegal start of )",
        r"\.java:\d+: error: (?:reached end of file while parsing|not a statement|unclosed )",
        r"\*\*\* missing separator\b",
        r": invalid-syntax: |^invalid-syntax: ",
        r"\berror: .{1,200}  \[syntax\]$",
        r"\bsyntax error near unexpected token\b",
        # Our own check names the place in the next line, and no kind of error.
        r"\bsyntax of \d+ touched .{1,60} exited with [1-9]",
        r"\bdata files: .{1,500}: not (?:JSON|TOML|YAML)\b",
        r"\byaml\.(?:scanner\.ScannerError|parser\.ParserError)\b",
    ),
    *_rules(
        "import",
        r"\bImportError: cannot import name ",
        r"\bImportError: attempted relative import ",
        # A path, and not the name of a package: node resolves imports of its modules before it misses them.
        r"\bCannot find module '(?:\.{1,2}/|(?:file://)?/(?![^'\n]{0,300}/node_modules/))",
        r"^\S{1,300}:\d+: \.{1,2}/\S{0,200} leads to no file\b",
        r"\berror TS2307: Cannot find module '\.{1,2}/",
        r"\berror TS(?:2305|2614|2459): ",
        r"\bimport cycle not allowed\b",
        r": \"[\w./-]{1,200}\" imported and not used",
        r"^error\[E043[23]\]: (?:unresolved import|failed to resolve).{0,40}`(?:crate|self|super)::",
    ),
    *_rules(
        "missing dependency",
        # Also as our own check of imports says it, and `python -m`, which uses no quotes.
        r": No module named '?(?P<module>[\w.]{1,200})",
        r"\b[Cc]annot find module '(?P<module>[\w@./-]{1,200})'",
        r"\bCannot find package '(?P<module>[\w@./-]{1,200})'",
        r"\berror: Cannot find implementation or library stub for module named \"(?P<module>[\w.]{1,200})\"",
        r"\berror: Library stubs not installed for ",
        r"\bno required module provides package \S",
        r"\bcannot find package \"",
        r"^error\[E043[23]\]: ",
        r"^error: no matching package named `",
        r"\.java:\d+: error: package (?P<module>[\w.]{1,200}) does not exist",
        r"\bImportError: \S{1,200}\.so\S{0,40}: cannot open shared object file\b",
        r"\bNo matching distribution found for \S",
        r": (?:command )?not found$",
        r"^npm (?:ERR!|error) code ERESOLVE\b",
    ),
    *_rules(
        "wrong path",
        r"^ERROR: file or directory not found: ",
        r"\bcan't open file '.{1,300}': \[Errno 2\]",
        r"^make(?:\[\d+\])?: \*\*\* No rule to make target ",
        r"^make(?:\[\d+\])?: .{1,200}: No such file or directory$",
        r"\bgo\.mod file not found in current directory\b|\bcould not find `Cargo\.toml` in\b",
        r"\b(?:NotADirectoryError|IsADirectoryError): |\bENOTDIR\b|\bEISDIR\b",
        r"^No tests found, exiting with code 1$|\bCould not find a package\.json\b",
        r"\bis outside the workspace\b|^error: pathspec ",
    ),
    *_rules(
        "type",
        r"^\S{1,300}:\d+(?::\d+)?: error: .{1,500}  \[[a-z][a-z0-9-]{1,40}\]$",
        r"\berror TS[2-9]\d{3}: ",
        r"^error\[E\d{4}\]: ",
        r"\.java:\d+: error: (?:incompatible types|cannot find symbol|method .{1,200} cannot be applied|no suitable )",
        r"\.java:\d+: error: \S",
        r"\.go:\d+:\d+: (?:cannot use |undefined: |declared and not used: |missing return|not enough arguments )",
        r" - error: .{1,500} \(report[A-Z]\w{1,60}\)$",
    ),
    *_rules(
        "missing file",
        r"\bFileNotFoundError: |\bNo such file or directory\b|\bno such file or directory\b|\bENOENT\b",
        r"\bjava\.(?:nio\.file\.NoSuchFile|io\.FileNotFound)Exception\b",
    ),
    *_rules(
        "lint",
        r"^\S{1,300}:\d+:\d+: [A-Z]{1,4}\d{3,4} ",
        r"^[A-Z]{1,4}\d{3,4} (?:\[\*\] )?\S",
        r"^ {1,4}\d+:\d+ {1,4}error {1,4}\S",
        r"\b[Ww]ould reformat\b|\bwould be reformatted\b|\bCode style issues found\b",
        r"#\[(?:deny|warn)\(clippy::|requested on the command line with `-D (?:clippy|warnings)",
        r"\.go:\d+:\d+: .{1,300} \((?:errcheck|staticcheck|govet|gofmt|revive|unused|gosimple)\)$",
        r"^\[ERROR\] .{1,300}\.java:\[?\d+.{1,300}\[[A-Z]\w{1,60}\]$",
    ),
    *_rules(
        "test",
        r"^(?:FAILED|ERROR) \S{1,300}(?:::| - |\.py$)",
        r"^(?:FAIL|ERROR): \S{1,200} \(",
        r"^ {2}● .|^FAIL +\S",
        r"^not ok \d+|^# fail [1-9]",
        r"^\s{0,40}--- FAIL: |^FAIL\t",
        r"^test \S{1,200} \.\.\. FAILED",
        r"\bTests run: \d+, Failures: (?:[1-9]|\d+, Errors: [1-9])",
        r"^\S{1,200} > .{1,200} FAILED$",
        r"^=+ .{0,100}\b\d+ (?:failed|error)",
        r"^\d+ (?:failed|errors?)\b.{0,100} in \d",
        r"\bAssertionError\b|\bpanicked at\b",
    ),
)

# What a failing test is called, by the tools that name it.
TESTS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(form)
    for form in (
        r"^(?:FAILED|ERROR) (?P<name>\S{1,300}::\S{1,300}|\S{1,300}\.py)(?: |$)",
        r"^(?:FAIL|ERROR): \S{1,200} \((?P<name>[\w.]{1,300})\)",
        r"^ {2}● (?P<name>\S.{0,200} › .{1,200})$",
        r"^ {0,40}not ok \d+ - (?P<name>[^#]{1,300})",
        r"^ {0,40}--- FAIL: (?P<name>\S{1,300})",
        r"^test (?P<name>\S{1,300}) \.\.\. FAILED",
        r"^\[ERROR\] +(?P<name>\w{1,200}\.\w{1,200}):\d+",
        r"^(?P<name>\S{1,200} > [^>]{1,200}) FAILED$",
    )
)

# `path:line`, `path(line`, `path:[line`; and Python's own way of saying it.
_ENDINGS = """py pyi js mjs cjs jsx ts tsx mts cts vue svelte go rs java kt scala c h cc cpp hpp cs swift rb php lua pl
    sh sql mk toml yaml yml json xml cfg ini html css""".split()
PLACES: tuple[re.Pattern[str], ...] = (
    re.compile(r"File \"(?P<path>[^\"\n]{1,400})\", line (?P<line>\d{1,7})"),
    re.compile(
        rf"(?<![\w./@+-])(?P<path>[\w@+./-]{{1,300}}\.(?:{'|'.join(_ENDINGS)}))(?::\[?|\()(?P<line>\d{{1,7}})(?!\w)"
    ),
)
