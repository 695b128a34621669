"""Work, put into the hands that a program offers: its tools by their names and the properties of their schemas.

    WriteFile ──▶ Write · write_file · text_editor(command=write) · apply_patch · a shell
    EditFile  ──▶ Edit · replace · edit_file · text_editor(command=str_replace) · apply_patch · a shell
    Shell     ──▶ Bash · run_shell_command · exec_command · local_shell · execute

Without any tool the work is written as SEARCH/REPLACE blocks, or as whole files, which aider reads.

Invariant: nothing but the step, the tools and the working directory decides what is called.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence

from holdfast.testing.conversation import Call, Conversation, Json, Tool
from holdfast.testing.schema import example
from holdfast.testing.script import EditFile, Reply, Say, Shell, Stop, WriteFile

_WRITERS = "write write_file create_file writefile fs_write write_to_file".split()
_EDITORS = "edit edit_file replace str_replace replace_in_file search_replace".split()
_BOTH = "text_editor str_replace_editor str_replace_based_edit_tool".split()
_SHELLS = """bash shell shell_command exec_command run_shell_command execute execute_command run_command terminal
    local_shell""".split()
_READERS = "read read_file view readfile".split()

_PATH = "file_path filepath absolute_path path filename target_file file".split()
_CONTENT = "content contents file_text text".split()
_OLD = "old_string oldstring old_str old_text before search old".split()
_NEW = "new_string newstring new_str new_text after replace new".split()
_COMMAND = "command cmd script".split()

# As the programs say it: in words, in a list, in a tag.
_DIRECTORY = re.compile(
    r"(?:working[ -]directory|working in the directory|workspace directories|cwd)(?: is)?"
    r"[\s:>*`'\"-]{1,12}(/[^\s<>\"'`]*)",
    re.I,
)
_LISTED = re.compile(r"^\S+\n```\n.*?^```$\n*", re.MULTILINE | re.DOTALL)
_REPLACE = """import sys
path, old, new = sys.argv[1:]
with open(path, encoding="utf-8") as file:
    text = file.read()
if text.count(old) != 1:
    sys.exit(f"{path}: the text to replace is there {text.count(old)} times")
with open(path, "w", encoding="utf-8") as file:
    file.write(text.replace(old, new))
"""


def directory_of(conversation: Conversation) -> str:
    """The program's working directory, where it tells its model; many tools want absolute paths."""
    for text in conversation.surroundings:
        if found := _DIRECTORY.search(text):
            return found[1].rstrip(".,;:)") or "/"
    return ""


def call_for(step: WriteFile | EditFile | Shell, tools: Sequence[Tool], directory: str) -> Call | None:
    """The best call for this work; None when no tool can do it."""
    match step:
        case WriteFile(path, content):
            return _write(path, content, tools, directory)
        case EditFile(path, old, new):
            return _edit(path, old, new, tools, directory)
        case Shell(command):
            return _shell(command, tools)


def reading(path: str, tools: Sequence[Tool], directory: str) -> Call | None:
    """A look at a file: some programs let nobody write what he has not read."""
    tool = _named(tools, _READERS) or _shaped(tools, "read", _PATH)
    return _filled(tool, {"path": _absolute(path, directory)}, "view") if tool is not None else None


def is_reading(name: str) -> bool:
    return _simple(name) in _READERS


def block(reply: Reply) -> str:
    """The reply in plain text, for programs that offer no tools."""
    match reply:
        case Say(text) | Stop(text):
            return text
        case WriteFile(path, content):
            return _search_replace(path, "", content)
        case EditFile(path, old, new):
            return _search_replace(path, old, new)
        case Shell(command):
            return f"```bash\n{_line(command)}\n```"


def listing(reply: Reply, seen: Sequence[str]) -> str:
    """The reply with whole files in it. An edit needs the file, as the program has shown it among `seen`."""
    match reply:
        case WriteFile(path, content):
            return _listed(path, content)
        case EditFile(path, old, new):
            shown = rf"^{re.escape(path)}\n(?P<fence>`{{3,}})[^\n]*\n(?P<text>.*?)^(?P=fence)[ \t]*$"
            found = [each["text"] for words in seen for each in re.finditer(shown, words, re.MULTILINE | re.DOTALL)]
            return _listed(path, found[-1].replace(old, new, 1)) if found else f"Please show me `{path}` first."
        case _:
            return block(reply)


def _listed(path: str, content: str) -> str:
    return f"{path}\n```\n{content.removesuffix(chr(10))}\n```"


def without_listings(text: str) -> str:
    return _LISTED.sub("", text)


