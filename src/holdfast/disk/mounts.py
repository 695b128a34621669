"""Which kind of file system a directory is on."""

from __future__ import annotations

import os

_LOOK = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC


def file_system_kind(directory: str) -> str:
    """The kind by its name, such as "ext4" or "overlay"; empty where the kernel shows no mounts.

    By the id of the mount: on btrfs the device of a file is none that the table of mounts has.
    """
    fd = os.open(directory, _LOOK)
    try:
        with open(f"/proc/self/fdinfo/{fd}", "rb") as about, open("/proc/self/mountinfo", "rb") as table:
            mount = next(line.split()[1] for line in about if line.startswith(b"mnt_id:"))
            found = next((line for line in table if line.split(None, 1)[0] == mount), b"")
    except FileNotFoundError:
        return ""
    finally:
        os.close(fd)
    return found.partition(b" - ")[2].partition(b" ")[0].decode("ascii", "replace")
