"""Several people at one workspace: each has a configuration and a key, and all of them are approvers.

people = People(guarded, tmp_path / "people", "ann", "ben")      # and "me", who runs the program otherwise
people.told("ann", "approve", id)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from holdfast.store.signing import load_or_create_signer


class People:
    def __init__(self, program: Any, place: Path, *names: str, policy: str = "") -> None:
        own = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
        self._program = program
        self._homes = {"me": own, **{name: place / name / "holdfast" for name in names}}
        self.keys = {
            name: load_or_create_signer(str(home / "signing.key")).public for name, home in self._homes.items()
        }
        self.configure(policy)
        for name in names:
            key = self._homes[name] / "ledger.key"
            key.write_bytes((own / "ledger.key").read_bytes())
            key.chmod(0o600)

    def configure(self, policy: str = "", without: str = "") -> None:
        """Everybody's configuration; `without` takes one of them out of the approvers."""
        rows = "".join(f'{name} = "{key}"\n' for name, key in self.keys.items() if name != without)
        for name, home in self._homes.items():
            path = home / "config.toml"
            path.write_text(f'[me]\nname = "{name}"\n[approvers]\n{rows}{policy}')
            path.chmod(0o600)

    def told(self, name: str, *words: str) -> Any:
        """What the program ends with when that person runs it."""
        return self._program.fresh(*words, XDG_CONFIG_HOME=str(self._homes[name].parent))

    def leave(self) -> None:
        (self._homes["me"] / "config.toml").unlink()