def _write(path: str, content: str, tools: Sequence[Tool], directory: str) -> Call | None:
    given = {"path": _absolute(path, directory), "content": content}
    tool = _named(tools, _WRITERS) or _named(tools, _BOTH) or _shaped(tools, "write|create", _PATH, _CONTENT)
    if tool is not None:
        return _filled(tool, given, "write", "create")
    if (patcher := _named(tools, ["apply_patch"])) is not None:
        return _patch(patcher, f"*** Add File: {path}\n{_lines('+', content)}")
    folder = os.path.dirname(path)
    make = f"mkdir -p {shlex.quote(folder)} && " if folder else ""
    return _shell(f"{make}printf '%s' {shlex.quote(content)} > {shlex.quote(path)}", tools)


def _edit(path: str, old: str, new: str, tools: Sequence[Tool], directory: str) -> Call | None:
    given = {"path": _absolute(path, directory), "old": old, "new": new}
    tool = _named(tools, _EDITORS) or _named(tools, _BOTH) or _shaped(tools, "edit|replace", _PATH, _OLD, _NEW)
    if tool is not None:
        return _filled(tool, given, "str_replace", "edit", "replace")
    patcher = _named(tools, ["apply_patch"])
    # A patch is made of whole lines.
    if patcher is not None and old.endswith("\n") and (new.endswith("\n") or not new):
        return _patch(patcher, f"*** Update File: {path}\n@@\n{_lines('-', old)}{_lines('+', new)}")
    return _shell(("python3", "-c", _REPLACE, path, old, new), tools)


def _shell(command: str | tuple[str, ...], tools: Sequence[Tool]) -> Call | None:
    tool = _named(tools, _SHELLS) or _shaped(tools, "shell|bash|exec|command", _COMMAND)
    if tool is None:
        return None
    argv = ["bash", "-lc", command] if isinstance(command, str) else list(command)
    if tool.form == "local_shell":
        return Call(tool, {"type": "exec", "command": argv, "env": {}})
    name = _property(tool, _COMMAND)
    wants_list = tool.properties.get(name, {}).get("type") == "array"
    return _filled(tool, {"command": argv if wants_list else _line(command)})


def _line(command: str | tuple[str, ...]) -> str:
    return command if isinstance(command, str) else shlex.join(command)


def _patch(tool: Tool, body: str) -> Call:
    text = f"*** Begin Patch\n{body}*** End Patch\n"
    return (
        Call(tool, {}, raw=text) if tool.form == "custom" else Call(tool, {_property(tool, ["input", "patch"]): text})
    )


def _lines(sign: str, text: str) -> str:
    return "".join(f"{sign}{line}\n" for line in text.removesuffix("\n").split("\n")) if text else ""


def _search_replace(path: str, old: str, new: str) -> str:
    parts = [path, "```", "<<<<<<< SEARCH", old, "=======", new, ">>>>>>> REPLACE", "```"]
    return "\n".join(part.removesuffix("\n") for index, part in enumerate(parts) if part or index not in (3, 5))


# ── which tool, and how it wants to be called ──


def _simple(name: str) -> str:
    """`developer__text_editor` and `mcp.shell` are a text editor and a shell."""
    return re.split(r"__|\.|/", name)[-1].lower()


def _named(tools: Sequence[Tool], names: Sequence[str]) -> Tool | None:
    for name in names:
        for tool in tools:
            if _simple(tool.name) == name:
                return tool
    return None


def _shaped(tools: Sequence[Tool], verb: str, *wanted: Sequence[str]) -> Tool | None:
    """By what it takes, for names nobody has told us."""
    for tool in tools:
        if re.search(verb, tool.name, re.I) and all(_has(tool, names) for names in wanted):
            return tool
    return None


def _has(tool: Tool, names: Sequence[str]) -> bool:
    return any(_folded(name) in {_folded(given) for given in tool.properties} for name in names)


def _folded(name: str) -> str:
    return name.lower().replace("_", "")


def _property(tool: Tool, names: Sequence[str]) -> str:
    """The tool's own name for one of these; the first of them when it has none."""
    for name in names:
        for given in tool.properties:
            if _folded(given) == _folded(name):
                return given
    return names[0]


def _filled(tool: Tool, given: Json, *verbs: str) -> Call:
    """What we have under the tool's own names, and an example of everything else it demands."""
    roles = {"path": _PATH, "content": _CONTENT, "old": _OLD, "new": _NEW, "command": _COMMAND}
    arguments = {_property(tool, roles[role]): value for role, value in given.items()}
    for name in tool.required:
        if name not in arguments:
            choices = tool.properties.get(name, {}).get("enum") or ()
            arguments[name] = next((verb for verb in verbs if verb in choices), None) or _demanded(tool, name, verbs)
    return Call(tool, arguments)


def _demanded(tool: Tool, name: str, verbs: Sequence[str]) -> object:
    # An editor for everything says in words, not in its schema, which commands it knows.
    if name == "command" and verbs and _simple(tool.name) in _BOTH:
        return (
            "create"
            if verbs[0] == "write" and "file_text" in tool.properties and "str_replace" in _simple(tool.name)
            else verbs[0]
        )
    return example(tool.properties.get(name, {}))


def _absolute(path: str, directory: str) -> str:
    return os.path.join(directory, path) if directory else path
