"""ansible and pyinfra copying to the local machine; only with --with-ansible, from a throw-away environment."""

from __future__ import annotations

import os
import subprocess
import sys

from _contestants import Contestant, Move
from _measure import run


def contestants(place: str) -> list[type[Contestant]]:
    """Both, installed into a virtual environment beside the work; it goes with the arena."""
    folder = os.path.join(place, "agents")
    if not os.path.isdir(folder):
        run([sys.executable, "-m", "venv", folder])
        run([os.path.join(folder, "bin", "pip"), "install", "-q", "ansible-core", "pyinfra"])
    Ansible.bin = Pyinfra.bin = os.path.join(folder, "bin")
    return [Ansible, Pyinfra]


class Tool(Contestant):
    bin = ""

    def ready(self, move: Move) -> None:
        tree = self.work.tree(move.after)
        with open(self.script, "w") as file:
            for path in self.work.paths:
                file.write(self.task(path, os.path.join(tree, path), move))

    @property
    def script(self) -> str:
        raise NotImplementedError

    def task(self, path: str, source: str, move: Move) -> str:
        raise NotImplementedError


class Ansible(Tool):
    """One copy task a file, backup=yes."""

    name = "ansible local copy, backup=yes"

    @property
    def script(self) -> str:
        return os.path.join(self.work.place, "play.yml")

    def ready(self, move: Move) -> None:
        super().ready(move)
        with open(self.script) as file:
            tasks = file.read()
        with open(self.script, "w") as file:
            file.write("- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n" + tasks)

    def task(self, path: str, source: str, move: Move) -> str:
        target = os.path.join(self.folder, path)
        if move.after == "none":
            return f"  - ansible.builtin.file: {{path: {target}, state: absent}}\n"
        return f"  - ansible.builtin.copy: {{src: {source}, dest: {target}, backup: true}}\n"

    def go(self, move: Move) -> None:
        run([os.path.join(self.bin, "ansible-playbook"), "-i", "localhost,", self.script])

    def tidy(self) -> None:
        # Backups are named path.PID.DATE~ beside the file.
        subprocess.run(["find", self.folder, "-name", "*~", "-delete"], check=True)


class Pyinfra(Tool):
    name = "pyinfra @local"

    @property
    def script(self) -> str:
        return os.path.join(self.work.place, "deploy.py")

    def ready(self, move: Move) -> None:
        super().ready(move)
        with open(self.script) as file:
            tasks = file.read()
        with open(self.script, "w") as file:
            file.write("from pyinfra.operations import files\n" + tasks)

    def task(self, path: str, source: str, move: Move) -> str:
        target = os.path.join(self.folder, path)
        if move.after == "none":
            return f"files.file(path={target!r}, present=False)\n"
        return f"files.put(src={source!r}, dest={target!r})\n"

    def go(self, move: Move) -> None:
        run([os.path.join(self.bin, "pyinfra"), "-y", "@local", self.script])
