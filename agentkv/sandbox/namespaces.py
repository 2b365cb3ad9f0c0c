"""Namespaces for a candidate: own process ids, network, mounts and names; its files are a read-only selection.

Made by the launcher, with and without root, or by ``bwrap`` (bubblewrap). The functions change the calling process for
good, so they are for processes that were forked for it.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from pathlib import Path

from agentkv.sandbox import linux

NOBODY = 65534
HOME, WORK = "/tmp", "/tmp/work"
_WORLD = (
    linux.CLONE_NEWNS
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWNET
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
)
_SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_DEVICES = ("null", "zero", "full", "random", "urandom")
_FIRST_OWN_UID, _OWN_UIDS = 0x60000000, 0x10000000
# What a mount in a user namespace must keep from the mount that it shows.
_KEPT = {
    getattr(os, "ST_NOSUID", 2): linux.MS_NOSUID,
    getattr(os, "ST_NODEV", 4): linux.MS_NODEV,
    getattr(os, "ST_NOEXEC", 8): linux.MS_NOEXEC,
    getattr(os, "ST_NOATIME", 1024): 1024,
    getattr(os, "ST_NODIRATIME", 2048): 2048,
    getattr(os, "ST_RELATIME", 4096): 1 << 21,
}
_MOUNT_POINT_ESCAPES = {"\\040": " ", "\\011": "\t", "\\012": "\n", "\\134": "\\"}


def system_paths() -> list[str]:
    """What a program of the system needs to run: its folders, and the linker's files."""
    return [path for path in (*_SYSTEM, *_SYSTEM_FILES) if os.path.lexists(path)]


def unused_uid() -> int:
    """A user id that nobody else has, if the system has room for it, else that of ``nobody``.

    The limit on processes counts by user, so a user of its own makes it count the candidate's alone; root is not bound.
    """
    uid = _FIRST_OWN_UID + int.from_bytes(os.urandom(4), "big") % _OWN_UIDS
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/uid_map").read_text().splitlines():
            first, _, length = (int(field) for field in line.split())
            if first <= uid < first + length:
                return uid
    return NOBODY


def leave() -> None:
    """Enter new namespaces; the next child is process 1 there. Without root, by way of a user namespace."""
    if os.geteuid() == 0:
        linux.unshare(_WORLD)
        return
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(_WORLD | linux.CLONE_NEWUSER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{NOBODY} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{NOBODY} {gid} 1")


def furnish(place: str, readable: Sequence[str], disk_bytes: int, uid: int) -> None:
    """Make a new root at the folder ``place`` and go there, as process 1 of the new namespaces.

    ``readable`` is shown at its own paths, read-only. ``/tmp`` (also at ``/dev/shm``) is in memory, holds
    ``disk_bytes`` at most and belongs to ``uid``. Raises OSError with the first step that was refused.
    """
    linux.mount("none", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    safe = linux.MS_NOSUID | linux.MS_NODEV
    linux.mount("tmpfs", place, "tmpfs", safe, "mode=755,size=1m")
    # `/tmp` first: an interpreter that lies below it must not be covered.
    Path(f"{place}/tmp").mkdir()
    inodes = max(1024, disk_bytes >> 12)
    linux.mount("tmpfs", f"{place}/tmp", "tmpfs", safe, f"mode=1777,size={disk_bytes},nr_inodes={inodes}")
    for path in readable:
        _show(place, path)
    for name in _DEVICES:
        _bind(f"/dev/{name}", f"{place}/dev/{name}")
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}.items():
        Path(f"{place}/dev/{name}").symlink_to(target)
    for folder in ("/proc", "/dev/shm"):
        Path(place + folder).mkdir(parents=True, exist_ok=True)
    linux.mount(f"{place}/tmp", f"{place}/dev/shm", flags=linux.MS_BIND)
    linux.mount("proc", f"{place}/proc", "proc", safe | linux.MS_NOEXEC | linux.MS_RDONLY)
    Path(place + WORK).mkdir()
    os.chown(place + WORK, uid, uid if uid != NOBODY or os.geteuid() == 0 else -1)
    os.chdir(place)
    linux.pivot_root_here()
    linux.mount("none", "/", flags=linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | safe)
    socket.sethostname("sandbox")
    os.chdir(WORK)


def _show(place: str, path: str) -> None:
    """``path`` at the same place in the new root; a link stays a link."""
    target = Path(place + path)
    if target.exists() or target.is_symlink():
        return
    if Path(path).is_symlink():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(Path(path).readlink())
        return
    _bind(path, str(target))
    for mounted in _mounts_below(str(target)):
        kept = _KEPT.items()
        flags = sum(mount for seen, mount in kept if os.statvfs(mounted).f_flag & seen)
        flags |= linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
        linux.mount("none", mounted, flags=linux.MS_REMOUNT | linux.MS_BIND | flags)


def _bind(path: str, target: str) -> None:
    shown = Path(target)
    if Path(path).is_dir():
        shown.mkdir(parents=True, exist_ok=True)
    else:
        shown.parent.mkdir(parents=True, exist_ok=True)
        shown.touch()
    linux.mount(path, target, flags=linux.MS_BIND | linux.MS_REC)


def _mounts_below(target: str) -> list[str]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split()[4]
        for escape, plain in _MOUNT_POINT_ESCAPES.items():
            point = point.replace(escape, plain)
        if point == target or point.startswith(target + "/"):
            found.append(point)
    return found


def bubblewrap_command(bwrap: str, readable: Sequence[str], disk_bytes: int, filter_fd: int | None) -> list[str]:
    """The words before the candidate's own that have bubblewrap, 0.8 or later, make the same namespaces.

    ``filter_fd``: where the seccomp filter is read from.
    """
    words = [bwrap, "--unshare-all", "--unshare-user", "--die-with-parent", "--new-session"]
    words += ["--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox", "--cap-drop", "ALL"]
    words += ["--dev", "/dev", "--proc", "/proc"]
    for folder in ("/dev/shm", "/tmp"):
        words += ["--size", str(disk_bytes), "--tmpfs", folder]
    for path in readable:
        place = Path(path)
        words += ["--symlink", str(place.readlink()), path] if place.is_symlink() else ["--ro-bind", path, path]
    words += ["--dir", WORK, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", WORK]
    # The filter refuses new user namespaces; `--disable-userns` makes bwrap 0.8 forget that it is to die with us.
    words += ["--disable-userns"] if filter_fd is None else ["--seccomp", str(filter_fd)]
    return [*words, "--"]
