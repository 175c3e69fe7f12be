"""Kinds of damage to the bytes of one stored object; a harm that returns None removes the object."""

from __future__ import annotations

from collections.abc import Callable

Harm = Callable[[bytes], bytes | None]


def flipped(share: float) -> Harm:
    """One bit flipped, that far into the object."""

    def flip(data: bytes) -> bytes:
        at = int(share * (len(data) - 1))
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


HARMS: dict[str, Harm] = {
    "first byte": flipped(0),
    "begin": flipped(0.1),
    "middle": flipped(0.5),
    "late": flipped(0.9),
    "last byte": flipped(1),
    "emptied": lambda data: b"",
    "one byte left": lambda data: data[:1],
    "half": lambda data: data[: len(data) // 2],
    "last byte lost": lambda data: data[:-1],
    "first byte lost": lambda data: data[1:],
    "a blank more": lambda data: data + b" ",
    "zeros more": lambda data: data + bytes(1000),
    "twice": lambda data: data + data,
    "zeroed": lambda data: bytes(len(data)),
    "huge": lambda data: b"x" * 2_000_000,
    "missing": lambda data: None,
}

PICKLE = b"cbuiltins\nopen\n(Vpickled_marker\nVw\ntR."
"""Unpickling this makes a file in the working folder."""

ZSTD_BOMB = bytes.fromhex("28b52ffd") + bytes([0x00, 0x98]) + (b"\x02\x00\x80\x00") * 2000
"""A zstd frame that asks for a window of 512 MiB and repeats one byte for ever."""

HOSTILE_JSON: dict[str, bytes] = {
    "deep lists": b"[" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "balanced depth": b"[" * 5_000 + b"]" * 5_000,
    "huge integer": b'{"format":' + b"9" * 5_000 + b"}",
    "NaN": b'{"format":NaN}',
    "Infinity": b'{"format":-Infinity}',
    "1e999": b'{"format":1e999}',
    "a key twice": b'{"format":1,"format":1}',
    "not UTF-8": b'{"format":"\xff\xfe"}',
    "lone surrogate": b'{"format":"\\ud800"}',
    "NUL": b'{"format":"\\u0000","\\u0000":1}',
    "a list": b"[1]",
    "null": b"null",
    "text": b'"x"',
    "UTF-16": '{"format":1}'.encode("utf-16"),
    "300 kB": b'{"format":1,"x":"' + b"x" * 300_000 + b'"}',
    "10 MB": b'{"format":1,"x":"' + b"x" * 10_000_000 + b'"}',
    "pickle": PICKLE,
    "zstd": ZSTD_BOMB,
}
