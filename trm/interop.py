"""Imports and exports weights under the reference's names: safetensors, and the reference's own `step_N`.

Names and shapes are those of reference/trm.md 2: `model.inner.*`, after `_orig_mod.` if the model was compiled. None of
these files is a whole state, so training cannot continue exactly from them. safetensors need no trust. A `step_N`,
which torch saved, is opened only by a torch that does it safely.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor
from torch._weights_only_unpickler import UnpicklingError  # type: ignore[attr-defined]  # pickle itself is banned here

from relay.torch.faults import TaskError
from relay.torch.files import readable
from relay.torch.statefile import read_tensors
from storage.regular import is_there
from storage.wording import counted
from trm.act import TRM
from trm.checkpoint import TABLE, load_document, read_table
from trm.config import LIST, Arch, Data
from trm.data.lfs import refuse_pointer
from trm.train import TrainState

COMPILED = "_orig_mod."
_WRAPPERS = (COMPILED, "model.")
"""Prefixes torch.compile and the reference's loss head put in front of a name."""


def plain_name(name: str) -> str:
    """The name without wrapper prefixes: `_orig_mod.model.inner.x` and `model.inner.x` are `inner.x`."""
    for wrapper in _WRAPPERS:
        name = name.removeprefix(wrapper)
    return name


class WrongShape(ValueError):
    """A tensor of the file has another shape than the model's."""


def load_named(model: TRM, tensors: Mapping[str, Tensor]) -> None:
    """Copy reference-named tensors into the model. Raises ValueError (one line) naming the first that does not fit.

    The initial states may come in another float type; every other type must match.
    """
    ours = model.state_dict()
    theirs = {plain_name(name): value for name, value in tensors.items()}
    if len(theirs) < len(tensors):
        raise ValueError("weights hold one tensor under two names, with and without a wrapper's prefix")
    odd = sorted(ours.keys() ^ theirs.keys())
    if odd:
        raise ValueError(f"weights {'lack' if odd[0] in ours else 'hold an unknown'} tensor {odd[0]!r:.200}")
    for name, value in theirs.items():
        if value.shape != ours[name].shape:
            raise WrongShape(f"{name} is {tuple(value.shape)} where {tuple(ours[name].shape)} belongs")
    for name, value in theirs.items():
        ours[name].copy_(value)


def import_weights(state: TrainState, path: Path) -> None:
    """Start training from a reference-named safetensors file: weights and EMA are the file's, the rest stays fresh.

    Raises ValueError (one line) if the file is damaged or does not fit the model.
    """
    room = 2 * sum(value.numel() * value.element_size() for value in state.model.state_dict().values()) + 2**20
    if path.stat().st_size > room:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, far more than this model's weights")
    try:
        load_named(state.model, dict(read_tensors(path)))
    except SafetensorError as error:
        raise ValueError(f"{path.name} is not a safetensors file: {error}") from error
    state.reset_ema()


SAFE = (2, 10)
"""The oldest torch whose `weights_only=True` is safe: all older ones have CVE-2026-24747."""
PUZZLES = "inner.puzzle_emb.weights"
MAX_ROWS = 2_000_000
"""Rows of another run's puzzle table; ARC-AGI-2 with 1,000 augmentations has 1.3 million."""
_HEADER = 1 << 20
_INITIAL = ("inner.H_init", "inner.L_init")


def write_step(path: Path, weights: Mapping[str, Tensor], compiled: bool = True) -> None:
    """Write weights (`inner.*`) as the reference saves them.

    compiled: with the prefix of torch.compile, which the reference uses by default.
    """
    prefix = f"{COMPILED}model." if compiled else "model."
    named = {prefix + plain_name(name): value.detach().cpu().clone() for name, value in weights.items()}
    packed = io.BytesIO()
    torch.save(named, packed)
    path.write_bytes(packed.getbuffer())


def load_step(model: TRM, path: Path) -> list[str]:
    """Copy the weights of a reference's file into the model; returns lines to print.

    A puzzle table with another number of rows becomes the mean of its rows in each row, as in the reference.
    Raises ValueError (one line) if torch is too old to open it safely, or if a name, shape or type does not fit.
    """
    check_torch(torch.__version__)
    ours = model.state_dict()
    _check_size(path, sum(value.numel() * value.element_size() for value in ours.values()), _row_bytes(ours))
    opened = _opened(path)
    found = {plain_name(name): value for name, value in opened.items()}
    if len(found) < len(opened):
        raise ValueError(f"{path.name} holds one tensor under two names, with and without a wrapper's prefix")
    notes = [_fit_table(found, ours[PUZZLES])] if _other_rows(found, ours) else []
    _check_types(found, ours)
    load_named(model, found)
    return notes


