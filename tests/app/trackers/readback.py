"""Reads the contents of trackers, by their own readers where they have one; gives (step, values) in row order."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from relay.app.trackers.line import STEP

Rows = list[tuple[int, dict[str, float]]]
BLOCK, HEADER, FILE_HEADER = 32768, 7, 7


def of_tensorboard(folder: Path) -> Rows:
    """By TensorBoard's event accumulator, which lets later files override earlier ones."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    seen.Reload()
    found: dict[int, dict[str, float]] = {}
    for tag in seen.Tags()["tensors"] + seen.Tags()["scalars"]:
        events = seen.Scalars(tag) if tag in seen.Tags()["scalars"] else seen.Tensors(tag)
        steps = [event.step for event in events]
        assert steps == sorted(set(steps)), f"{tag} has a step twice or out of order"
        for event in events:
            value = event.value if hasattr(event, "value") else event.tensor_proto.float_val[0]
            found.setdefault(event.step, {})[tag] = value
    return sorted(found.items())


def of_trackio(project: str, run_id: str) -> Rows:
    """By trackio's own reader of its database."""
    from trackio.sqlite_storage import SQLiteStorage

    rows = SQLiteStorage.get_logs(project, run_id=run_id)
    return [(row["step"], {k: v for k, v in row.items() if k not in ("step", "timestamp")}) for row in rows]


def of_wandb(folder: Path, run_id: str) -> Rows:
    """By W&B's own messages in all transaction logs of that run, in the order they would be synced."""
    import wandb

    wandb.teardown()  # its own process writes the remaining data
    found: Rows = []
    for path in sorted(folder.glob(f"wandb/*-{run_id}/*.wandb")):
        for record in wandb_records(path):
            if record.WhichOneof("record_type") == "history":
                row = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                values = {name: float(text) for name, text in row.items() if not name.startswith("_")}
                found.append((int(values.pop(STEP)), values))
    return found


def wandb_records(path: Path) -> Iterator[Any]:
    """Every message of a transaction log, which has LevelDB's format; W&B's own reader of it is not in Python."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, whole = path.read_bytes(), FILE_HEADER, b""
    assert data[:4] == b":W&B"
    while place + HEADER <= len(data):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[place : place + HEADER])
        if kind == 0:
            place += BLOCK - place % BLOCK
            continue
        whole += data[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (1, 4):
            record = Record()
            record.ParseFromString(whole)
            whole = b""
            yield record
