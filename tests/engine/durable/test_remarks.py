"""What the libraries under the engine say is not for the screen of a person."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize("name", ["dbos", "sqlalchemy.pool", "psycopg"])
def test_no_library_speaks_to_the_screen(name: str) -> None:
    """While no engine runs, what they complain about is not printed, with its traceback or without."""
    code = (
        "import logging; from holdfast.engine.durable_dbos import library; library();"
        f"logging.getLogger({name!r}).error('said', exc_info=ValueError('why'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
