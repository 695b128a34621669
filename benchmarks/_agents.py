"""ansible and pyinfra copying to the local machine; only with --with-ansible, from a throw-away environment.

Both take a second or so to start, and then up to a second a file, so they are asked for 100 files at most.
Neither syncs; ansible renames each file into place, pyinfra copies over it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from _contestants import Contestant, Move
from _measure import run


def contestants(place: str) -> list[type[Contestant]]:
    """Both, installed into a virtual environment beside the work; it goes with the arena."""
    folder = os.path.join(place, "agents")
    Tool.bin = os.path.join(folder, "bin")
    if not os.path.isdir(folder):
        run([sys.executable, "-m", "venv", folder])
        run([os.path.join(Tool.bin, "pip"), "install", "-q", "ansible-core", "pyinfra"])
        _configure(folder)
    os.environ["ANSIBLE_CONFIG"] = os.path.join(folder, "ansible.cfg")
    return [Ansible, Pyinfra]


def _configure(folder: str) -> None:
    """ansible's defaults, whatever this user has configured, and nothing of it in this user's home."""
    settings = {
        "home": os.path.join(folder, "ansible"),
        "remote_tmp": os.path.join(folder, "remote"),
        # Left to itself it looks for a Python of the machine's, which costs time and may find a broken one.
        "interpreter_python": os.path.join(Tool.bin, "python"),
    }
    with open(os.path.join(folder, "ansible.cfg"), "w") as file:
        file.write("[defaults]\n" + "".join(f"{key} = {value}\n" for key, value in settings.items()))


class Tool(Contestant):
    """A program that is given a list of tasks, one a file."""

    bin = ""
    file = ""
    header = ""

    @property
    def script(self) -> str:
        return os.path.join(self.work.place, self.file)

    def ready(self, move: Move) -> None:
        tree = self.work.tree(move.after)
        with open(self.script, "w") as file:
            file.write(self.header)
            for path in self.work.paths:
                file.write(self.task(os.path.join(self.folder, path), os.path.join(tree, path), move))

    def task(self, target: str, source: str, move: Move) -> str:
        raise NotImplementedError


class Ansible(Tool):
    """One copy task a file, backup=yes."""

    name = "ansible local copy, backup=yes"
    file = "play.yml"
    header = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n"

    def task(self, target: str, source: str, move: Move) -> str:
        if move.after == "none":
            return f"  - ansible.builtin.file: {json.dumps({'path': target, 'state': 'absent'})}\n"
        return f"  - ansible.builtin.copy: {json.dumps({'src': source, 'dest': target, 'backup': True})}\n"

    def go(self, move: Move) -> None:
        run([os.path.join(self.bin, "ansible-playbook"), "-i", "localhost,", self.script])

    def tidy(self) -> None:
        # Backups are named path.PID.DATE~ beside the file.
        subprocess.run(["find", self.folder, "-name", "*~", "-delete"], check=True)


class Pyinfra(Tool):
    """One put operation a file."""

    name = "pyinfra @local"
    file = "deploy.py"
    header = "from pyinfra.operations import files\n"

    def task(self, target: str, source: str, move: Move) -> str:
        if move.after == "none":
            return f"files.file(path={target!r}, present=False)\n"
        return f"files.put(src={source!r}, dest={target!r})\n"

    def go(self, move: Move) -> None:
        run([os.path.join(self.bin, "pyinfra"), "-y", "@local", self.script])
