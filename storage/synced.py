"""Recognizes folders that a sync client copies between machines (Dropbox, OneDrive, Syncthing, ...)."""

from __future__ import annotations

import os
import re
import stat as modes
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

from storage.contract import BadAddress

_MOST = 10_000
"""Most names of one folder that are read."""


@dataclass(frozen=True)
class Client:
    """A sync client, the marks it leaves in a folder that it copies, and how people name such folders."""

    title: str
    instead: str
    """The address to use instead, a phrase."""
    marks: tuple[tuple[str, Literal["file", "folder", "any"]], ...] = ()
    """(path below the folder, kind) of files that only this client makes there."""
    varying: str = ""
    """Pattern of a mark whose name varies."""
    folders: str = ""
    """Pattern of the folder's own name, alone or after its parent's."""


_BUCKET = "a bucket (s3://BUCKET/FOLDER)"
CLIENTS = (
    Client(
        "Dropbox",
        "Dropbox itself (dropbox:///FOLDER)",
        # ~/.dropbox is a folder with the client's settings, in a home that is not copied
        ((".dropbox.cache", "folder"), (".dropbox", "file"), (".maestral.cache", "folder")),
        folders=r"Dropbox|Dropbox \([^/]+\)|[^/]+ Dropbox",
    ),
    Client(
        "Google Drive",
        "Google Drive itself (drive://new)",
        ((".tmp.driveupload", "folder"), (".tmp.drivedownload", "folder")),
        folders=r"Google ?Drive|GoogleDrive-[^/]+|My Drive|Insync",
    ),
    Client(
        "OneDrive",
        _BUCKET,
        ((".849C9593-D756-4E56-8D6E-42412F2A707B", "any"),),
        folders=r"OneDrive|OneDrive ?- ?[^/]+|SkyDrive",
    ),
    Client("Syncthing", _BUCKET, ((".stfolder", "any"),)),
    Client(
        "Nextcloud or ownCloud",
        _BUCKET,
        ((".csync_journal.db", "file"), (".owncloudsync.log", "file"), (".nextcloudsync.log", "file")),
        varying=r"\._?sync_[0-9a-f]+\.db",
        folders=r"Nextcloud\d*|ownCloud\d*",
    ),
    Client("iCloud Drive", _BUCKET, folders=r"Library/Mobile Documents|com~apple~CloudDocs|iCloud ?Drive"),
    Client("pCloud", _BUCKET, folders=r"pCloud ?Drive|pCloud ?Sync"),
    Client("MEGA", _BUCKET, ((".megaignore", "file"), (".debris", "folder")), folders=r"MEGA|MEGAsync( Downloads)?"),
    Client("Resilio Sync", _BUCKET, ((".sync/ID", "file"), (".SyncID", "file")), folders=r"Resilio Sync|BTSync"),
    Client("Yandex Disk", _BUCKET, ((".sync/core.log", "file"),), folders=r"Yandex\.Disk"),
    Client("Synology Drive", _BUCKET, ((".SynologyWorkingDirectory", "folder"),), folders=r"SynologyDrive"),
    Client("Box", _BUCKET, folders=r"Box Sync|Box-Box"),
    Client("Proton Drive", _BUCKET, folders=r"ProtonDrive-[^/]+|Proton Drive"),
    Client("Seafile", _BUCKET, folders=r"Seafile|Seadrive"),
    Client("FreeFileSync", _BUCKET, ((".sync.ffs_db", "file"), ("sync.ffs_db", "file"))),
    Client("a cloud service", _BUCKET, folders=r"Library/CloudStorage"),
)
"""Marks before names: a folder named `Dropbox` that holds `.stfolder` is copied by both."""


@dataclass(frozen=True)
class Synced:
    """A folder that a sync client copies, or seems to copy."""

    folder: Path
    client: Client
    mark: str = ""
    """The client's file or folder there; '' if the folder is known by its name."""


def synced(path: str | os.PathLike[str]) -> Synced | None:
    """The nearest parent of `path` (or itself; it need not exist) that a sync client copies; None if none is known.

    Links are resolved: clients copy a link, not the folder behind it.
    """
    real = Path(os.path.realpath(path))
    for folder in (real, *real.parents):
        names = _names(folder)
        for client in CLIENTS:
            if mark := _mark(folder, names, client):
                return Synced(folder, client, mark)
        for client in CLIENTS:
            own = (folder.name, f"{folder.parent.name}/{folder.name}")
            if client.folders and any(re.fullmatch(client.folders, name) for name in own):
                return Synced(folder, client)
    return None


def refuse_synced(path: str | os.PathLike[str]) -> None:
    """Raises BadAddress for a folder that a sync client copies: each machine has its own copy, so both sessions win."""
    found = synced(path)
    if found is None:
        return
    seen = f"it holds {found.mark}" if found.mark else "by its name"
    stale = "remove that mark" if found.mark else "give it another name"
    raise BadAddress(
        f"{path} is in a folder that {found.client.title} copies between machines ({found.folder}: {seen}). Each "
        "machine writes to its own copy, so two sessions would train the same steps and overwrite each other. Use "
        f"{found.client.instead}, or a folder that nothing copies. If nothing copies this one any more, {stale}."
    )


def _mark(folder: Path, names: Collection[str] | None, client: Client) -> str:
    """The client's mark in a folder with these names (None: unknown); '' if there is none."""
    for name, kind in client.marks:
        if (names is None or name.partition("/")[0] in names) and _is(folder / name, kind):
            return name
    return next((name for name in names or () if client.varying and re.fullmatch(client.varying, name)), "")


def _is(path: Path, kind: str) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return {"file": modes.S_ISREG(mode), "folder": modes.S_ISDIR(mode)}.get(kind, True)


def _names(folder: Path) -> Collection[str] | None:
    """The names in a folder, so that an automounter is not asked for names that are absent; None if there are too many
    or they are hidden from this user."""
    try:
        with os.scandir(folder) as entries:
            found = {entry.name for entry in islice(entries, _MOST + 1)}
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError:
        return None
    return found if len(found) <= _MOST else None
