"""Another host that is this one: a real sshd on a loopback port, with keys, homes and configuration of its own.

    here                                   there
    bin/ssh  (the real one, with -F)       sshd_config: its own host key, authorized_keys and environment (SetEnv)
    ssh_config, known_hosts, user_key      bin-there/holdfast: this Python with this package; home-there

Nothing of the machine's or the user's ssh is read or written. ssh finds its files by the user database, not by $HOME,
hence the wrapper with -F; sshd sets HOME and PATH by itself, hence SetEnv, which is applied last.
Run by root, sshd wants the directory /run/sshd: where it is missing, it is made in a mount namespace of sshd's own.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import holdfast

SSHD = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/local/sbin:/usr/bin")
SSH = shutil.which("ssh")
KEYGEN = shutil.which("ssh-keygen")
PACKAGE = str(Path(holdfast.__file__).parent.parent)
_PRIVATE_RUN = 'mount -t tmpfs none /run && mkdir -m 0755 /run/sshd && exec "$@"'


class SshHost:
    """A running sshd. `there` is the program over there; tests may put another in its place."""

    def __init__(self) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="holdfast-sshd-"))
        self.place.chmod(0o755)
        for name in ("bin", "bin-there", "home-there"):
            (self.place / name).mkdir()
        self.port = _free_port()
        self.there = self.place / "bin-there/holdfast"
        self.known_hosts = self.place / "known_hosts"
        self.identity = self.place / "user_key"
        self._keys()
        self._configuration()
        self.real_program()
        self._sshd = subprocess.Popen(
            self._command(), stdin=subprocess.DEVNULL, stderr=self._log(), start_new_session=True
        )
        self._wait()

    @property
    def environment(self) -> dict[str, str]:
        """For the program here: our ssh first."""
        return {"PATH": f"{self.place}/bin:{os.environ['PATH']}"}

    @property
    def environment_there(self) -> dict[str, str]:
        home = self.place / "home-there"
        return {
            "PATH": f"{self.place}/bin-there:/usr/bin:/bin",
            "HOME": str(home),
            "PYTHONPATH": PACKAGE,
            **{f"XDG_{kind}_HOME": str(home / kind.lower()) for kind in ("CONFIG", "STATE", "CACHE", "DATA")},
        }

    def run_there(self, *words: str) -> None:
        """As somebody who sits over there."""
        subprocess.run([self.there, *words], env=self.environment_there, stdout=subprocess.DEVNULL, check=True)

    def real_program(self) -> None:
        self.program(f'exec {sys.executable} -m holdfast "$@"')

    def program(self, script: str) -> None:
        self.there.unlink(missing_ok=True)
        self.there.write_text(f"#!/bin/sh\n{script}\n")
        self.there.chmod(0o755)

    def address(self, path: Path | str) -> str:
        return f"ssh://there{path}"

    def close(self) -> None:
        os.killpg(self._sshd.pid, signal.SIGTERM)
        try:
            self._sshd.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(self._sshd.pid, signal.SIGKILL)
            self._sshd.wait()
        shutil.rmtree(self.place)

    def _keys(self) -> None:
        assert KEYGEN is not None
        for name in ("host_key", "user_key", "other_key"):
            subprocess.run([KEYGEN, "-q", "-t", "ed25519", "-N", "", "-f", self.place / name], check=True)
        shutil.copy(self.place / "user_key.pub", self.place / "authorized_keys")
        self.known_hosts.write_text(f"[127.0.0.1]:{self.port} {(self.place / 'host_key.pub').read_text()}")

    def _configuration(self) -> None:
        there = {
            "Port": self.port,
            "ListenAddress": "127.0.0.1",
            "HostKey": self.place / "host_key",
            "PidFile": "none",
            "AuthorizedKeysFile": self.place / "authorized_keys",
            "StrictModes": "no",  # the directory lies below /tmp, which everybody may write
            "UsePAM": "no",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "PermitUserRC": "no",
            "PrintMotd": "no",
            "SetEnv": " ".join(f'"{name}={value}"' for name, value in self.environment_there.items()),
        }
        here = {
            "HostName": "127.0.0.1",
            "Port": self.port,
            "IdentityFile": self.identity,
            "IdentitiesOnly": "yes",
            "IdentityAgent": "none",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "LogLevel": "ERROR",
        }
        _write(self.place / "sshd_config", there)
        (self.place / "ssh_config").write_text(
            "Host there\n" + "".join(f"{key} {value}\n" for key, value in here.items())
        )
        wrapper = self.place / "bin/ssh"
        wrapper.write_text(f'#!/bin/sh\necho "$@" >> {self.place}/calls\nexec {SSH} -F {self.place}/ssh_config "$@"\n')
        wrapper.chmod(0o755)

    def calls(self) -> int:
        """How often ssh was started here."""
        log = self.place / "calls"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def _command(self) -> list[str]:
        assert SSHD is not None
        command = [SSHD, "-D", "-e", "-f", str(self.place / "sshd_config")]
        if os.geteuid() != 0 or os.path.isdir("/run/sshd"):
            return command
        return ["unshare", "-m", "sh", "-c", _PRIVATE_RUN, "sh", *command]

    def _log(self) -> int:
        return os.open(self.place / "sshd.log", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def _wait(self) -> None:
        end = time.monotonic() + 10
        while time.monotonic() < end and self._sshd.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        said = (self.place / "sshd.log").read_text()
        if self._sshd.poll() is None:
            self.close()
        else:
            shutil.rmtree(self.place)
        pytest.skip(f"sshd cannot be run here: {said.strip()}")


def host_or_skip() -> SshHost:
    if SSHD is None or SSH is None or KEYGEN is None:
        pytest.skip("needs OpenSSH: ssh, ssh-keygen and sshd")
    return SshHost()


def _write(path: Path, settings: dict[str, object]) -> None:
    path.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
