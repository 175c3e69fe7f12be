"""The kind of file system of a path, and whether a store may be there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from storage.contract import BadAddress

PROC_MOUNTS = Path("/proc/mounts")

_CLOUD = re.compile(
    r"drive|google-drive-ocamlfuse|rclone|gcsfuse|s3fs|goofys|geesefs|mountpoint-s3|blobfuse2?|dropbox|onedriver"
)
_VOLATILE_TYPES = {"tmpfs", "ramfs", "devtmpfs"}
_VOLATILE_FOLDERS = ("/content", "/kaggle/working")


class Mount(NamedTuple):
    """One line of /proc/mounts."""

    device: str
    point: str
    kind: str


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
