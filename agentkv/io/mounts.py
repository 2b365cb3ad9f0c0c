"""Whether a folder is on a network file system, where a shared memory map, as SQLite's log needs it, is not shared."""

from __future__ import annotations

from pathlib import Path

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = ("nfs", "cifs", "smb", "9p", "ceph", "glusterfs", "lustre", "afs", "fuse.sshfs", "fuse.s3fs", "fuse.rclone")


def is_network(folder: Path) -> bool:
    """Whether the nearest mount above ``folder`` is a network file system; False where the system does not say."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    mounts = {}
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 2:
            mounts[fields[1].replace("\\040", " ")] = fields[2]  # a later one covers an earlier one
    here = next((str(place) for place in (folder, *folder.parents) if str(place) in mounts), "")
    return mounts.get(here, "").startswith(_NETWORK)
