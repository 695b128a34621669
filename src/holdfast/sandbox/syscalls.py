"""Which system calls a program in the sandbox cannot make: a seccomp filter, for bubblewrap to load.

A deny-list over what the namespaces and dropped capabilities leave possible: interfaces with a history of holes,
ways around the other fences (io_uring makes calls that no filter sees; a new user namespace gives capabilities back),
and kinds of sockets that do not belong to a network namespace (AF_VSOCK talks to the machine's own host).

The filter is for this machine's own calls; calls in another convention (32 bit) kill the program.
libseccomp compiles it; it comes with nearly every distribution (apt and systemd need it). Called directly,
since its bindings start other programs to find it, which takes longer than the whole sandbox.
Without it there is no filter, and `probe` says so.
"""

from __future__ import annotations

import ctypes
import errno
import os
from functools import cache
from typing import NamedTuple

_REFUSED = """
    acct add_key bpf clock_adjtime clock_settime delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick
    get_kernel_syms init_module ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie memfd_secret mount
    mount_setattr move_mount nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root
    process_madvise process_vm_readv process_vm_writev query_module quotactl quotactl_fd reboot request_key
    setdomainname sethostname setns settimeofday stime swapoff swapon syslog umount umount2 uselib userfaultfd
    vhangup vm86 vm86old
""".split()
# "Not there" makes programs fall back to what can be filtered; clone3 hides its flags in memory.
_ABSENT = ("io_uring_setup", "io_uring_enter", "io_uring_register", "clone3")
_NEW_TIME = 0x80
_NEW_NAMESPACES = 0x7E020000 | _NEW_TIME  # user, mount, uts, ipc, pid, net, cgroup, time
_TERMINAL_INPUT = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX: type on behalf of the user
_PTRACE_OTHERS = (16, 0x4206)  # ATTACH, SEIZE; a program may still be traced by its parent
_HARMLESS_PERSONALITY = 0x20008  # how uname looks
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink
_LOW, _TOP = 0xFFFFFFFF, 0x80000000


_EQ, _GT, _MASKED = 4, 6, 7
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class Filter(NamedTuple):
    """A BPF program, or the reason there is none."""

    program: bytes
    missing: str = ""


class _Comparison(ctypes.Structure):
    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


class _Builder:
    """libseccomp, as much of it as is needed here. What is not refused is allowed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        made = self._library.seccomp_init(ctypes.c_uint32(_ALLOW))
        if not made:
            raise OSError("libseccomp gives no filter")
        self._filter = ctypes.c_void_p(made)

    def refuse(self, name: str, error: int, *when: tuple[int, int, int, int]) -> None:
        call = self._library.seccomp_syscall_resolve_name(name.encode())
        if call < 0:
            return  # this machine's architecture does not have it
        comparisons = (_Comparison * len(when))(*(_Comparison(*row) for row in when))
        action = ctypes.c_uint32(_ERRNO | error)
        self._check(self._library.seccomp_rule_add_array(self._filter, action, call, len(when), comparisons))

    def program(self) -> bytes:
        fd = os.memfd_create("holdfast-seccomp", os.MFD_CLOEXEC)
        try:
            self._check(self._library.seccomp_export_bpf(self._filter, fd))
            return os.pread(fd, os.fstat(fd).st_size, 0)
        finally:
            os.close(fd)
            self._library.seccomp_release(self._filter)

    def _check(self, result: int) -> None:
        if result < 0:
            raise OSError(-result, os.strerror(-result))


@cache
def system_call_filter() -> Filter:
    """The same for every run of this process."""
    try:
        made = _Builder()
        for name in _REFUSED:
            made.refuse(name, errno.EPERM)
        for name in _ABSENT:
            made.refuse(name, errno.ENOSYS)
        _refuse_by_argument(made)
        return Filter(made.program())
    except OSError as error:
        return Filter(b"", f"libseccomp: {error.strerror or error}")


def _refuse_by_argument(made: _Builder) -> None:
    # Each flag by itself, for any of them is enough.
    for flag in (1 << n for n in range(32) if _NEW_NAMESPACES >> n & 1):
        made.refuse("unshare", errno.EPERM, (0, _MASKED, flag, flag))
        if flag != _NEW_TIME:  # in clone's flags this bit is part of the signal at the end
            made.refuse("clone", errno.EPERM, (0, _MASKED, flag, flag))
    for request in _TERMINAL_INPUT:
        made.refuse("ioctl", errno.EPERM, (1, _MASKED, _LOW, request))
    for request in _PTRACE_OTHERS:
        made.refuse("ptrace", errno.EPERM, (0, _EQ, request, 0))
    # A bit that is not harmless, alone or in company; all bits together only ask.
    for bit in (1 << n for n in range(31)):
        made.refuse("personality", errno.EPERM, (0, _MASKED, _TOP | bit, _TOP))
        if not bit & _HARMLESS_PERSONALITY:
            made.refuse("personality", errno.EPERM, (0, _MASKED, _TOP | bit, bit))
    last = max(_FAMILIES)
    for family in sorted(set(range(last)) - set(_FAMILIES)):
        made.refuse("socket", errno.EAFNOSUPPORT, (0, _MASKED, _LOW, family))
    made.refuse("socket", errno.EAFNOSUPPORT, (0, _GT, last, 0))
