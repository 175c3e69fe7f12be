"""Text as tokens and back: bytes, or byte-level BPE by the library `tokenizers`."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lm.config import BYTE_VALUES, MOST_TOKENS, TOKENIZER_FILE
from relay.torch.faults import DataError, TaskError
from relay.torch.files import readable
from storage.packages import install
from storage.regular import is_there

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

BOS = "<|bos|>"
"""Stands before each document."""
LARGEST_FILE = 1 << 25
_PATTERN = r"'(?:[sdmtSDMT]|ll|ve|re)| ?\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
"""Tokens cross none of these borders: words with the space before them, digits in ones and twos, marks, spaces."""
_PROBE = "\t  Ab aB e\u0301\u00e9 12345 \u6f22\U0001f600 ffi\ufb03\u2028'S\r\n \n "
"""A text that a tokenizer changes if it folds case or forms, strips, or adds a space."""
Tokens = NDArray[np.unsignedinteger]


class Tokenizer(Protocol):
    """Tokens of a text."""

    vocab_size: int
    bos: int
    """The token before each document."""
    text: bytes
    """The content of tokenizer.json; empty for bytes."""
    lengths: NDArray[np.int64]
    """Bytes that each token stands for; 0 for `bos`."""
    dtype: type[np.unsignedinteger]

    def encoded(self, documents: Sequence[str]) -> list[Tokens]:
        """The tokens of each document, without `bos`."""
        ...

    def decoded(self, tokens: Sequence[int]) -> str:
        """The text of tokens; what is no whole character becomes a mark."""
        ...


class Bytes:
    """A token for each byte. Byte 0 stands between documents."""

    vocab_size, bos, text, dtype = BYTE_VALUES, 0, b"", np.uint8

    def __init__(self) -> None:
        self.lengths = np.ones(BYTE_VALUES, dtype=np.int64)
        self.lengths[self.bos] = 0

    def encoded(self, documents: Sequence[str]) -> list[Tokens]:
        """Raises DataError for a document that holds a zero byte."""
        if any("\0" in document for document in documents):
            raise DataError("A document holds a zero byte, which stands between documents. Remove it, or use BPE.")
        return [np.frombuffer(document.encode(), dtype=np.uint8) for document in documents]

    def decoded(self, tokens: Sequence[int]) -> str:
        """As UTF-8, with a mark between documents."""
        return bytes(tokens).replace(b"\0", "¶".encode()).decode(errors="replace")


class Bpe:
    """Byte-level BPE from a tokenizer.json, which gives each text back. A text that spells a special token gets
    ordinary ones."""

    dtype = np.uint16

    def __init__(self, text: bytes) -> None:
        """Raises DataError for a file that is no tokenizer of this kind."""
        library, self.text = _library(), text
        try:
            self._tokenizer: Library = library.Tokenizer.from_str(text.decode())
        except Exception as error:
            raise DataError(f"{TOKENIZER_FILE} cannot be read: {error!s:.200}") from error
        self._tokenizer.encode_special_tokens = True
        bos, alphabet = self._tokenizer.token_to_id(BOS), library.pre_tokenizers.ByteLevel.alphabet()
        self.vocab_size = self._tokenizer.get_vocab_size()
        names = [self._tokenizer.id_to_token(token) or "" for token in range(self.vocab_size)]
        if bos is None or not set(alphabet) <= set(names) or "" in names or len(names) > MOST_TOKENS:
            raise DataError(
                f"{TOKENIZER_FILE} is no byte-level BPE with the token {BOS} and at most {MOST_TOKENS:,} tokens."
            )
        self.bos: int = bos
        self.lengths = np.array([0 if token == bos else len(name) for token, name in enumerate(names)], dtype=np.int64)
        found = self._tokenizer
        if found.truncation or found.padding or getattr(found.model, "dropout", None):
            raise DataError(
                f"{TOKENIZER_FILE} cuts texts, pads them or varies their tokens. Remove truncation, padding, dropout."
            )
        if self.decoded(self.encoded([_PROBE])[0].tolist()) != _PROBE:
            raise _changes_text()

    @property
    def hash(self) -> str:
        """SHA-256 of the file."""
        return hashlib.sha256(self.text).hexdigest()

    def encoded(self, documents: Sequence[str]) -> list[Tokens]:
        """By the library, on all cores. Raises DataError if the tokens stand for another number of bytes."""
        found = self._tokenizer.encode_batch_fast(list(documents), add_special_tokens=False)
        tokens = [np.array(one.ids, dtype=np.uint16) for one in found]
        if any(self.lengths[own].sum() != len(text.encode()) for own, text in zip(tokens, documents, strict=True)):
            raise _changes_text()
        return tokens

    def decoded(self, tokens: Sequence[int]) -> str:
        """Special tokens are left out."""
        text: str = self._tokenizer.decode(list(tokens))
        return text


def _changes_text() -> DataError:
    return DataError(
        f"{TOKENIZER_FILE} does not give a text back. Take one whose settings change no letter and no space."
    )


def trained(documents: Iterable[str], vocab_size: int) -> bytes:
    """The content of a tokenizer.json that is trained on the documents. Raises DataError if they are too few."""
    library = _library()
    made = library.Tokenizer(library.models.BPE())
    before = library.pre_tokenizers
    made.pre_tokenizer = before.Sequence(
        [before.Split(library.Regex(_PATTERN), "isolated"), before.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    made.decoder = library.decoders.ByteLevel()
    alphabet = sorted(before.ByteLevel.alphabet())
    trainer = library.trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[BOS], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(iter(documents), trainer)
    found = made.get_vocab_size()
    if found != vocab_size:
        raise DataError(f"The training text gives {found:,} tokens, not {vocab_size:,}. Set data.vocab_size={found}.")
    text: str = made.to_str()
    return text.encode()


def of_file(path: Path) -> bytes:
    """The content of a tokenizer.json. Raises DataError."""
    with readable(path):
        if not is_there(path) or path.stat().st_size > LARGEST_FILE:
            why = "is not a file of a tokenizer" if path.exists() else "does not exist"
            raise DataError(f"data.tokenizer={path} {why}. `export` writes a tokenizer.json next to the weights.")
        return path.read_bytes()


def _library() -> Any:
    try:
        import tokenizers
        from tokenizers import decoders, models, pre_tokenizers, trainers
    except ImportError as missing:
        raise TaskError(
            f"BPE needs the package tokenizers: `{install('lm')}`. data.tokenizer=bytes needs nothing."
        ) from missing
    assert all((decoders, models, pre_tokenizers, trainers))
    return tokenizers
