"""The system calls that a candidate may not make, as a filter of the kernel.

Closes what namespaces and limits leave open: other processes' memory, new namespaces, memory that no limit counts
(``memfd``, System V), sockets that no network namespace holds (``AF_VSOCK``), and the kernel's larger doors.
Knows x86-64 and AArch64; elsewhere there is no filter. Not a list of what is allowed: what is not named here passes.
"""

from __future__ import annotations

import platform
import struct

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


def program(*, signals: bool) -> bytes | None:
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
