"""Works in a shadow, from inside; started by `shaded.perform`, with nothing but the standard library.

Every act is one thing a program might do. What the kernel refuses is passed over, as a careless program would.
At the end it prints what it sees.
"""

import errno
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable


def write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def append(path: str, text: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write(text)


def replace(path: str, text: str) -> None:
    """As editors do: a new file beside it, then a rename."""
    beside = os.path.join(os.path.dirname(path), "beside.tmp")
    write(beside, text)
    try:
        os.rename(beside, path)
    except OSError:
        os.unlink(beside)


def rewrite(path: str) -> None:
    """The same bytes again."""
    with open(path, "r+b") as file:
        data = file.read()
        file.seek(0)
        file.write(data)


def remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def rename(old: str, new: str) -> None:
    """As `mv` does: by rename, and by copying where the kernel cannot."""
    if not os.path.lexists(old) or new == old or new.startswith(f"{old}/"):
        return
    try:
        os.rename(old, new)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        if os.path.lexists(new):
            os.rmdir(new)  # a rename replaces an empty directory, and nothing else
        shutil.copytree(old, new, symlinks=True)
        for folder, names, files in os.walk(old):
            for name in (*names, *files, "."):
                there = os.path.join(folder, name)
                if not os.path.islink(there):
                    os.chmod(os.path.join(new, os.path.relpath(there, old)), stat.S_IMODE(os.stat(there).st_mode))
        shutil.rmtree(old)


def again(path: str) -> None:
    """A directory removed and made anew, with nothing in it."""
    if os.path.isdir(path) and not os.path.islink(path):
        mode = stat.S_IMODE(os.stat(path).st_mode)
        shutil.rmtree(path)
        os.mkdir(path)
        os.chmod(path, mode)


def mode(path: str, bits: int) -> None:
    if not os.path.islink(path):
        # A directory that even its owner cannot enter could not be looked at in the end.
        os.chmod(path, bits | 0o500 if os.path.isdir(path) else bits)


def attribute(path: str, value: str) -> None:
    if os.path.isfile(path) and not os.path.islink(path):
        os.setxattr(path, "user.note", value.encode())


ACTS: dict[str, Callable[..., None]] = {
    "write": write,
    "append": append,
    "replace": replace,
    "rewrite": rewrite,
    "remove": remove,
    "rename": rename,
    "again": again,
    "mode": mode,
    "attribute": attribute,
    "mkdir": os.mkdir,
    "symlink": lambda path, target: os.symlink(target, path),
    "link": os.link,
    "touch": os.utime,
    "fifo": os.mkfifo,
}


def seen(path: str) -> list[object]:
    about = os.lstat(path)
    bits = stat.S_IMODE(about.st_mode)
    if stat.S_ISLNK(about.st_mode):
        return ["symlink", 0o777, about.st_uid, about.st_gid, os.fsencode(os.readlink(path)).hex(), []]
    xattrs: list[list[str]] = []
    if stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode):
        xattrs = [[name, os.getxattr(path, name).hex()] for name in sorted(os.listxattr(path))]
    if stat.S_ISDIR(about.st_mode):
        return ["directory", bits, about.st_uid, about.st_gid, "", xattrs]
    if not stat.S_ISREG(about.st_mode):
        return ["special", bits, about.st_uid, about.st_gid, "", xattrs]
    with open(path, "rb") as file:
        return ["file", bits, about.st_uid, about.st_gid, file.read().hex(), xattrs]


def main() -> None:
    os.umask(0o022)
    for name, *arguments in json.loads(sys.argv[1]):
        try:
            ACTS[name](*arguments)
        except (OSError, shutil.Error):
            continue
    found = {}
    for folder, names, files in os.walk("."):
        names[:] = [name for name in names if name not in (".git", ".holdfast")]
        for name in (*names, *files):
            path = os.path.relpath(os.path.join(folder, name), ".")
            found[path] = seen(path)
    json.dump(found, sys.stdout)


main()