def read_weights(path: Path, ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a safetensors file or a `step_N` by plain name; those of `ours` must be among them.

    ours: a model's, with a puzzle table of any length. Raises ValueError (one line), WrongShape.
    """
    refuse_pointer(path)
    if is_step(path):
        check_torch(torch.__version__)
        _check_size(path, sum(value.numel() * value.element_size() for value in ours.values()), _row_bytes(ours))
        opened: Mapping[str, Tensor] = _opened(path)
    else:
        try:
            opened = dict(read_tensors(path))
        except SafetensorError as error:
            raise ValueError(f"{path.name} is not a safetensors file: {error}") from error
    found = {plain_name(name): value for name, value in opened.items()}
    odd = sorted(found.keys() ^ ours.keys())
    if odd or len(found) < len(opened):
        raise ValueError(f"{path.name} {'lacks' if odd and odd[0] in ours else 'holds an unknown'} tensor {odd[:1]}")
    for name, value in found.items():
        rows = slice(1, None) if name == PUZZLES else slice(None)
        if value.dim() != ours[name].dim() or value.shape[rows] != ours[name].shape[rows]:
            raise WrongShape(f"{path.name}: {name} is {tuple(value.shape)} where {tuple(ours[name].shape)} belongs")
    _check_types(found, ours)
    return found


def begin_from(state: TrainState, path: Path, by_rows: bool | None = None) -> list[str]:
    """Weights and averages of a fresh state become those of a `step_N` or a safetensors file; the rest stays fresh.

    by_rows: whether each row of the puzzle table has a meaning of its own. True: another number of rows is an error;
    False: every row becomes the mean of them; None: only if the numbers differ, and only for a `step_N`.
    Returns lines to print. Raises ValueError (one line), TaskError.
    """
    with readable(path):
        if not is_there(path):
            raise ValueError(f"{path} does not exist or is not a file")
    refuse_pointer(path)
    notes = []
    if is_step(path):
        notes = load_step(state.model, path)
    else:
        try:
            import_weights(state, path)
        except WrongShape as error:
            if not by_rows:
                raise
            raise TaskError(f"{path.name}: {error}, although it names the list of identifiers of this data.") from error
    if by_rows and notes:
        raise TaskError(f"{path.name}: {notes[0]}, although it names the list of identifiers of this data.")
    if by_rows is False:
        table = state.model.state_dict()[PUZZLES]
        table.copy_(table[1:].mean(dim=0, keepdim=True).expand(table.shape))
    state.reset_ema()
    return notes


IDENTIFIERS, ARCHITECTURE, CANVAS, MEAN = "identifiers", "arch", "canvas", "mean"
"""Names in an export's description: hash of the list, network, cells in a line; whether row 0 of the puzzle table is
the mean of all rows, of which the file then holds only some."""
_DESCRIBED = {IDENTIFIERS: str, ARCHITECTURE: dict, CANVAS: int, MEAN: bool}
UNKNOWN_LIST = (
    "{name} does not name the list of identifiers that its puzzle table belongs to, so its rows mean nothing for this "
    "data ({own}). Put the identifiers.json of its training next to it to evaluate it. Without that list it can only "
    "be adapted: `import` it and train."
)


def check_identity(path: Path, own: str, arch: Arch) -> bool:
    """Whether the file's puzzle table belongs to the list of identifiers with the hash `own`; False if it names none.

    A file names its list in its own description (ours), or by an identifiers.json next to it. Raises TaskError naming
    both lists if it is another one, or the settings if the network was trained with others.
    """
    with readable(path):
        if not is_there(path):
            raise ValueError(f"{path} does not exist or is not a file")
    about = description(path)
    theirs = about.get(IDENTIFIERS)
    beside = path.with_name(LIST)
    with readable(beside):
        if theirs is None and is_there(beside):
            theirs = f"sha256:{hashlib.sha256(beside.read_bytes()).hexdigest()}"
    if theirs not in (None, own):
        raise TaskError(
            f"{path.name} was trained with the list of identifiers {theirs}, this data has {own}. Name the data that "
            f"it was trained with: data.source with the same subsets, test set and number of variants, or data.train."
        )
    mine = arch.model_dump(mode="json")
    other = [f"arch.{key}={value}" for key, value in (about.get(ARCHITECTURE) or {}).items() if mine.get(key) != value]
    if other:
        raise TaskError(f"{path.name} was trained with {' '.join(other)}. Give these settings too.")
    return theirs is not None


def description(path: Path) -> dict[str, Any]:
    """What an export of ours says of its puzzle table and network; {} for another file."""
    try:
        if not is_step(path):
            with safe_open(path, "pt") as file:
                found = file.metadata() or {}
            return _described(found)
        described = path.with_name(f"{path.name}.json")
        if not is_there(described) or described.stat().st_size > _HEADER:
            return {}
        return _described(json.loads(described.read_text(encoding="utf-8")))
    except (OSError, SafetensorError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"the description of {path.name} cannot be read: {error!s:.200}") from error


def _described(texts: Mapping[str, str]) -> dict[str, Any]:
    """Raises ValueError for a value of another kind."""
    found = {name: json.loads(texts[name]) for name in _DESCRIBED if name in texts}
    wrong = [name for name, value in found.items() if type(value) is not _DESCRIBED[name]]
    if wrong:
        raise ValueError(f"{wrong[0]} is not of the type {_DESCRIBED[wrong[0]].__name__}")
    return found


def is_step(path: Path) -> bool:
    """Whether torch saved the file, by its first bytes; safetensors begins with a length."""
    with path.open("rb") as file:
        return file.read(2) in (b"PK", b"\x80\x02")


def check_torch(version: str) -> None:
    """Raises ValueError, with reason and advice, if this torch opens untrusted files unsafely."""
    numbers = version.split("+")[0].split(".")
    if tuple(int(number) for number in numbers[:2]) >= SAFE:
        return
    raise ValueError(
        f"torch {version} cannot open a file of torch's own format safely: before {SAFE[0]}.{SAFE[1]} a hostile one "
        "can corrupt memory even with weights_only (CVE-2026-24747). Install a newer torch, in a separate "
        "environment if a run depends on this one, or convert the file to safetensors on a machine that has it"
    )


def _check_size(path: Path, content: int, row: int) -> None:
    """The file may not be larger than the weights it should hold, and an entry not larger unpacked than packed."""
    limit = content + MAX_ROWS * row + _HEADER
    if path.stat().st_size > limit:
        raise ValueError(f"{path.name} has {path.stat().st_size} bytes, more than the {limit} this model could need")
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except zipfile.BadZipFile:
        raise ValueError(f"{path.name} is not a file of torch 1.6 or newer, or it is damaged") from None
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ValueError(f"{path.name} holds compressed parts, which torch never writes")
    if sum(entry.file_size for entry in entries) > limit:
        raise ValueError(f"{path.name} unpacks to more than the {limit} bytes this model could need")


def _row_bytes(ours: Mapping[str, Tensor]) -> int:
    return ours[PUZZLES].shape[1] * ours[PUZZLES].element_size() if PUZZLES in ours else 0


def _opened(path: Path) -> dict[str, Tensor]:
    """The file's tensors by name. Raises ValueError if it holds other objects."""
    try:
        # The reference saves only this format. No other part of the program may read it: this code has checked torch's
        # version and the file's size, and accepts no objects but plain tensors.
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path.name} is not a file of weights alone: {' '.join(str(error).split()):.200}") from error
    if not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise ValueError(f"{path.name} holds a {type(found).__name__} where named tensors belong")
    odd = [name for name, value in found.items() if type(value) is not Tensor or value.layout != torch.strided]
    if odd:
        raise ValueError(f"{path.name} holds a value that is not a plain tensor as {odd[0]!r:.200}")
    return found


