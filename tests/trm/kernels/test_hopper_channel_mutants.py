"""A barrier, a fence or a wait too few in Hopper's channel MLP shows in some order of events."""

from __future__ import annotations

from functools import partial

import pytest

from tests.trm.kernels.hopper_cases import caught, gate_up, hidden_grad

SCHEDULES = 6
GONE = "pass"
STREAMED = {
    "rows are loaded over the block before": ("mbarrier.wait(x_empty.index(k), ((block - start // NT) & 1) ^ 1)", GONE),
    "a block's rows are not waited for": ("mbarrier.wait(x_full.index(k), block & 1)", GONE),
    "the next block's rows are waited for": ("x_full.index(k), block & 1)", "x_full.index(k), ~block & 1)"),
    "rows by the place of a block instead of its number": ("((block - start // NT) & 1) ^ 1", "(block & 1) ^ 1"),
    "weights are loaded over others": ("mbarrier.wait(w_empty.index(slot), ((i // S) & 1) ^ 1)", GONE),
    "a ring with one stage too many": (
        "mbarrier.wait(w_empty.index(slot), ((i // S) & 1) ^ 1)",
        "if i > S: mbarrier.wait(w_empty.index((i - 1) % S), (((i - 1) // S) & 1) ^ 1)",
    ),
    "weights are not waited for": ("mbarrier.wait(w_full.index((i + k) % S), ((i + k) // S) & 1)", GONE),
    "a wrong parity": ("((i + k) // S) & 1)", "((i + k) // S + 1) & 1)"),
    "a stage is not let go": ("mbarrier.arrive(w_empty.index(i % S))", GONE),
    "rows are not let go": ("        mbarrier.arrive(x_empty.index(k))", f"        {GONE}"),
    "rows are let go before the other group's last tile": ("block * NT + NT - 2", "block * NT + NT - 3"),
    "rows are let go by one group": ("block * NT + NT - 2", "block * NT + NT - 1"),
    "rows of which one tile is left are not let go by the second group": (
        "pred=(start % NT == NT - 1) & (GROUP == 1)",
        "pred=False",
    ),
    "they are let go by both": ("(start % NT == NT - 1) & (GROUP == 1)", "start % NT == NT - 1"),
    "a group does not wait for its turn": ("mbarrier.wait(turn.index(GROUP), (i // (2 * KT) & 1) ^ (1 - GROUP))", GONE),
    "both groups begin": ("(i // (2 * KT) & 1) ^ (1 - GROUP)", "(i // (2 * KT) & 1) ^ 1"),
    "no turn is handed on": ("mbarrier.arrive(turn.index(1 - GROUP))", GONE),
    "stages are let go under a product": ("warpgroup_mma_wait(1, deps=(acc,))", "warpgroup_mma_wait(2, deps=(acc,))"),
    "the last stage is let go under a product": (
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    _release(bars, KT - 1, i + KT - 1, last, S)\n",
        "    _release(bars, KT - 1, i + KT - 1, last, S)\n    acc = warpgroup_mma_wait(0, deps=(acc,))\n",
    ),
    "sums are used under products": (
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    _release(bars, KT - 1",
        "    _release(bars, KT - 1",
    ),
    "a program ends with stores under way": (
        "            FINISH(acc, row, tile - block * NT, GROUP, args, kept)\n    tma.store_wait(0)",
        "            FINISH(acc, row, tile - block * NT, GROUP, args, kept)",
    ),
    "a whole tile is staged over the one before": (
        "store(out, whole, whole, [row, column], value, 0)",
        "store(out, whole, whole, [row, column], value, 1)",
    ),
    "half a tile is staged over the one before": (
        "store(out, second, second, [row + 64, column], lower, 1)",
        "store(out, second, second, [row + 64, column], lower, 2)",
    ),
    "both groups stage in one place": ("staged.index(2 * GROUP), ", "staged.index(0), "),
}
"""Text of trm/kernels/specialized/streamed.py, and what takes its place."""


@pytest.mark.parametrize("fault", STREAMED)
def test_streamed_rows(fault: str) -> None:
    """Three blocks of four tiles: for four programs, and for one. Hidden values alone are staged in halves."""
    halves = "half" in fault or "both groups stage" in fault
    case = partial(gate_up, rows=300, keep=not halves, normed=True)
    changes = (("streamed", *STREAMED[fault]),)
    assert caught(case, 4, SCHEDULES, changes) or caught(case, 1, SCHEDULES, changes)


STORED = {
    "not waited": ("    tma.store_wait(PENDING)\n", ""),
    "not fenced": ("    fence_async_shared()\n", ""),
}


@pytest.mark.parametrize("fault", STORED)
@pytest.mark.parametrize("keep", [True, False])
def test_stores(fault: str, keep: bool) -> None:
    case = partial(gate_up, rows=300, keep=keep, normed=False)
    assert caught(case, 1, SCHEDULES, (("tiles", *STORED[fault]),))


HIDDEN = {
    "loaded over a stage": ("    mbarrier.wait(empty.index(slot), ((i // S) & 1) ^ 1)\n", ""),
    "a ring with one stage too many": (
        "mbarrier.wait(empty.index(slot), ((i // S) & 1) ^ 1)",
        "if i > S: mbarrier.wait(empty.index((i - 1) % S), (((i - 1) // S) & 1) ^ 1)",
    ),
    "products are fetched before their buffer is free": (
        "            _fetch(gu, gus, full, count, unit, i - 1 + B, B)",
        "            _fetch(gu, gus, full, count, unit, i + B, B)",
    ),
    "gradients are stored before they are made": ("        mbarrier.wait(done.index(slot), (i // B) & 1)\n", ""),
    "gradients are stored by the wrong parity": ("done.index(slot), (i // B) & 1", "done.index(slot), ~(i // B) & 1"),
    "stores are fetched over": ("tma.store_wait(2)", "tma.store_wait(4)"),
    "stores are under way at the end": ("    tma.store_wait(0)\n", ""),
    "weights are not waited for": ("    mbarrier.wait(full.index(k % S), (k // S) & 1)\n", ""),
    "weights are not let go": ("    mbarrier.arrive(empty.index(k % S))\n", ""),
    "weights are let go before they are read": (
        "    w = ring.index(2 * (k % S) + GROUP).permute((1, 0)).load(gl.DotOperandLayout(0, mma, 2))\n"
        "    mbarrier.arrive(empty.index(k % S))\n",
        "    mbarrier.arrive(empty.index(k % S))\n"
        "    w = ring.index(2 * (k % S) + GROUP).permute((1, 0)).load(gl.DotOperandLayout(0, mma, 2))\n",
    ),
    "rows are not waited for": ("        mbarrier.wait(full.index(slot), ((i + k) // S) & 1)\n", ""),
    "rows are let go under products": ("warpgroup_mma_wait(0, deps=(acc,))", "warpgroup_mma_wait(2, deps=(acc,))"),
    "rows are not let go": ("        mbarrier.arrive(empty.index((i + k) % S))\n", f"        {GONE}\n"),
    "products are not waited for": (
        "        mbarrier.wait(gu_full.index(j % B), (j // B) & 1)\n        _activate",
        "        _activate",
    ),
    "the last products are not waited for": (
        "    early, late = _halves(dh)\n    mbarrier.wait(gu_full.index(j % B), (j // B) & 1)\n    _activate",
        "    early, late = _halves(dh)\n    _activate",
    ),
    "gradients are not fenced": ("    fence_async_shared()\n", ""),
    "gradients are not given": ("    mbarrier.arrive(done.index(slot))\n", ""),
    "half of the gradients is given": (
        "        _activate(gus, late, j % B, 32)\n        _give(gus, done, j % B)\n        dh",
        "        _give(gus, done, j % B)\n        _activate(gus, late, j % B, 32)\n        dh",
    ),
    "one group lets go of a stage": (
        "barriers(S, 1), barriers(S, 2), barriers(B, 1)",
        "barriers(S, 1), barriers(S, 1), barriers(B, 1)",
    ),
    "loads past the last row": ("more = i % B, i // 2 < count", "more = i % B, True"),
}
"""Text of trm/kernels/specialized/hidden_grad.py."""


@pytest.mark.parametrize("fault", HIDDEN)
def test_hidden_gradient(fault: str) -> None:
    """Six blocks for one program, which has four tiles' buffers."""
    assert caught(partial(hidden_grad, rows=350, inner=128), 1, SCHEDULES, (("hidden_grad", *HIDDEN[fault]),))
