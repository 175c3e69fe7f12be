"""The file system of a path: whether an exclusive create holds between machines, and whether it outlives this one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from storage.contract import BadAddress

PROC_MOUNTS = Path("/proc/mounts")

_CLOUD = re.compile(
    r"drive|google-drive-ocamlfuse|rclone|gcsfuse|s3fs|goofys|geesefs|mountpoint-s3|blobfuse2?|dropbox|onedriver"
    r"|pcloud(\.fs)?|mega(-?fuse|fs)|seadrive|plexdrive|odrive|davfs2?",
    re.IGNORECASE,
)
_VOLATILE_TYPES = {"tmpfs", "ramfs", "devtmpfs"}
_VOLATILE_FOLDERS = ("/content", "/kaggle/working")

# --- What each kind of file system promises -----------------------------------------------------------------------

Verdict = Literal["local", "documented", "broken", "untried"]
"""local: a disk of one machine. documented: its maker promises one winner between machines. broken: several won when it
was tried. untried: nothing is known, and one machine cannot find out alone."""


@dataclass(frozen=True)
class FileSystem:
    """Kinds of file system, as /proc/mounts names them, with one verdict."""

    kinds: tuple[str, ...]
    verdict: Verdict
    why: str
    """The reason, a phrase."""


FILE_SYSTEMS = (
    FileSystem(
        (
            *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "nilfs2", "ufs"),
            *("apfs", "hfsplus", "vfat", "msdos", "exfat", "ntfs", "ntfs3", "fuseblk", "overlay", "aufs", "ecryptfs"),
            *("tmpfs", "ramfs", "devtmpfs", "rootfs", "9p", "virtiofs", "drvfs", "fakeowner"),
        ),
        "local",
        "one kernel, or the host of a virtual machine, decides each create",
    ),
    FileSystem(
        ("nfs", "nfs4"),
        "documented",
        "the server decides LINK (RFC 1813, RFC 8881); a lost reply is settled by the entry's nonce",
    ),
    FileSystem(("lustre",), "documented", "the metadata server decides; POSIX between clients by its locks"),
    FileSystem(("gpfs",), "documented", "IBM Storage Scale: POSIX between nodes by its token manager"),
    FileSystem(
        ("ceph", "fuse.ceph", "fuse.ceph-fuse"), "documented", "the metadata server decides; POSIX by its locks"
    ),
    FileSystem(
        ("cifs", "smb3", "smbfs"),
        "documented",
        "the server decides a hard link, which fails if the name exists (MS-FSCC, FileLinkInformation); a share "
        "without hard links is refused",
    ),
    FileSystem(("beegfs",), "documented", "the metadata server decides; hard links within one folder"),
    FileSystem(("gfs2", "ocfs2"), "documented", "cluster file systems: POSIX between nodes by the lock manager"),
    FileSystem(
        ("fuse.seaweedfs",),
        "broken",
        "two mounts that raced for 40 names both won 11 to 15 of them; use its S3 gateway (s3://)",
    ),
)
"""Other kinds, all other FUSE ones among them, are untried."""
UNTRIED = "nothing is known of its exclusive create between machines"
_KNOWN = {kind: system for system in FILE_SYSTEMS for kind in system.kinds}


class Mount(NamedTuple):
    """One line of /proc/mounts."""

    device: str
    point: str
    kind: str

    @property
    def system(self) -> FileSystem:
        """What is known of its kind."""
        return _KNOWN.get(self.kind) or FileSystem((self.kind,), "untried", UNTRIED)


def mount_of(path: str | os.PathLike[str], mounts: Path = PROC_MOUNTS) -> Mount | None:
    """The mount that holds `path` (which need not exist); None if the system does not report it."""
    real = os.path.realpath(path)
    best: Mount | None = None
    for mount in _read(mounts):
        inside = mount.point == "/" or real == mount.point or real.startswith(mount.point + "/")
        if inside and (best is None or len(mount.point) >= len(best.point)):
            best = mount  # a later line hides an earlier one of the same point
    return best


def refuse_cloud_mount(path: str | os.PathLike[str], mounts: Path = PROC_MOUNTS) -> None:
    """Raises BadAddress for a mounted cloud drive: writes reach the cloud late or never, and no write is exclusive."""
    mount = mount_of(path, mounts)
    if mount is None or not mount.kind.startswith("fuse"):
        return
    if any(_CLOUD.fullmatch(word) for word in (mount.kind.removeprefix("fuse."), mount.device)):
        raise BadAddress(
            f"{path} is on a mounted cloud drive ({mount.kind} at {mount.point}). Files written there reach the cloud "
            "later or never, so two sessions would overwrite each other. Use the service's own address (drive://, "
            "dropbox:// or s3://), or a folder on a real disk."
        )


def refuse_broken(path: str | os.PathLike[str], mounts: Path = PROC_MOUNTS) -> None:
    """Raises BadAddress for a file system that let two clients create one name."""
    mount = mount_of(path, mounts)
    if mount is not None and mount.system.verdict == "broken":
        raise BadAddress(
            f"{path} must not hold a run: on {mount.kind} (mounted at {mount.point}) {mount.system.why}. Two sessions "
            "could overwrite each other's work there."
        )


def evaporates(path: str | os.PathLike[str], mounts: Path = PROC_MOUNTS) -> bool:
    """Whether files at `path` are lost when this machine ends: a RAM disk, Colab's or Kaggle's own disk."""
    mount = mount_of(path, mounts)
    if mount is not None and mount.kind in _VOLATILE_TYPES:
        return True
    real = os.path.realpath(path)
    return any(real == folder or real.startswith(folder + "/") for folder in _VOLATILE_FOLDERS)


def _read(mounts: Path) -> list[Mount]:
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines]
    return [Mount(_unescape(row[0]), _unescape(row[1]), row[2]) for row in rows if len(row) >= 3]


def _unescape(text: str) -> str:
    """Blanks in mount points are written as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)
