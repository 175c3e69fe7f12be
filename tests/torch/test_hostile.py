"""A store that an attacker writes, end to end: another session commits hostile files, the next one loads nothing."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import relay
from relay.core.clock import RealRuntime
from relay.core.errors import RelayError
from relay.core.ledger.ledger import RunLedger
from relay.core.workload import Saved
from relay.torch.loop import LoopSnapshot, State
from relay.torch.loopfiles import MAX_JSON
from relay.torch.ownloop import Session
from storage.local import LocalStore

pytestmark = pytest.mark.slow
Harm = Callable[[Path], None]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    yield tmp_path
    Session._open = None


def session(account: str, until: int) -> dict[str, Tensor]:
    """The model's tensors at the end. A checkpoint that `track` refuses changes none of them."""
    torch.manual_seed(len(account))
    net = nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(net.parameters())
    loader = DataLoader(TensorDataset(torch.ones(8, 2)), 2, shuffle=True)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    try:
        with relay.session("ada/net", account=account, target_steps=9) as run:
            run.track(net=net, opt=optimizer, table=torch.zeros(2), dice=torch.Generator())
            before = net.state_dict()
            for (x,) in run.batches(loader):
                optimizer.zero_grad()
                net(x).sum().backward()
                optimizer.step()
                if run.step + 1 == until:
                    run.stop()
    except RelayError:
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
        raise
    return net.state_dict()


def tensors(part: str, **changes: Tensor | None) -> Harm:
    """These tensors instead of, or besides, a part's own."""

    def harm(folder: Path) -> None:
        path = folder / f"{part}.safetensors"
        found = load_file(path) | {f"{part}/{name}".replace("__", "/"): each for name, each in changes.items()}
        save_file({name: each for name, each in found.items() if each is not None}, path)

    return harm


def plain(part: str, change: Callable[[Any], Any]) -> Harm:
    """Another JSON for a part."""

    def harm(folder: Path) -> None:
        path = folder / f"{part}.json"
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return harm


def long_header(folder: Path) -> None:
    path = folder / "net.safetensors"
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = data[8 : 8 + size].ljust(2 << 20)
    path.write_bytes(struct.pack("<Q", len(header)) + header + data[8 + size :])


def with_key(node: Any) -> Any:
    node[0][0]["map"].append(["more", 1])
    return node


def other_setting(node: Any) -> Any:
    node[0][0]["map"] = [[key, {"map": []} if key == "lr" else value] for key, value in node[0][0]["map"]]
    return node


def beyond_the_epoch(node: Any) -> Any:
    return {"map": [["epoch", 0], ["batch", 10**9], *node["map"][2:]]}


HARMS: dict[str, tuple[Harm, int]] = {
    "keys: a tensor more": (tensors("net", other=torch.zeros(1)), 78),
    "keys: a tensor less": (tensors("net", bias=None), 78),
    "keys: state of no parameter": (tensors("opt", net__other__exp_avg=torch.zeros(1)), 78),
    "keys: a part more": (lambda folder: save_file({}, folder / "evil.safetensors"), 78),
    "keys: a part less": (lambda folder: (folder / "table.safetensors").unlink(), 78),
    "keys: of a dict": (plain("opt", with_key), 78),
    "types: of a tensor": (tensors("table", tensor=torch.zeros(2, dtype=torch.int64)), 78),
    "types: of a setting": (plain("opt", other_setting), 78),
    "types: of a stream": (plain("random", lambda node: {"map": [["python", 1]]}), 78),
    "shapes: of a parameter": (tensors("net", weight=torch.zeros(1000, 1000)), 78),
    "shapes: of new state": (tensors("opt", net__weight__exp_avg=torch.zeros(1000)), 78),
    "sizes: of a header": (long_header, 65),
    "sizes: of plain values": (plain("net", lambda node: ["x" * MAX_JSON]), 65),
    "sizes: of a file": (lambda folder: (folder / "net.safetensors").write_bytes(b"\0" * 99), 65),
    "values: beyond the data": (plain("loader", beyond_the_epoch), 78),
    "values: of a generator": (tensors("dice", state=torch.zeros(5056, dtype=torch.uint8)), 78),
    "values: not finite": (tensors("net", bias=torch.full((3,), torch.nan)), 65),
}


@pytest.mark.parametrize("harm", HARMS)
def test_nothing_of_an_attacker_is_loaded(here: Path, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    save, (do, code) = LoopSnapshot.save, HARMS[harm]

    def hostile(snapshot: LoopSnapshot, folder: Path) -> Saved:
        saved = save(snapshot, folder)
        do(folder)
        names = tuple(sorted(path.name for path in folder.iterdir()))
        try:  # the hash of what is there now, as anybody can compute it
            files = [load_file(path) for path in folder.glob("*.safetensors")]
        except SafetensorError:
            return Saved(saved.step, saved.state_hash, names)
        tensors = {name: each for found in files for name, each in found.items()}
        nodes = {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "state"}
        return Saved(saved.step, State(saved.step, tensors, nodes, set()).digest().text, names)

    monkeypatch.setattr(LoopSnapshot, "save", hostile)
    session("eve", 2)
    monkeypatch.undo()
    monkeypatch.chdir(here)
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(here))
    with pytest.raises(RelayError) as refused:
        session("ana", 4)
    assert refused.value.exit_code == code
    state = RunLedger(LocalStore(here / "relay_store"), "ada", "net", RealRuntime()).read().state
    assert state.step == 2 and state.holder is None, "the lease is given back, and nothing was trained on it"
