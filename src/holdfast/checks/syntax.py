"""Syntax of touched files, by their suffix, wherever they lie.

Programs are given to their own language's parser, in the sandbox; data is parsed by ourselves (see `plainfiles`).
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checks.kinds.python import interpreter
from holdfast.checks.levels import Check
from holdfast.checks.project import Found, Place

# Nothing is written: no .pyc, and nothing is executed.
_PYTHON = """
import sys
bad = 0
for path in sys.argv[1:]:
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        bad += 1
        print(f"{path}:{getattr(error, 'lineno', None) or 0}: {getattr(error, 'msg', error)}")
raise SystemExit(bool(bad))
"""
# Older versions take .js with `import` for no module; .js with JSX is a bundler's language, which node cannot judge.
_NODE = """
const { spawnSync } = require('node:child_process');
const { readFileSync } = require('node:fs');
const check = (words, input) => spawnSync(process.execPath, [...words, '--check'], { encoding: 'utf8', input });
let bad = 0, foreign = 0;
for (const path of process.argv.slice(1)) {
  let run = spawnSync(process.execPath, ['--check', './' + path], { encoding: 'utf8' });
  if (run.status !== 0 && /outside a module|Unexpected token 'export'/.test(run.stderr))
    run = check(['--input-type=module'], readFileSync(path));
  if (run.status === 0) continue;
  if (/Unexpected token '<'/.test(run.stderr)) { foreign += 1; console.log(path + ': JSX, not judged'); continue; }
  bad += 1;
  console.log(run.stderr || String(run.error));
}
process.exit(bad ? 1 : foreign ? 77 : 0);
"""
NOT_JUDGED = 77
_NODE_SUFFIXES = (".js", ".mjs", ".cjs")


def syntax_checks(place: Place) -> Iterator[Found]:
    python = interpreter(place)
    for files in place.batches(".py", ".pyi"):
        yield Check("syntax", place.root, (python, "-I", "-c", _PYTHON, *files), _count(files, "Python"), python)
    for files in place.batches(*_NODE_SUFFIXES):
        argv = ("node", "-e", _NODE, "--", *files)
        yield Check("syntax", place.root, argv, _count(files, "JavaScript"), "node", nothing=(NOT_JUDGED,))


def _count(files: tuple[str, ...], language: str) -> str:
    return f"{len(files)} touched {language} file{'s' if len(files) > 1 else ''}"