def _other_rows(found: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> bool:
    return PUZZLES in found and PUZZLES in ours and found[PUZZLES].shape != ours[PUZZLES].shape


def _fit_table(found: dict[str, Tensor], ours: Tensor) -> str:
    theirs = found[PUZZLES]
    if theirs.dim() != 2 or theirs.shape[1] != ours.shape[1] or not 0 < len(theirs) <= MAX_ROWS:
        raise ValueError(f"{PUZZLES} is {tuple(theirs.shape)} where {tuple(ours.shape)} belongs")
    found[PUZZLES] = theirs.mean(dim=0, keepdim=True).expand(ours.shape)
    return f"its puzzle table has {counted(len(theirs), 'row')} where {len(ours):,} belong: each is the mean of them"


def _check_types(found: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> None:
    """float32, except the initial states, which have the type of the activations."""
    for name, value in found.items():
        if name in ours and value.dtype != ours[name].dtype and not (name in _INITIAL and value.is_floating_point()):
            raise ValueError(f"{name} is {value.dtype} where {ours[name].dtype} belongs")
        if value.is_floating_point() and not bool(value.isfinite().all()):
            raise ValueError(f"{name} holds a value that is not finite")


WEIGHTS = "weights.safetensors"
_NAME = re.compile(r"(raw|ema)/(inner\.[A-Za-z0-9_.]{1,200})")


def export_folder(checkpoint: Path, out: Path, config: dict[str, Any], ema: bool = True) -> list[Path]:
    """Write `out/model.safetensors` (model.inner.*) and `out/config.json`; returns both.

    With `ema` the parameters are the averaged ones if the checkpoint has them; the puzzle table and the initial
    states are always raw. Optimizer and carry are left out, so training cannot continue exactly from the result.
    Raises ValueError (one line) if the folder does not hold a checkpoint.
    """
    weights, about = _weights(checkpoint, ema)
    out.mkdir(parents=True, exist_ok=True)
    tensors, description = out / "model.safetensors", out / "config.json"
    tensors.write_bytes(save(weights, metadata=about))  # save_file: mode 0600
    description.write_text(json.dumps({"config": config, **about}, indent=1) + "\n")
    return [tensors, description]


def export_step(
    checkpoint: Path, out: Path, config: dict[str, Any], ema: bool = True, compiled: bool = True
) -> list[Path]:
    """Write the file `out` (…/step_N) in the reference's format, and `out`.json; returns both. See `export_folder`.

    compiled: under the names of a compiled model, which the reference's own loader expects by default.
    """
    weights, about = _weights(checkpoint, ema)
    if out.is_dir():
        raise ValueError(f"{out} is a folder. Choose a file with --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    return publish_step(out, weights, config, int(about["step"]), about["weights"] == "ema", compiled)


def _weights(checkpoint: Path, ema: bool) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The checkpoint's weights by the reference's name, and their description. Raises ValueError (one line)."""
    document = load_document(checkpoint)
    weights: dict[str, dict[str, Tensor]] = {"raw": {}, "ema": {}}
    try:
        for name, value in read_tensors(checkpoint / WEIGHTS):
            found = _NAME.fullmatch(name)
            if found is None:
                raise ValueError(f"{WEIGHTS} holds an unknown tensor {name!r:.200}")
            weights[found[1]][f"model.{found[2]}"] = value
        if document.table is not None:
            weights["raw"][f"model.{TABLE.removeprefix('raw/')}"] = read_table(checkpoint, document)[0]
    except (SafetensorError, OSError) as error:
        raise ValueError(f"{WEIGHTS} is not a safetensors file: {error}") from error
    about = _about(document.config, document.step, bool(ema and weights["ema"]))
    return weights["raw"] | (weights["ema"] if ema else {}), about


def _about(config: Mapping[str, Any], step: int, averaged: bool) -> dict[str, str]:
    """The description of exported weights."""
    about = {"step": str(step), "weights": "ema" if averaged else "raw", "exact": "no: weights only"}
    data = config.get("data", {})
    if identifiers := data.get(IDENTIFIERS):
        about |= {IDENTIFIERS: json.dumps(identifiers), ARCHITECTURE: json.dumps(config[ARCHITECTURE])}
        about |= {CANVAS: json.dumps(data.get("canvas", Data().canvas))}
    return about


def publish_step(
    out: Path, weights: Mapping[str, Tensor], config: dict[str, Any], step: int, averaged: bool, compiled: bool = True
) -> list[Path]:
    """Write weights as the file `out` (…/step_N) in the reference's format, and `out`.json; returns both."""
    write_step(out, weights, compiled)
    description = out.with_name(f"{out.name}.json")
    description.write_text(json.dumps({"config": config, **_about(config, step, averaged)}, indent=1) + "\n")
    return [out, description]
