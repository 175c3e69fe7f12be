"""A checkpoint's files: what is restored, and what is refused before anything is read."""

from __future__ import annotations

import errno
import json
import resource
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from relay.torch import snapshot, statefile
from relay.torch.snapshot import state_hash
from trm.checkpoint import FILES, Document, TrmSnapshot, load_document
from trm.train import TrainState

NO_LOSS = torch.zeros((), dtype=torch.float64)


def write(state: TrainState, folder: Path) -> str:
    folder.mkdir()
    document = Document(step=state.step, seed=0, config={}, code="0", fingerprint={})
    saved = TrmSnapshot(state, document, NO_LOSS).save(folder)
    assert sorted(path.name for path in folder.iterdir()) == list(saved.files)
    return saved.state_hash


def read(state: TrainState, folder: Path) -> None:
    state.step = load_document(folder).step
    statefile.load_tensors(folder, FILES, state.tensors())


def hash_of(state: TrainState) -> str:
    return state_hash(state.canonical(), state.step, 0)


def test_two_that_save_at_once_do_not_mix_their_bytes(monkeypatch) -> None:
    """A session's thread may still be saving when the next session of this process begins to."""

    class Slow:
        def synchronize(self) -> None:
            time.sleep(0.002)

    room = torch.empty(64, dtype=torch.uint8)
    monkeypatch.setattr(snapshot, "STAGE", len(room))
    monkeypatch.setattr(snapshot, "_stage", lambda: room)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Slow())
    sent = [{"a": torch.full((50,), float(n)), "b": torch.tensor(n), "c": torch.empty(0)} for n in range(3)]
    with ThreadPoolExecutor(len(sent)) as pool:
        found = list(pool.map(snapshot.to_host, sent))
    for mine, theirs in zip(sent, found, strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_a_disk_that_refuses_is_an_error_of_the_disk(tmp_path, monkeypatch) -> None:
    """The library has an error of its own for it, which whoever saves would take for a fault of the program."""
    document = Document(step=1, seed=0, config={}, code="0", fingerprint={})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    try:
        with pytest.raises(OSError, match=r"weights\.safetensors") as refused:
            statefile.save(tmp_path, FILES, {"raw/a": torch.zeros(1 << 20)}, document)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert refused.value.errno == errno.EFBIG and refused.value.strerror

    def in_other_words(*_: object) -> None:
        raise SafetensorError("no room")

    monkeypatch.setattr(statefile, "save_file", in_other_words)
    with pytest.raises(OSError, match="error") as refused:
        statefile.save(tmp_path, FILES, {}, document)
    assert refused.value.errno == errno.EIO


@pytest.mark.parametrize("changes", [{}, {"mlp_t": True}, {"forward_dtype": "bfloat16"}, {"ema": False}])
def test_loading_what_was_saved_continues_bit_for_bit(make, run, tmp_path, changes) -> None:
    unbroken = make(5, **changes)
    assert write(unbroken, tmp_path / "a") == hash_of(unbroken)
    resumed = make(0, **changes)
    read(resumed, tmp_path / "a")
    assert hash_of(resumed) == hash_of(unbroken)
    for state in (unbroken, resumed):
        run(state, 11)
    assert hash_of(resumed) == hash_of(unbroken)


def test_raw_and_ema_weights_are_both_there_and_differ(make, tmp_path) -> None:
    state = make(4)
    write(state, tmp_path / "a")
    saved = load_file(tmp_path / "a" / "weights.safetensors")
    for name, value in state.params.views.items():
        assert torch.equal(saved[f"raw/{name}"], value)
        assert torch.equal(saved[f"ema/{name}"], state.ema.views[name])
    assert not torch.equal(saved["raw/inner.lm_head.weight"], saved["ema/inner.lm_head.weight"])


def test_saving_is_canonical(make, tmp_path) -> None:
    """Rows of halted slots are zero in the file, so equal states give equal bytes."""
    one, two = make(3), make(3)
    for state in (one, two):
        state.carry.halted[2] = True
    two.carry.z_H[2] = 9
    write(one, tmp_path / "a")
    write(two, tmp_path / "b")
    for name in (*FILES, statefile.STATE):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_snapshot_does_not_change_with_the_state(make, run, tmp_path) -> None:
    state = make(3)
    frozen = TrmSnapshot(state, Document(step=3, seed=0, config={}, code="0", fingerprint={}), NO_LOSS)
    before = hash_of(state)
    run(state, 6)
    assert frozen.save(tmp_path).state_hash == before
    assert frozen.step == 3


def test_a_snapshot_says_what_is_not_finite(make) -> None:
    document = Document(step=1, seed=0, config={}, code="0", fingerprint={})
    assert TrmSnapshot(make(1), document, NO_LOSS).finite.ok
    assert "loss" in TrmSnapshot(make(1), document, NO_LOSS / 0).finite.reason
    state = make(1)
    state.params.views["inner.lm_head.weight"][0, 0] = float("inf")
    finite = TrmSnapshot(state, document, NO_LOSS).finite
    assert not finite.ok
    assert "raw/inner.lm_head.weight" in finite.reason


def rewrite(file: str, change: Callable[[dict[str, torch.Tensor]], None]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        tensors = load_file(folder / file)
        change(tensors)
        save_file(tensors, folder / file)

    return damage


def truncate(folder: Path) -> None:
    path = folder / "carry.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def huge_header(folder: Path) -> None:
    path = folder / "weights.safetensors"
    content = path.read_bytes()
    path.write_bytes(struct.pack("<Q", 2**62) + content[8:])


def padded(folder: Path) -> None:
    with (folder / "weights.safetensors").open("ab") as file:
        file.truncate(2**40)


def lying_header(folder: Path) -> None:
    """Two names for the same bytes: more tensors than the file has room for."""
    path = folder / "optimizer.safetensors"
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    first, second, *_ = (name for name in header if name != "__metadata__")
    header[second]["data_offsets"] = header[first]["data_offsets"]
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def set_state(**changes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / "state.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return damage


HEAD = "raw/inner.lm_head.weight"
DAMAGE = {
    "wrong shape": rewrite("weights.safetensors", lambda t: t.update({HEAD: t[HEAD].T.contiguous()})),
    "wrong type": rewrite("weights.safetensors", lambda t: t.update({HEAD: t[HEAD].view(torch.int32)})),
    "extra tensor": rewrite("carry.safetensors", lambda t: t.update({"carry/more": torch.zeros(1)})),
    "missing tensor": rewrite("optimizer.safetensors", lambda t: t.pop("m/inner.lm_head.weight")),
    "truncated": truncate,
    "huge header": huge_header,
    "huge file": padded,
    "lying header": lying_header,
    "no file": lambda folder: (folder / "carry.safetensors").unlink(),
    "empty file": lambda folder: (folder / "weights.safetensors").write_bytes(b""),
    "not json": lambda folder: (folder / "state.json").write_text("{"),
    "unknown key": set_state(more=1),
    "newer format": set_state(format=2),
    "negative step": set_state(step=-1),
    "step as text": set_state(step="3"),
    "huge state": lambda folder: (folder / "state.json").write_text(" " * 300_000),
    "a link": lambda folder: (folder / "state.json").rename(folder / "x") and (folder / "state.json").symlink_to("x"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_hostile_files_are_refused_in_one_line_and_change_nothing(make, tmp_path, what: str) -> None:
    write(make(3), tmp_path / "a")
    DAMAGE[what](tmp_path / "a")
    state = make(1)
    before = hash_of(state)
    with pytest.raises(ValueError, match=r"\.(safetensors|json)") as refused:
        read(state, tmp_path / "a")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 400
    state.step = 1
    assert hash_of(state) == before
