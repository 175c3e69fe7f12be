"""The line before an entry in a slot's file on Drive, which names other slots; does not use the network."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from storage.contract import Ref
from storage.drive.place import ID

PAGE = 256
"""Number of slots whose ids one slot publishes."""
SPAN = PAGE * PAGE
"""Number of slots whose page heads' ids one slot publishes."""
LIMIT = 64_000
"""Limit of a frame, bytes."""
_FORMAT = 1


@dataclass(frozen=True)
class Frame:
    """The frame of a chain's slot. A page's head (every PAGEth slot) has `ids`, every SPANth slot `tops` too."""

    log: str
    """The log's prefix: a file copied here from another log does not match."""
    slot: int
    next: Ref | None
    """Id of the next slot; None in a closing one."""
    ids: tuple[Ref, ...] = ()
    """Ids of slots slot+1 … slot+PAGE."""
    tops: tuple[Ref, ...] = ()
    """Ids of slots slot+PAGE, slot+2·PAGE … slot+SPAN."""
    hint: Ref | None = None
    """Id of the log's hint; in slot 0."""
    folder: str | None = None
    """Id of the store's folder; in slot 0."""
    onward: Ref | None = None
    """The file that holds the newest entry from here on; in a closing slot."""


@dataclass(frozen=True)
class Newest:
    """The frame of the file of a log that goes on by compare-and-set, or of one of its slots as a file of its own."""

    log: str
    slot: int
    first: int
    """The chain's closing slot, which this file held at first; earlier slots are found by the chain."""
    parent: Ref | None = None
    """Id of slot-1; None in the first one."""
    back: Ref | None = None
    """Id of the slot that `back_from` gives; None in the first one."""


def pack(frame: Frame | Newest, data: bytes) -> bytes:
    """The bytes of a slot's file."""
    said = {"format": _FORMAT, "way": "chain" if isinstance(frame, Frame) else "newest"}
    fields = {name: value for name, value in asdict(frame).items() if value not in (None, ())}
    return json.dumps(said | fields, separators=(",", ":")).encode() + b"\n" + data


def unpack(raw: bytes) -> tuple[Frame | Newest, bytes]:
    """The frame and the entry. Raises ValueError unless every field of the frame is valid."""
    line, mark, data = raw.partition(b"\n")
    if not mark or len(line) > LIMIT:
        raise ValueError("it has no frame")
    try:
        said = json.loads(line)
    except RecursionError as error:
        raise ValueError("its frame is invalid") from error
    if not isinstance(said, dict) or said.pop("format", None) != _FORMAT:
        raise ValueError("its frame has a format unknown to this version")
    way = said.pop("way", None)
    if way not in ("chain", "newest"):
        raise ValueError("its frame has a kind unknown to this version")
    return (_chain if way == "chain" else _newest)(said), data


def _chain(said: dict[str, Any]) -> Frame:
    frame = Frame(
        log=_text(said.pop("log", None)),
        slot=_number(said.pop("slot", None)),
        next=_id(said.pop("next", None)),
        ids=_ids(said.pop("ids", ())),
        tops=_ids(said.pop("tops", ())),
        hint=_id(said.pop("hint", None)),
        folder=_id(said.pop("folder", None)),
        onward=_id(said.pop("onward", None)),
    )
    if said or (frame.next is None) == (frame.onward is None):
        raise ValueError("its frame names no next slot, or two")
    if frame.next and (len(frame.ids), len(frame.tops)) != lengths(frame.slot):
        raise ValueError("its frame lacks ids that its slot must publish")
    if frame.ids and frame.ids[0] != frame.next:
        raise ValueError("its frame contradicts itself")
    return frame


def _newest(said: dict[str, Any]) -> Newest:
    frame = Newest(
        log=_text(said.pop("log", None)),
        slot=_number(said.pop("slot", None)),
        first=_number(said.pop("first", None)),
        parent=_id(said.pop("parent", None)),
        back=_id(said.pop("back", None)),
    )
    begins = frame.first == frame.slot
    if said or frame.first > frame.slot or (frame.parent is None) != begins or (frame.back is None) != begins:
        raise ValueError("its frame contradicts itself")
    return frame


def back_from(slot: int, first: int) -> int:
    """The second slot, next to its parent, that a slot names: any slot is reached in a logarithmic number of steps."""
    return max(slot & (slot - 1), first)


def lengths(slot: int) -> tuple[int, int]:
    """How many ids of next slots, and of page heads, a chain's slot publishes."""
    return (PAGE if slot % PAGE == 0 else 0), (PAGE if slot % SPAN == 0 else 0)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("its frame lacks a text")
    return value


def _number(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        raise ValueError("its frame lacks a number")
    return value


def _id(value: object) -> Ref | None:
    if value is None:
        return None
    if not isinstance(value, str) or not ID.fullmatch(value):
        raise ValueError("its frame holds an invalid id")
    return Ref(value)


def _ids(value: object) -> tuple[Ref, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("its frame lacks a list of ids")
    found = tuple(ref for item in value if (ref := _id(item)))
    if len(found) != len(value) or len(set(found)) != len(found):
        raise ValueError("its frame names an id twice, or no id")
    return found
