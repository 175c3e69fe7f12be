"""Compiled kernels of one configuration on one machine: their folder, their key, their archive.

Triton keeps each kernel in a folder named after a hash of everything that decides its code, source and compiler
included, so a wrong kernel is never used; the key here only shows which archive is worth fetching. The archive is one
safetensors file of bytes with the files that a launch reads: binaries, their metadata, host modules. The `__grp__`
files that link them hold absolute paths, so unpacking an archive writes new ones.

Of torch.compile's own folder only the choices of its autotuner travel, small JSON objects. Its graphs are pickles.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

FORMAT = "1"
MAX_FILES = 4096
KEYED = ("gpu", "capability", "driver", "torch", "cuda", "triton", "python")
"""Keys of the fingerprint that matter; the others describe how a CPU rounds."""
_FOLDER = re.compile(r"[A-Z2-7]{52}")
"""A SHA-256 in Triton's base32."""
_FILE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,199}\.(?:cubin|json|so)")
_OURS = re.compile(r"relay-[0-9a-f]{16}")
"""Name of the folder of one key."""
_GROUP = "__grp__"
INDUCTOR = "TORCHINDUCTOR_CACHE_DIR"
"""Environment variable: torch.compile's folder."""
_CHOICES = re.compile(r"[a-z2-7]{2}")
"""Name of a folder within torch.compile's."""
_CHOICE = re.compile(r"[A-Za-z0-9_-]{1,199}\.best_config")
_CHOICE_BYTES = 4096
"""Most that the autotuner writes about a kernel: block sizes, warps, stages."""
Files = dict[tuple[str, str], bytes]
"""Content by folder and name."""


def key_of(facts: Mapping[str, Any], kernels: Path) -> str:
    """64 hex digits: a hash of the facts, the machine's kind of binaries, and all kernel sources in the folder."""
    sources = {str(path.relative_to(kernels)): _sha256(path.read_bytes()) for path in sorted(kernels.rglob("*.py"))}
    here = [platform.machine(), *platform.libc_ver(), str(sysconfig.get_config_var("EXT_SUFFIX"))]
    material = {"format": FORMAT, "facts": dict(facts), "here": here, "sources": sources}
    return _sha256(json.dumps(material, sort_keys=True).encode())


def triton_home(environ: Mapping[str, str]) -> Path:
    """Triton's folder of compiled kernels, by its own rules; not the folder that an earlier `open` set."""
    home = environ.get("TRITON_HOME") or os.path.expanduser("~")  # noqa: PTH111 - Path's raises for a user without a home
    found = Path(environ.get("TRITON_CACHE_DIR") or Path(home) / ".triton" / "cache")
    return found.parent if _OURS.fullmatch(found.name) else found


