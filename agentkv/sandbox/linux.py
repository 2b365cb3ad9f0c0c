"""The Linux system calls that Python 3.11 has no name for, each raising ``OSError`` as :mod:`os` would.

Knows numbers and structures of the kernel's interface; refuses to know what a sandbox is. Nothing is loaded on import.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP = 1, 4, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 36, 38, 22
_SECCOMP_MODE_FILTER = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "ppc64le": 203, "s390x": 217}
_SIGKILL = 9
_LAST_CAPABILITY = 63


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> int:
    result: int = getattr(_libc(), name)(*arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def unshare(flags: int) -> None:
    """Leave the namespaces that ``flags`` name for new ones."""
    _call("unshare", ctypes.c_int(flags))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    _call(
        "mount",
        os.fsencode(source),
        os.fsencode(target),
        kind.encode() or None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )


def umount_detached(target: str) -> None:
    """Take a mount out of sight at once, whoever still uses it."""
    _call("umount2", os.fsencode(target), ctypes.c_int(MNT_DETACH))


def pivot_root_here() -> None:
    """Make the working directory, a mount point, the root, and the old root unreachable."""
    number = _PIVOT_ROOT.get(platform.machine())
    if number is None:
        raise OSError(38, f"pivot_root: unknown on {platform.machine()}")
    _call("syscall", ctypes.c_long(number), b".", b".")
    umount_detached(".")  # the old root lies over the new one
    os.chdir("/")


def _prctl(option: int, argument: int = 0) -> None:
    zero = ctypes.c_ulong(0)
    _call("prctl", ctypes.c_int(option), ctypes.c_ulong(argument), zero, zero, zero)


def die_with_parent() -> None:
    """Be killed when the parent ends. A change of user takes this back, so call it after."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def become_subreaper() -> None:
    """Inherit every orphan among the descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """No set-uid file gives privileges any more, here and below."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capability_bounds() -> None:
    """No capability can be had again by an ``exec``; those that the kernel lacks or refuses are passed over."""
    for capability in range(_LAST_CAPABILITY + 1):
        try:
            _prctl(_PR_CAPBSET_DROP, capability)
        except OSError:
            return


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def install_filter(program: bytes) -> None:
    """Install a seccomp filter, 8 bytes an instruction, for this process and all below it."""
    described = _Program(len(program) // 8, program)
    zero = ctypes.c_ulong(0)
    mode = ctypes.c_ulong(_SECCOMP_MODE_FILTER)
    _call("prctl", ctypes.c_int(_PR_SET_SECCOMP), mode, ctypes.byref(described), zero, zero)
