"""Attention's kernels with a wait, an arrival or a fence too few fail on threads: the tests beside these can fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.trm.kernels.gluon import attention, test_qkv
from tests.trm.kernels.gluon.loading import Change, Changes, on_programs, seed

EXACT = torch.float64
"""In place of bfloat16, so that nothing hides in its rounding."""
ORDERS = 8
"""In one of so many a fault has to show."""


def swapped(module: str, first: str, second: str, indent: int = 8) -> Change:
    """Two lines the other way round."""
    between = "\n" + " " * indent
    return module, f"{first}{between}{second}", f"{second}{between}{first}"


FORWARD: dict[str, Change] = {
    "keys loaded over": ("long_forward", "mbarrier.wait(kv_empty.index(slot), ((i // S) & 1) ^ 1)", "pass"),
    "queries not waited for": ("long_forward", "mbarrier.wait(q_full.index(n % 2), (n // 2) & 1)", "pass"),
    "keys not waited for": ("long_forward", "mbarrier.wait(kv_full.index(i % S), (i // S) & 1)", "pass"),
    "queries not let go": ("long_forward", "mbarrier.arrive(q_empty.index(n % 2))", "pass"),
    "an arrival too many": ("long_forward", "barriers(S, GROUPS)", "barriers(S, GROUPS - 1)"),
    "a stage too few": ("long_forward", "slot, row = i % S,", "slot, row = i % (S - 1),"),
    "a stage too many": ("long_forward", "slot, row = i % S,", "slot, row = i % (S + 1),"),
    "scores used early": ("long_forward", "o, s, p = warpgroup_mma_wait(0,", "o, s, p = warpgroup_mma_wait(1,"),
    "values let go early": swapped(
        "long_forward", "o, p = warpgroup_mma_wait(0, deps=(o, p))", "mbarrier.arrive(kv_empty.index(i % S))"
    ),
    "a key too many": ("long_forward", "gl.SliceLayout(0, rest)) < L", "gl.SliceLayout(0, rest)) <= L"),
    "ended early": ("long_forward", "BLOCKS)\n    tma.store_wait(0)", "BLOCKS)"),
    "stored over": ("tiles", "tma.store_wait(PENDING)", "pass"),
    "stored unfenced": ("tiles", "fence_async_shared()\n", "pass\n"),
}
BACKWARD: dict[str, Change] = {
    "keys loaded over": ("long_queries", "mbarrier.wait(kv_empty.index(slot), ((i // S) & 1) ^ 1)", "pass"),
    "queries not waited for": ("long_queries", "mbarrier.wait(q_full.index(n % 2), (n // 2) & 1)", "pass"),
    "keys not waited for": ("long_queries", "mbarrier.wait(kv_full.index(i % S), (i // S) & 1)", "pass"),
    "keys let go early": swapped(
        "long_queries", "dq, g = warpgroup_mma_wait(0, deps=(dq, g))", "mbarrier.arrive(kv_empty.index(i % S))"
    ),
    "scores used early": ("long_queries", "s, dp = warpgroup_mma_wait(0,", "s, dp = warpgroup_mma_wait(1,"),
    "queries not let go": ("long_queries", "mbarrier.arrive(q_empty.index(n % 2))\n        i += 1", "i += 1"),
    "queries loaded over": ("long_keys", "mbarrier.wait(q_empty.index(slot), ((i // S) & 1) ^ 1)", "pass"),
    "own keys not waited for": ("long_keys", "mbarrier.wait(kv_full.index(n % 2), (n // 2) & 1)", "pass"),
    "first queries not waited for": ("long_keys", "mbarrier.wait(q_full.index(i % S), (i // S) & 1)", "pass"),
    "next queries not waited for": (
        "long_keys",
        "        mbarrier.wait(q_full.index((i + 1) % S), ((i + 1) // S) & 1)",
        "        pass",
    ),
    "padding does not wait": ("long_keys", "mbarrier.wait(q_full.index(j % S), (j // S) & 1)", "pass"),
    "padding does not let go": ("long_keys", "mbarrier.arrive(q_empty.index(j % S))", "pass"),
    "queries let go early": swapped(
        "long_keys",
        "dv, dk, weights, g = warpgroup_mma_wait(0, deps=(dv, dk, weights, g))",
        "mbarrier.arrive(q_empty.index(i % S))",
        indent=4,
    ),
    "too few bytes expected": ("long_keys", "HEAD * 2 + 2 * 64 * 4", "HEAD * 2 + 64 * 4"),
}
OUTGROWN: dict[str, Change] = {
    "written after what replaces it": ("long_forward", "_written(units)", "pass"),
    "loaded over a store": (
        "long_forward",
        "gl.SliceLayout(1, mma))\n    tma.store_wait(0)",
        "gl.SliceLayout(1, mma))",
    ),
    "keys not waited for": ("long_forward", "mbarrier.wait(ready, 0)", "pass"),
    "values not waited for": ("long_forward", "mbarrier.wait(ready, 1)", "pass"),
    "not noticed": ("long_forward", "outgrown = gl.where(whole < LARGEST, outgrown, 1)", "pass"),
}
SHORT: dict[str, Change] = {
    "queries not waited for": ("short_forward", "mbarrier.wait(full.index(0), 0)", "pass"),
    "values not waited for": ("short_forward", "mbarrier.wait(full.index(1), 0)", "pass"),
    "stored unfenced": ("short_forward", "fence_async_shared()\n", "pass\n"),
    "ended early": ("short_forward", "tma.store_wait(0)", "pass"),
    "a key too many": ("short_forward", "(column < L)", "(column <= L)"),
    "gradients not waited for": ("short_backward", "mbarrier.wait(full.index(0), 0)", "pass"),
    "keys not waited for": ("short_backward", "mbarrier.wait(full.index(1), 0)", "pass"),
    "weights unfenced": ("short_backward", "fence_async_shared()\n    dk", "dk"),
    "values' gradient unfenced": ("short_backward", "sin_ptr, L)\n    fence_async_shared()", "sin_ptr, L)"),
    "gradients unfenced": ("short_backward", "cos, sin, 64)\n    fence_async_shared()", "cos, sin, 64)"),
    "scores used early": ("short_backward", "s = warpgroup_mma_wait(1,", "s = warpgroup_mma_wait(2,"),
    "keys written over": ("short_backward", "dk, dq = warpgroup_mma_wait(0,", "dk, dq = warpgroup_mma_wait(1,"),
}
PROJECTION: dict[str, Change] = {
    "rows loaded over": ("streamed", "mbarrier.wait(x_empty.index(k), ((block - start // NT) & 1) ^ 1)", "pass"),
    "weight loaded over": ("streamed", "mbarrier.wait(w_empty.index(slot), ((i // S) & 1) ^ 1)", "pass"),
    "rows not waited for": ("streamed", "mbarrier.wait(x_full.index(k), block & 1)", "pass"),
    "weight not waited for": ("streamed", "mbarrier.wait(w_full.index((i + k) % S), ((i + k) // S) & 1)", "pass"),
    "turn not waited for": ("streamed", "mbarrier.wait(turn.index(GROUP), (i // (2 * KT) & 1) ^ (1 - GROUP))", "pass"),
    "stages let go early": ("streamed", "warpgroup_mma_wait(1, deps=(acc,))", "warpgroup_mma_wait(2, deps=(acc,))"),
    "rows let go late": ("streamed", "block * NT + NT - 2", "block * NT + NT - 1"),
    "rows let go before they are looked at": ("streamed", "last & ~new", "last"),
    "rows kept after they are looked at": ("streamed", "mbarrier.arrive(bars[1].index(k), pred=last)", "pass"),
    "rows of one tile let go by one group": ("streamed", "(start % NT == NT - 1) & (GROUP == 1)", "False"),
    "ended early": ("streamed", "    tma.store_wait(0)\n", "    pass\n"),
    "stored over": ("streamed", "[row + 64, column], lower, 1)", "[row + 64, column], lower, 2)"),
}


Run = Callable[[pytest.MonkeyPatch, Changes], Any]


def forward(monkeypatch: pytest.MonkeyPatch, changes: Changes) -> None:
    attention.mix_long(on_programs(monkeypatch, 1, changes, EXACT), attention.case(2, 305, 1, EXACT))


def backward(monkeypatch: pytest.MonkeyPatch, changes: Changes) -> None:
    attention.run_long(on_programs(monkeypatch, 1, changes, EXACT), attention.case(2, 305, 1, EXACT))


def outgrown(monkeypatch: pytest.MonkeyPatch, changes: Changes) -> None:
    attention.mix_long(on_programs(monkeypatch, 1, changes, EXACT), attention.case(2, 305, 1, EXACT, first=50.0))


def short(monkeypatch: pytest.MonkeyPatch, changes: Changes) -> None:
    attention.run_short(on_programs(monkeypatch, 1, changes, EXACT), attention.case(3, 97, 2, EXACT))


def projection(monkeypatch: pytest.MonkeyPatch, changes: Changes) -> None:
    """Seven programs for five blocks of rows: one begins with a block's last tile."""
    modules, given = on_programs(monkeypatch, 7, changes, EXACT), test_qkv.case(6, 97, 256, EXACT)
    for summed in (False, True):
        test_qkv.run(modules, given, summed)


FAMILIES: list[tuple[Run, dict[str, Change]]] = [
    (forward, FORWARD),
    (backward, BACKWARD),
    (outgrown, OUTGROWN),
    (short, SHORT),
    (projection, PROJECTION),
]


@pytest.mark.parametrize("run", [run for run, _ in FAMILIES])
def test_right_as_they_are(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    seed(0)
    run(monkeypatch, ())


@pytest.mark.parametrize(
    ("run", "change"),
    [
        pytest.param(run, change, id=f"{run.__name__}: {name}")
        for run, changes in FAMILIES
        for name, change in changes.items()
    ],
)
def test_wrong_or_stuck(monkeypatch: pytest.MonkeyPatch, run: Run, change: Change) -> None:
    with pytest.raises(AssertionError):
        for order in range(ORDERS):
            seed(order)
            run(monkeypatch, (change,))