class KernelCache:
    """A separate folder for one key, so that an archive never holds another program's kernels."""

    def __init__(self, key: str, home: Path) -> None:
        self.key = key
        self.folder = home / f"relay-{key[:16]}"
        self._choices = self.folder / "inductor"
        self._counts = {"kernels_loaded": 0, "kernels_compiled": 0}
        self._reports = False
        """Whether Triton reports the kernels that it finds and compiles."""

    def open(self) -> int:
        """Make Triton use the folder; returns the number of kernels there. Raises OSError."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.environ["TRITON_CACHE_DIR"] = str(self.folder)
        os.environ[INDUCTOR] = str(self._choices)
        self._reports = _listen(self._count)
        return sum(1 for _ in self.folder.glob("*/*.cubin"))

    def unpack(self, data: bytes) -> int:
        """Add the kernels of an archive to the folder, without changing existing ones. Returns its files.

        Raises ValueError, before a file is written, for anything but an archive of `pack`; OSError.
        """
        files = _read(data)
        kernels: dict[str, dict[str, bytes]] = {}
        choices: Files = {}
        for (folder, name), content in files.items():
            if _is_choice(folder, name):
                choices[folder, name] = content
            else:
                kernels.setdefault(folder, {})[name] = content
        with tempfile.TemporaryDirectory(prefix="incoming-", dir=self.folder) as incoming:
            for folder, contents in kernels.items():
                self._place(Path(incoming), folder, contents)
            for (folder, name), content in choices.items():
                self._choose(Path(incoming), self._choices / folder / name, content)
        return len(files)

    def pack(self) -> bytes:
        """The folder's finished kernels; the same bytes for the same files. Raises ValueError if there are too many."""
        found = (*self._finished(), *self._chosen())
        files = {f"{path.parent.name}/{path.name}": path.read_bytes() for path in found}
        if not 0 < len(files) <= MAX_FILES:
            raise ValueError(f"{len(files)} files of compiled kernels: an archive holds 1 to {MAX_FILES}")
        return save({name: np.frombuffer(content, np.uint8) for name, content in files.items()})

    def counts(self) -> dict[str, int]:
        """Kernels that this process found in the folder, and those that it compiled; {} if Triton reports none."""
        return dict(self._counts) if self._reports else {}

    def _count(self, *, cache_hit: bool, **_: Any) -> None:
        self._counts["kernels_loaded" if cache_hit else "kernels_compiled"] += 1

    def _place(self, incoming: Path, folder: str, contents: Mapping[str, bytes]) -> None:
        """Writes one kernel, whole or not at all; Triton may be writing the same one at the same time."""
        made, final = incoming / folder, self.folder / folder
        made.mkdir()
        for name, content in contents.items():
            (made / name).write_bytes(content)
            if name.endswith(".json"):
                group = {child: str(final / child) for child in sorted({name, _binary(name)})}
                (made / f"{_GROUP}{name}").write_text(json.dumps({"child_paths": group}))
        if not final.exists():
            _rename(made, final)

    def _choose(self, incoming: Path, final: Path, content: bytes) -> None:
        """Writes one choice; one that this machine made stays."""
        if not final.exists():
            final.parent.mkdir(parents=True, exist_ok=True)
            (incoming / final.name).write_bytes(content)
            (incoming / final.name).replace(final)

    def _chosen(self) -> Iterator[Path]:
        """The autotuner's choices."""
        for path in sorted(self._choices.glob("*/*.best_config")):
            if _is_choice(path.parent.name, path.name) and path.is_file() and not path.is_symlink():
                yield path

    def _finished(self) -> Iterator[Path]:
        """Binaries with their metadata, if Triton has written the group, its last file; and host modules."""
        for folder in sorted(self.folder.iterdir()):
            if not _FOLDER.fullmatch(folder.name) or folder.is_symlink():
                continue
            names = {path.name for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
            metadata = {name for name in names if name.endswith(".json") and f"{_GROUP}{name}" in names}
            modules = {name for name in names if name.endswith(".so")}
            wanted = {file for name in metadata if _binary(name) in names for file in (name, _binary(name))} | modules
            yield from (folder / name for name in sorted(wanted) if _FILE.fullmatch(name))


def _read(data: bytes) -> Files:
    """The files of an archive, each checked. Raises ValueError."""
    try:
        arrays = load(data)
    except (SafetensorError, KeyError) as error:  # KeyError: a type that numpy lacks
        raise ValueError(f"not an archive: {error}") from error
    if len(arrays) > MAX_FILES:
        raise ValueError(f"it holds {len(arrays)} files, more than {MAX_FILES}")
    files: Files = {}
    for path, array in arrays.items():
        folder, _, name = path.partition("/")
        plain = array.dtype == np.uint8 and array.ndim == 1
        of_kernel = _FOLDER.fullmatch(folder) and _FILE.fullmatch(name) and not name.startswith(_GROUP)
        if not plain or not (of_kernel or _is_choice(folder, name)):
            raise ValueError(f"it holds {path[:100]!r}, which is not a file of a compiled kernel")
        files[folder, name] = array.tobytes()
    _check_whole(files)
    return files


def _check_whole(files: Files) -> None:
    """Checks that names differ on every file system, that each binary has its metadata, and each choice is JSON."""
    if len({(folder.casefold(), name.casefold()) for folder, name in files}) != len(files):
        raise ValueError("two of its names differ in case only")
    for (folder, name), content in files.items():
        if _is_choice(folder, name):
            _check_choice(f"{folder}/{name}", content)
            continue
        partner = _binary(name) if name.endswith(".json") else f"{name.removesuffix('.cubin')}.json"
        if not name.endswith(".so") and (folder, partner) not in files:
            raise ValueError(f"{folder}/{name} lacks {partner}")


def _is_choice(folder: str, name: str) -> bool:
    return bool(_CHOICES.fullmatch(folder) and _CHOICE.fullmatch(name))


def _check_choice(name: str, content: bytes) -> None:
    """Raises ValueError unless it is a small JSON object."""
    if len(content) > _CHOICE_BYTES:
        raise ValueError(f"{name} has {len(content)} bytes, more than {_CHOICE_BYTES}")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON") from error
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a JSON object")


def _listen(count: Any) -> bool:
    """Make Triton report for each kernel whether it was found or compiled; False if it cannot."""
    try:
        from triton import knobs
    except ImportError:
        return False
    if not hasattr(knobs.compilation, "listener"):
        return False
    knobs.compilation.listener = count
    return True


def _rename(made: Path, final: Path) -> None:
    try:
        made.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def _binary(metadata: str) -> str:
    """The name of the binary that belongs to a metadata file."""
    return f"{metadata.removesuffix('.json')}.cubin"


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
