"""A checkpoint's files: safetensors and state.json, checked before anything is allocated.

A model decides which tensors are in which file, by the beginning of their names, and may add fields to state.json.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from storage.regular import is_there

Files = Mapping[str, tuple[str, ...]]
"""Names of files, and the beginning of the tensor names in each."""
STATE = "state.json"
MAX_HEADER = 1 << 20
_MAX_STATE = 1 << 18
TYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""Types of tensors that can be stored, as safetensors names them."""
Short = Annotated[str, Field(max_length=500)]


class StateDocument(BaseModel):
    """state.json: everything except tensors."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    format: Literal[1] = 1
    step: Annotated[int, Field(ge=0, lt=2**53)]
    seed: Annotated[int, Field(ge=0, lt=2**31)]
    config: dict[str, Any]
    code: Short
    """Version of this package."""
    fingerprint: dict[str, Short]
    metrics: dict[str, float] = {}
    """Means since the previous checkpoint."""

    def text(self) -> str:
        """The file's text."""
        return self.model_dump_json(indent=1)


Document = TypeVar("Document", bound=StateDocument)


def save(
    folder: Path,
    files: Files,
    tensors: Mapping[str, Tensor],
    document: StateDocument,
    more: Mapping[str, Mapping[str, Tensor]] | None = None,
    texts: Mapping[str, bytes] | None = None,
) -> tuple[str, ...]:
    """Write all files into an empty folder, fsynced; their names, sorted. tensors: the canonical state's.

    more: further files and the tensors in each. texts: other files. Raises OSError, also if the library reports a full
    disk by its own error.
    """
    parts = {
        file: {name: value for name, value in tensors.items() if name.startswith(prefixes)}
        for file, prefixes in files.items()
    }
    for file, chosen in (*parts.items(), *(more or {}).items()):
        try:
            save_file({name: value.cpu().contiguous() for name, value in chosen.items()}, folder / file)
        except SafetensorError as error:
            raise _refused(error, file) from error
    (folder / STATE).write_text(document.text() + "\n")
    for file, text in (texts or {}).items():
        (folder / file).write_bytes(text)
    names = (*files, *(more or {}), *(texts or {}), STATE)
    for path in (*(folder / name for name in names), folder):
        _fsync(path)
    return tuple(sorted(names))


def _refused(error: SafetensorError, file: str) -> OSError:
    """The OSError for an error that the library has only in words."""
    found = re.search(r"os error (\d{1,4})\)", str(error))
    code = int(found[1]) if found else errno.EIO
    return OSError(code, os.strerror(code), file)


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def load_document(folder: Path, kind: type[Document]) -> Document:
    """state.json, validated. Raises ValueError (one line)."""
    path = folder / STATE
    if plain_size(path) > _MAX_STATE:
        raise ValueError(f"{STATE} has {plain_size(path)} bytes; at most {_MAX_STATE} are accepted")
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{STATE} is not valid: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def load_tensors(folder: Path, files: Files, expected: Mapping[str, Tensor]) -> None:
    """Copy the files' tensors into `expected` (live tensors of a state, every name, on any device).

    All names, shapes, types and byte counts of all files are checked before the first copy; finite values are
    checked while copying, as every snapshot is finite. Raises ValueError (one line) for a difference.
    """
    for file, prefixes in files.items():
        wanted = {name: value for name, value in expected.items() if name.startswith(prefixes)}
        check_tensors(folder / file, wanted)
    for file in files:
        for name, value in read_tensors(folder / file):
            if value.is_floating_point() and not bool(value.isfinite().all()):
                raise ValueError(f"{file}: {name} holds a value that is not finite")
            expected[name].copy_(value)


def check_tensors(path: Path, wanted: Mapping[str, Tensor], typed: bool = False) -> None:
    """Raises ValueError unless the file holds exactly these names, shapes and types; reads only the header.

    typed: a user named the file, so it may be a link, which in a checkpoint may be hostile. Raises OSError, then, for
    one that leads to no file.
    """
    content = sum(value.numel() * value.element_size() for value in wanted.values())
    size = path.stat().st_size if typed and is_there(path) else plain_size(path)
    if not content <= size <= content + MAX_HEADER:
        raise ValueError(f"{path.name} has {size} bytes where {content} and a small header belong")
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            odd = sorted(names ^ set(wanted))
            if odd:
                what = "lacks" if odd[0] in wanted else "holds an unknown"
                raise ValueError(f"{path.name} {what} tensor {odd[0]!r:.200}")
            for name, value in wanted.items():
                part = file.get_slice(name)
                found, right = (part.get_dtype(), tuple(part.get_shape())), (TYPES[value.dtype], tuple(value.shape))
                if found != right:
                    what = f"{name} is {found[0]} {found[1]} where {right[0]} {right[1]} belongs"
                    raise ValueError(f"{path.name}: {what}")
    except SafetensorError as error:
        raise ValueError(f"{path.name} is not a safetensors file: {error}") from error


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """(name, CPU tensor), one at a time; run `check_tensors` first."""
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118 (the file object is no mapping)
            yield name, file.get_tensor(name)


def plain_size(path: Path) -> int:
    """Size of a regular file, bytes. Raises ValueError if it is missing."""
    if not path.is_file() or path.is_symlink():
        raise ValueError(f"{path.name} is missing")
    return path.stat().st_size
