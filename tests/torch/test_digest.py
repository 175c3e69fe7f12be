"""P9's digest: every bit and every name counts; device, threads, order and halted rows do not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relay.torch import digest as digests
from relay.torch.digest import Digest, digest, lanes, queued
from relay.torch.snapshot import state_hash

G = torch.Generator().manual_seed(0)
TENSORS = {
    "f32": torch.randn(7, 3, generator=G),
    "bf16": torch.randn(5, generator=G).bfloat16(),
    "i32": torch.randint(-9, 9, (4, 3), generator=G, dtype=torch.int32),
    "bool": torch.tensor([True, False, True]),
    "scalar": torch.tensor(1.5, dtype=torch.float64),
    "zeros": torch.zeros(9),
}
FACTS = {"step": 3, "seed": 0}
PINNED = "414ce0f2c0c6b7471b76c9a2672deb5aa05b2e15faf86c12e6ce2b44390b3b7e"


@pytest.mark.slow
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_any_flipped_bit_changes_it(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(set(TENSORS) - {"bool"})))
    flat = TENSORS[name].clone().reshape(-1)
    raw = flat.view(torch.uint8)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    changed = TENSORS | {name: flat.view(TENSORS[name].shape)}
    assert digest(changed, FACTS) != digest(TENSORS, FACTS)


def test_any_flipped_truth_changes_it() -> None:
    for i in range(3):
        flags = TENSORS["bool"].clone()
        flags[i] ^= True
        assert digest(TENSORS | {"bool": flags}, FACTS) != digest(TENSORS, FACTS)


def test_every_bit_of_a_word_reaches_every_lane() -> None:
    base = lanes("x", torch.zeros(3, dtype=torch.int64))
    for bit in range(64):
        value = torch.zeros(3, dtype=torch.int64)
        value[1] = -(2**63) if bit == 63 else 1 << bit
        assert (lanes("x", value) != base).all()


def test_names_shapes_types_and_facts_count() -> None:
    a, b = torch.randn(4, generator=G), torch.randn(4, generator=G)
    base = digest({"a": a, "b": b}, FACTS)
    assert digest({"a": b, "b": a}, FACTS) != base
    assert digest({"a": a, "c": b}, FACTS) != base
    assert digest({"a": a.view(2, 2), "b": b}, FACTS) != base
    assert digest({"a": a.view(torch.int32), "b": b}, FACTS) != base
    assert digest({"a": a, "b": b}, FACTS | {"step": 4}) != base
    assert digest({"a": a.flip(0), "b": b}, FACTS) != base
    assert digest({"b": b, "a": a}, FACTS) == base


def test_memory_layout_does_not_count() -> None:
    x = torch.randn(6, 4, generator=G)
    padded = torch.zeros(6, 9)
    padded[:, 3:7] = x
    assert digest({"x": padded[:, 3:7]}, {}) == digest({"x": x}, {})
    odd = torch.cat((torch.zeros(1), x.reshape(-1)))[1:].view(6, 4)
    assert digest({"x": odd}, {}) == digest({"x": x}, {})


def test_threads_and_chunks_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    x = {"x": torch.randn(200_000, generator=G)}
    base = digest(x, {})
    torch.set_num_threads(2)
    assert digest(x, {}) == base
    monkeypatch.setattr("relay.torch.digest._CHUNK", {"cpu": 1000})
    assert digest(x, {}) == base


def test_the_value_is_pinned() -> None:
    """Digests are stored in ledgers: a change of this value breaks every run."""
    known = {"a": torch.arange(5, dtype=torch.float32), "b": torch.tensor([True, False])}
    assert digest(known, {"step": 1, "seed": 2}) == PINNED


def test_each_device_sums_its_own_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop's streams lie on the CPU, its weights elsewhere: a kernel must not get the address of the others."""
    sums, on = list[tuple[torch.device, torch.device]](), list[torch.device]()
    monkeypatch.setattr(digests, "has_kernels", lambda device: on.append(device))
    monkeypatch.setattr(
        digests, "lanes", lambda _, tensor: sums.append((on[-1], tensor.device)) or torch.zeros(digests.LANES)
    )
    elsewhere = {f"{name} {at}": each.to("meta") for name, each in TENSORS.items() for at in ("a", "z")}
    Digest(TENSORS | elsewhere, FACTS)
    assert {device for device, _ in sums} == {torch.device("cpu"), torch.device("meta")}
    assert all(asked == own for asked, own in sums)


def test_what_is_waited_for_is_the_gpu_that_holds_the_tensors(monkeypatch) -> None:
    """A thread's current device may be another one (`device=cuda:1`): a mark there would be passed at once."""
    marks: list[object] = []

    class Mark:
        def record(self, stream: object = None) -> None:
            marks.append(stream)

    monkeypatch.setattr(torch.cuda, "Event", Mark)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: ("stream", device))
    queued(torch.device("cuda", 1))
    assert marks == [("stream", torch.device("cuda", 1))]


def test_a_states_digest_ignores_halted_rows_and_padding(make) -> None:
    one, two = make(2), make(2)
    for state in (one, two):
        state.carry.halted[0] = True
    two.carry.z_L[0] = 7
    used = sum(view.numel() for view in two.params.views.values())
    assert used < two.params.buffer.numel()
    assert state_hash(one.canonical(), 2, 0) == state_hash(two.canonical(), 2, 0)
    two.carry.z_L[1] += 1
    assert not two.carry.halted[1]
    assert state_hash(one.canonical(), 2, 0) != state_hash(two.canonical(), 2, 0)
