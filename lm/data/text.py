"""The text of a training run: read or made, split by document, turned into tokens, and kept below the data folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from filelock import FileLock

from lm.config import BYTES, GENERATED, HUB, TOKENIZER_FILE, LmConfig
from lm.data import documents, hub
from lm.data.generate import generated
from lm.data.rows import Rows, content_hash
from lm.data.tokenizer import Bpe, Bytes, Tokenizer, Tokens, of_file, trained
from lm.presets import LARGE, SPLITS
from relay.torch import rng
from relay.torch.faults import DataError, TaskError
from relay.torch.files import Fetching, Report, readable, replacing, silent, unseen, whole_path
from storage.transfer import file_digest
from storage.wording import counted

PARTS = ("train", SPLITS.choosing, SPLITS.reported)
HELD_SHARE, MOST_HELD = 0.05, 10_000_000
"""Share of the text that validation and test get each, and the most bytes."""
TRAINED_ON = 200_000_000
"""A tokenizer is trained on at most so many bytes."""
_AT_ONCE = 256
"""Documents."""
_ABOUT = "about.json"

Source = Callable[[], Iterator[str]]
"""The documents of a part, read or made again at each call."""


@dataclass(frozen=True)
class Extent:
    """Size of a part."""

    documents: int
    bytes: int


@dataclass(frozen=True)
class Text:
    """The three parts as rows of tokens."""

    tokenizer: Tokenizer
    parts: dict[str, Rows]
    extents: dict[str, Extent]
    tokenizer_hash: str
    """'' for bytes."""

    @property
    def train(self) -> Rows:
        """The rows to train on."""
        return self.parts["train"]

    def pinned(self, config: LmConfig) -> dict[str, str]:
        """What a run pins of its data, by content: a part without a name of its own belongs to the training text."""
        named = {"valid": config.data.valid, "test": config.data.test}
        own = [name for name, source in named.items() if source]
        held = [part for part in PARTS if part not in own]
        found = {"train": self._hash(held)} | {name: self._hash([name]) for name in own}
        if self.tokenizer_hash:
            found["tokenizer"] = f"sha256:{self.tokenizer_hash}"
        return found

    def _hash(self, parts: Sequence[str]) -> str:
        return f"sha256:{content_hash([self.parts[part].tokens for part in parts], self.tokenizer.vocab_size)}"

    def lines(self) -> list[str]:
        """A summary, to print."""
        found = []
        for name, rows in self.parts.items():
            extent, count = self.extents[name], len(rows.tokens)
            found.append(
                f"{name}: {counted(extent.documents, 'document')}, {extent.bytes / 1e6:,.1f} MB, "
                f"{counted(count, 'token')} ({extent.bytes / count:.2f} bytes a token), {counted(rows.size, 'row')}"
            )
        kind = (
            "bytes"
            if not self.tokenizer_hash
            else f"{self.tokenizer.vocab_size:,} tokens, sha256 {self.tokenizer_hash}"
        )
        return [*found, f"tokenizer: {kind}", f"content: {self._hash(PARTS)}"]


def load_text(config: LmConfig, root: Path, report: Report = silent, fetching: Fetching | None = unseen) -> Text:
    """The text of the configuration; downloads and tokens are kept below `root`.

    fetching: shows downloads. None: the text is only read, so nothing is downloaded, and it may be too short or too
    simple to train on. Raises TaskError for an impossible combination, DataError for missing or unusable text.
    """
    trains = fetching is not None
    if trains and config.task in LARGE and config.data.train == GENERATED:
        raise TaskError(f"task={config.task} trains on data.train=hub or on a file, never on generated text.")
    given = _given_tokenizer(config)
    sources, names = _sources(config, root, report, fetching)
    key = hashlib.sha256(
        json.dumps(
            [names, config.data.vocab_size, hashlib.sha256(given).hexdigest() if given else config.data.tokenizer]
        ).encode()
    ).hexdigest()
    folder = root / "lm" / key[:16]
    extents = _kept(folder, config)
    if extents is None:
        with _alone(folder):
            extents = _kept(folder, config) or _make(folder, config, sources, given, report)
    tokenizer: Tokenizer = Bytes() if config.data.tokenizer == BYTES else Bpe((folder / TOKENIZER_FILE).read_bytes())
    answers = config.data.text == "hops"
    parts = {
        part: Rows(np.memmap(_file(folder, part), tokenizer.dtype, "r"), config.arch.context, tokenizer.bos, answers)
        for part in PARTS
    }
    _check_sizes(config, parts, trains)
    return Text(tokenizer, parts, extents, tokenizer.hash if isinstance(tokenizer, Bpe) else "")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Only this process writes the folder; parts that a killed one left are removed. Raises DataError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            for part in folder.glob("*.part"):
                part.unlink()
            yield
    except OSError as error:
        why = f"{folder} cannot be written: {error.strerror or error}"
        raise DataError(f"{why}. Choose another data_dir.") from error


def _check_sizes(config: LmConfig, parts: dict[str, Rows], trains: bool) -> None:
    train, context = parts["train"], config.arch.context
    if trains and train.windows < config.batch_size:
        raise DataError(
            f"The training text has {counted(len(train.tokens), 'token')}, fewer than a batch of {config.batch_size} "
            f"rows of {context} with a row to spare. Bring more text, or set a smaller batch_size or arch.context."
        )
    for name in PARTS[1:]:
        if not parts[name].size:
            raise DataError(
                f"The {name} text has {counted(len(parts[name].tokens), 'token')}, fewer than a row of {context}."
            )


def _given_tokenizer(config: LmConfig) -> bytes:
    """The file that was named; empty without one. Raises TaskError for another vocabulary than the setting."""
    if config.data.tokenizer in (BYTES, GENERATED):
        return b""
    path = whole_path(config.data.tokenizer)
    text = of_file(path)
    try:
        size = Bpe(text).vocab_size
    except DataError as error:
        raise DataError(f"data.tokenizer={path}: {error}") from error
    if size != config.data.vocab_size:
        raise TaskError(f"The tokenizer has {size:,} tokens: set data.vocab_size={size}.")
    return text


def _sources(
    config: LmConfig, root: Path, report: Report, fetching: Fetching | None
) -> tuple[dict[str, Source], dict[str, object]]:
    """The documents of each part that has its own, and names that change with their content."""
    data = config.data
    found: dict[str, Source] = {}
    names: dict[str, object] = {}
    if data.train == GENERATED:
        size = data.size_mb * 10**6
        found["train"], names["train"] = partial(generated, data.text, size), [data.text, size]
    elif data.train == HUB:
        held, *shards = hub.fetch(root, data.shards, report, fetching)
        found["train"] = lambda: (document for path in shards for document in documents.documents(path))
        names["train"] = [file_digest(path)[1] for path in (held, *shards)]
        for odd, part in enumerate(PARTS[1:]):
            found[part] = partial(hub.held_out, held, MOST_HELD, bool(odd))
    else:
        found["train"], names["train"] = _of_file(data.train)
    for part, source in (("valid", data.valid), ("test", data.test)):
        if source:
            found[part], names[part] = _of_file(source)
    return found, names


def _of_file(source: str) -> tuple[Source, str]:
    path = documents.check(source)
    with readable(path):
        return partial(documents.documents, path), file_digest(path)[1]


def _file(folder: Path, part: str) -> Path:
    return folder / f"{part}.tokens"


def _kept(folder: Path, config: LmConfig) -> dict[str, Extent] | None:
    """The extents of parts that were made before; None if they are not whole."""
    try:
        about = json.loads((folder / _ABOUT).read_text())
        sizes = {part: _file(folder, part).stat().st_size for part in PARTS}
        extents = {part: Extent(*about["parts"][part]) for part in PARTS}
    except (OSError, ValueError, KeyError, TypeError):
        return None
    whole = about.get("sizes") == sizes and (config.data.tokenizer == BYTES or (folder / TOKENIZER_FILE).is_file())
    return extents if whole else None


def _make(
    folder: Path, config: LmConfig, sources: dict[str, Source], given: bytes, report: Report
) -> dict[str, Extent]:
    """Write all parts. The documents are read twice if parts are held out or a tokenizer is trained."""
    held = [part for part in PARTS if part not in sources]
    source, began = sources["train"], time.monotonic()
    assigned = _assigned([len(document) for document in source()], len(held)) if held else None
    own = ["train", *held]
    if config.data.tokenizer == BYTES:
        tokenizer: Tokenizer = Bytes()
    else:
        text = given or trained(_limited(_training(source, assigned)), config.data.vocab_size)
        tokenizer = Bpe(text)
        with replacing(folder / TOKENIZER_FILE) as file:
            file.write(text)
    extents = _write(folder, own, source(), assigned, tokenizer)
    for part in sources.keys() - {"train"}:
        extents |= _write(folder, [part], sources[part](), None, tokenizer)
    about = {
        "parts": {part: [extents[part].documents, extents[part].bytes] for part in PARTS},
        "sizes": {part: _file(folder, part).stat().st_size for part in PARTS},
    }
    with replacing(folder / _ABOUT) as file:
        file.write(json.dumps(about).encode())
    size, seconds = sum(one.bytes for one in extents.values()) / 1e6, max(time.monotonic() - began, 1e-3)
    report(f"{size:,.1f} MB of text became tokens in {seconds:.1f} s ({size / seconds:,.1f} MB/s): {folder}")
    return extents


def _assigned(lengths: Sequence[int], held: int) -> Sequence[int]:
    """For each document 0 (train) or the number of the held-out part that gets it. Raises DataError for too few."""
    count = len(lengths)
    if count <= held:
        raise DataError(
            f"The training text has {counted(count, 'document')}, and {held} are held out for "
            "validation and test. Separate documents by blank lines, use .jsonl, or name data.valid and data.test."
        )
    found, place = [0] * count, 0
    budget = min(HELD_SHARE * sum(lengths), MOST_HELD)
    order = rng.permutations(0, 0, rng.Stream.BUILD, 1, count)[0].tolist()
    for part in range(1, held + 1):
        size, last = 0, count - 1 - (held - part)
        while size == 0 or (size < budget and place < last):
            found[order[place]] = part
            size += max(1, lengths[order[place]])
            place += 1
    return found


def _training(source: Source, assigned: Sequence[int] | None) -> Iterator[str]:
    for number, document in enumerate(source()):
        if assigned is None or assigned[number] == 0:
            yield document


def _limited(texts: Iterator[str]) -> Iterator[str]:
    left = TRAINED_ON
    for text in texts:
        yield text
        left -= len(text)
        if left <= 0:
            return


def _write(
    folder: Path, parts: Sequence[str], texts: Iterator[str], assigned: Sequence[int] | None, tokenizer: Tokenizer
) -> dict[str, Extent]:
    """Write the documents of some parts, which `assigned` tells apart."""
    counts, sizes = [0] * len(parts), [0] * len(parts)
    with ExitStack() as stack:
        files = [stack.enter_context(replacing(_file(folder, part))) for part in parts]
        number = 0
        while some := list(islice(texts, _AT_ONCE)):
            for text, tokens in zip(some, tokenizer.encoded(some), strict=True):
                part = assigned[number] if assigned is not None else 0
                number += 1
                counts[part] += 1
                sizes[part] += len(text.encode())
                _put(files[part], tokens, tokenizer)
            _check_room(folder)
    return {part: Extent(counts[i], sizes[i]) for i, part in enumerate(parts)}


def _put(file: IO[bytes], tokens: Tokens, tokenizer: Tokenizer) -> None:
    file.write(np.array([tokenizer.bos], dtype=tokenizer.dtype).tobytes() + tokens.tobytes())


def _check_room(folder: Path) -> None:
    """Raises DataError before the disk is full, which would harm more than this file."""
    if shutil.disk_usage(folder).free < 10**8:
        raise DataError(f"{folder} has less than 0.1 GB free. Choose another data_dir, or a smaller text.")
