"""The Linux system calls that Python 3.11 has no name for, and the filter of system calls that a candidate gets.

Each call raises ``OSError`` as :mod:`os` would. Nothing is loaded on import.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import struct

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
    """Move to new namespaces of the kinds in ``flags``."""
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
    """Unmount at once, also while a process uses it."""
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
    """Be killed when the parent ends. A change of user resets this, so call it after."""
    _prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def become_subreaper() -> None:
    """Become the parent of every orphan among the descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def forbid_new_privileges() -> None:
    """No set-uid file gives privileges any more, here and below."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def drop_capability_bounds() -> None:
    """Drop every capability from the bounding set, so that no ``exec`` regains one; stops at the first refusal."""
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


# --- the seccomp filter -------------------------------------------------------------------------------
# Closes what namespaces and limits leave open: other processes' memory, new namespaces, memory that no limit counts
# (``memfd``, System V), sockets that no network namespace holds (``AF_VSOCK``), and the kernel's larger doors. For
# x86-64 and AArch64; elsewhere there is no filter. Not a list of what is allowed: what is not named here passes.

# name: (x86-64, AArch64)
_DENIED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "syslog": (103, 116), "acct": (163, 89), "quotactl": (179, 60), "personality": (135, 92),
}  # fmt: skip
# Without a pid namespace a signal could reach the parent.
_SIGNALS = {
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)
_NAMESPACE_FLAGS = 0x7E020080
_AF_UNIX = 1
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT_0 = 0, 4, 16
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97


def _statement(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int, error: int) -> bytes:
    return _statement(_JUMP_EQUAL, number, 0, 1) + _statement(_RETURN, _ERRNO | error)


def filter_program(*, signals: bool) -> bytes | None:
    """The filter, 8 bytes an instruction; None for a machine that it does not know.

    ``signals=False`` also refuses to signal any process, and every socket.
    """
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        return None
    column = list(_AUDIT_ARCH).index(machine)
    parts = [
        _statement(_LOAD, _ARCH),
        _statement(_JUMP_EQUAL, _AUDIT_ARCH[machine], 1, 0),
        _statement(_RETURN, _ERRNO | _EPERM),
        _statement(_LOAD, _NUMBER),
    ]
    if machine == "x86_64":
        parts += [_statement(_JUMP_GREATER_EQUAL, _X32, 0, 1), _statement(_RETURN, _ERRNO | _ENOSYS)]
    denied = _DENIED if signals else _DENIED | _SIGNALS
    parts += [_refuse(numbers[column], _EPERM) for numbers in denied.values()]
    parts.append(_refuse(_CLONE3[column], _ENOSYS))  # its flags are out of reach; libraries fall back to clone
    parts += _refuse_by_argument(_CLONE[column], _statement(_JUMP_SET, _NAMESPACE_FLAGS, 0, 1), _EPERM)
    if signals:
        parts += _refuse_by_argument(_SOCKET[column], _statement(_JUMP_EQUAL, _AF_UNIX, 1, 0), _EAFNOSUPPORT)
    else:
        parts.append(_refuse(_SOCKET[column], _EAFNOSUPPORT))
    parts.append(_statement(_RETURN, _ALLOW))
    return b"".join(parts)


def _refuse_by_argument(number: int, test: bytes, error: int) -> list[bytes]:
    """``test`` looks at the lower half of the call's first argument and steps over the refusal, or does not."""
    return [
        _statement(_JUMP_EQUAL, number, 0, 4),
        _statement(_LOAD, _ARGUMENT_0),
        test,
        _statement(_RETURN, _ERRNO | error),
        _statement(_RETURN, _ALLOW),
    ]
