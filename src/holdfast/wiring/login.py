"""The login: what the system calls whoever sits at the keyboard."""

from __future__ import annotations

import os


def user() -> str:
    """Who is at the keyboard, by the system's name; an approval by this name is only as strong as the login."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
