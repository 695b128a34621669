"""The kernel: no system call, no file of /proc and no privileged program gives a way out."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import pytest

from sandbox.cell import PLAIN, Cell, attempt, said, stayed_in

SYSCTLS = ("kernel/core_pattern", "kernel/modprobe", "vm/overcommit_memory", "kernel/hostname", "fs/file-max")
# Numbers of x86-64; the arguments would be valid, or are looked at only after the right to make the call.
CALLS = {
    "mount": (165, b"none", b"/tmp", b"tmpfs", 0, None),
    "umount2": (166, b"/tmp", 2),
    "pivot_root": (155, b".", b"."),
    "open_tree": (428, -100, b"/", 1),
    "move_mount": (429, -100, b"/", -100, b"/tmp", 0),
    "fsopen": (430, b"tmpfs", 0),
    "mount_setattr": (442, -100, b"/", 0, None, 0),
    "unshare user": (272, 0x10000000),
    "unshare mount": (272, 0x20000),
    "unshare net": (272, 0x40000000),
    "clone user": (56, 0x10000011, None, None, None, None),
    "clone3": (435, None, 88),
    "setns": (308, 0, 0),
    "keyctl": (250, 0, -3, 1),
    "add_key": (248, b"user", b"x", b"y", 1, -3),
    "request_key": (249, b"user", b"x", None, -3),
    "bpf": (321, 0, None, 0),
    "perf_event_open": (298, None, 0, -1, -1, 0),
    "userfaultfd": (323, 1),
    "io_uring_setup": (425, 1, None),
    "open_by_handle_at": (304, -100, None, 0),
    "kexec_load": (246, 0, 0, None, 0),
    "init_module": (175, None, 0, b""),
    "finit_module": (313, 0, b"", 0),
    "swapon": (167, b"/tmp/x", 0),
    "reboot": (169, 0xFEE1DEAD, 672274793, 0, None),
    "settimeofday": (164, None, None),
    "clock_settime": (227, 0, None),
    "personality": (135, 0x0400000),
    "personality, no randomisation": (135, 0x40000),
    "process_vm_readv": (310, 1, None, 0, None, 0, 0),
    "pidfd_getfd": (438, 0, 0, 0),
    "memfd_secret": (447, 0),
    "sethostname": (170, b"x", 1),
    "syslog": (103, 3, None, 0),
    "quotactl": (179, 0, None, 0, None),
    "acct": (163, None),
    "iopl": (172, 3),
    "fanotify_init": (300, 0, 0),
    "chroot": (161, b"/tmp"),
}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86-64")
@pytest.mark.parametrize("name", CALLS)
def test_a_dangerous_call_is_refused(cell: Cell, name: str) -> None:
    """The call is refused for want of a right, or said not to exist; it never gets to look at its arguments."""
    arguments = ", ".join(f"{value!r}" for value in CALLS[name])
    ran = cell.python(attempt(f"check(libc.syscall({arguments}))"))
    stayed_in(ran)
    assert "refused EPERM" in said(ran) or "refused ENOSYS" in said(ran), said(ran)


def test_settings_of_the_kernel_cannot_be_written(cell: Cell) -> None:
    """Files of /proc/sys, and the key that reboots, are closed; so they are to root's programs."""
    values = {name: Path("/proc/sys", name).read_bytes() for name in SYSCTLS if os.path.exists(f"/proc/sys/{name}")}
    # Were one of them open, writing back what was there would do no harm.
    tries = [f"open('/proc/sys/{name}', 'r+b', 0).write({value!r})" for name, value in values.items()]
    tries += ["open('/proc/sysrq-trigger', 'wb', 0)", "open('/proc/self/uid_map', 'wb', 0)"]
    stayed_in(cell.python(attempt(*tries)))
    assert {name: Path("/proc/sys", name).read_bytes() for name in values} == values


def test_nothing_read_only_can_be_made_writable(cell: Cell) -> None:
    """Neither the system nor a cover can be remounted, unmounted or covered by something else."""
    remount = "mount -o remount,rw /usr; mount -o remount,rw /; umount .env; umount -l .holdfast; echo TRIED"
    stayed_in(cell.run("sh", "-c", remount))
    stayed_in(cell.python(attempt("open('/usr/planted', 'w')", "open('.env', 'w')")))
    assert not os.path.exists("/usr/planted")


def test_programs_with_privileges_give_none(cell: Cell) -> None:
    """Set-uid programs run without their privilege."""
    program = next((path for path in ("/usr/bin/su", "/usr/bin/mount", "/bin/su") if os.path.exists(path)), None)
    if program is None or not os.lstat(program).st_mode & 0o4000:
        pytest.skip("no set-uid program here")
    ran = cell.run("sh", "-c", f"grep -E 'CapEff|NoNewPrivs' /proc/self/status; {program} --version >/dev/null; id -u")
    assert "CapEff:\t0000000000000000" in said(ran)
    assert "NoNewPrivs:\t1" in said(ran)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the machine code is that of x86-64")
def test_calls_in_the_old_convention_end_the_program(cell: Cell) -> None:
    """A filter for 64-bit calls could be walked around through the 32-bit door; that door kills."""
    code = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex('b814000000cd80c3'))  # mov eax, 20 (getpid); int 0x80; ret
call = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
print('TRIED', flush=True)
print('ESCAPED' if call() > 0 else 'refused')
"""
    stayed_in(cell.python(code))


def test_devices_and_other_users_cannot_be_made(cell: Cell) -> None:
    """No device can be made, no other user or group become, no file given away."""
    tries = ["os.mknod('/tmp/sda', 0o60600, 0x800)", "os.mknod('sda', 0o20600, 0x101)", "os.setuid(1)", "os.setgid(1)"]
    stayed_in(cell.python(attempt(*tries, "os.chown('file', 1, 1)", "os.setgroups([1])")))


def test_devices_are_the_harmless_ones(cell: Cell) -> None:
    """Only null, zero, full, random, urandom, tty and terminals of its own are in /dev."""
    names = set(said(cell.run("ls", "/dev")).split())
    known = "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero console"
    assert names <= set(known.split())


def test_ordinary_programs_still_work(cell: Cell) -> None:
    """Pipes, threads, subprocesses, temporary files, terminals of its own, shared memory, signals, git."""
    code = """
import os, subprocess, tempfile, threading, mmap, signal, pty
t = threading.Thread(target=lambda: None); t.start(); t.join()
with tempfile.TemporaryFile() as f: f.write(b'x')
assert subprocess.run(['sh', '-c', 'echo a | cat | wc -c'], capture_output=True).stdout.strip() == b'2'
open('/dev/null', 'w').write('x'); assert open('/dev/urandom', 'rb').read(1)
fd = os.open('/dev/shm/x', os.O_CREAT | os.O_RDWR); os.close(fd)
os.kill(os.getpid(), signal.SIGCHLD)
m, s = pty.openpty(); os.isatty(s)
os.symlink('file', 'l'); os.link('file', 'h'); os.rename('h', 'h2')
os.mkdir('d'); os.rename('h2', 'd/h'); os.chmod('d', 0o700)
os.mkfifo('fifo'); os.unlink('fifo'); os.truncate('file', 1)
print('fine')
"""
    ran = cell.python(code, profile=PLAIN)
    assert said(ran) == "fine\n"
