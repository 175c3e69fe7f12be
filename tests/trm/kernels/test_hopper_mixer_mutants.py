"""A barrier, a fence or a wait too few in Hopper's token mixer shows in some order of events.

Not among them, since another wait holds what they would let go: down's stages of the input gradient (`d_empty`), whose
up is let go later, and tiles that who makes the factors lets go before its products of them are done. Nor fences
between a thread's reading and a bulk load over it, at which nothing here looks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import pytest

from tests.trm.kernels.gluon.loading import kernels
from tests.trm.kernels.hopper_cases import Mixer, Pairs, caught, mixer_forward, mixer_input_grad, mixer_weight_grad

SCHEDULES = 6
mixer = cache(Mixer)
WEIGHTS = {
    "up is loaded over a stage": ("        mbarrier.wait(u_empty.index(slot), phase)\n", ""),
    "down is loaded over a stage": ("        mbarrier.wait(d_empty.index(slot), phase)\n", ""),
    "a wrong parity": ("phase = ((i // S) & 1) ^ 1", "phase = (i // S) & 1"),
    "a ring with one stage too many": (
        "mbarrier.wait(u_empty.index(slot), phase)",
        "if i > S: mbarrier.wait(u_empty.index((i - 1) % S), (((i - 1) // S) & 1) ^ 1)",
    ),
    "stages are not counted on": ("        i += 1\n    return i", "        i += 1\n    return 0"),
}
"""Text of trm/kernels/specialized/weight_stream.py."""


@pytest.mark.parametrize("fault", WEIGHTS)
def test_weights(fault: str) -> None:
    assert caught(partial(mixer_forward, case=mixer(1, 21)), 3, SCHEDULES, (("weight_stream", *WEIGHTS[fault]),))


@pytest.mark.parametrize("part", [mixer_forward, mixer_input_grad])
def test_rows_are_kept_until_they_are_read(monkeypatch: pytest.MonkeyPatch, part: Callable[..., Pairs]) -> None:
    """With few stages the weights' ring alone holds the loads back."""
    changes = ((part.__name__, "            mbarrier.wait(x_empty.index(group), ((t - start) & 1) ^ 1)\n", ""),)
    monkeypatch.setattr(kernels(changes)[part.__name__], "STAGES", 32)
    assert caught(partial(part, case=mixer(1, 21)), 1, SCHEDULES, changes)


FORWARD = {
    "x is not waited for": ("        mbarrier.wait(x_full.index(GROUP), (t - start) & 1)\n", ""),
    "x by the place of a unit instead of its number": (
        "x_full.index(GROUP), (t - start) & 1",
        "x_full.index(GROUP), t & 1",
    ),
    "x is not let go": ("        mbarrier.arrive(x_empty.index(GROUP))\n", ""),
    "the first up is not waited for": ("    mbarrier.wait(u_full.index(i % S), (i // S) & 1)\n", ""),
    "up is not waited for": ("            mbarrier.wait(u_full.index((i + c + 1) % S), ((i + c + 1) // S) & 1)\n", ""),
    "down is not waited for": ("        mbarrier.wait(d_full.index(slot), ((i + c) // S) & 1)\n", ""),
    "up is not let go": ("        mbarrier.arrive(u_empty.index(slot))\n", ""),
    "down is not let go": ("            mbarrier.arrive(d_empty.index((i + c - 1) % S))\n", "            pass\n"),
    "the last down is not let go": ("    mbarrier.arrive(d_empty.index((i + CHUNKS - 1) % S))\n", ""),
    "down is let go before its product": (
        "mbarrier.arrive(d_empty.index((i + c - 1) % S))",
        "mbarrier.arrive(d_empty.index((i + c) % S))",
    ),
    "sums are used under products": ("1 if c + 1 < CHUNKS else 0", "2 if c + 1 < CHUNKS else 0"),
    "the sum is used under products": ("    acc = warpgroup_mma_wait(0, deps=(acc,))\n", ""),
    "y is staged over the one before": ("        tma.store_wait(0)\n        out.reshape", "        out.reshape"),
    "y is not fenced": (
        "        fence_async_shared()\n        tma.async_copy_shared_to_global",
        "        tma.async_copy_shared_to_global",
    ),
    "y is under way at the end": ("[t // PER, 0, col], out)\n    tma.store_wait(0)\n", "[t // PER, 0, col], out)\n"),
    "one group lets go of up": ("mbarrier.init(u_empty.index(s), count=2)", "mbarrier.init(u_empty.index(s), count=1)"),
    "one group lets go of down": (
        "mbarrier.init(d_empty.index(s), count=2)",
        "mbarrier.init(d_empty.index(s), count=1)",
    ),
    "both groups take one half": ("+ 64 * group]", "+ 0 * group]"),
}
"""Text of trm/kernels/specialized/mixer_forward.py."""


@pytest.mark.parametrize("fault", FORWARD)
def test_forward(fault: str) -> None:
    """One unit for a program, and two, which begin at an odd one."""
    assert caught(partial(mixer_forward, case=mixer(1, 21)), 3, SCHEDULES, (("mixer_forward", *FORWARD[fault]),))


INPUT = {
    "x is not waited for": ("        mbarrier.wait(x_full.index(GROUP), (t - start) & 1)\n", ""),
    "x is not let go": ("        mbarrier.arrive(x_empty.index(GROUP))\n", ""),
    "up is not waited for": ("        mbarrier.wait(u_full.index(slot), phase)\n", ""),
    "down is not waited for": ("        mbarrier.wait(d_full.index(slot), phase)\n", ""),
    "a wrong parity": ("phase = ((i + c) // S) & 1", "phase = ((i + c) // S + 1) & 1"),
    "up is not let go": ("            mbarrier.arrive(u_empty.index((i + c - 1) % S))\n", "            pass\n"),
    "the last up is not let go": ("    mbarrier.arrive(u_empty.index((i + UNROLL - 1) % S))\n", ""),
    "down is not let go": ("        mbarrier.arrive(d_empty.index(slot))\n", ""),
    "up is let go before its product": ("u_empty.index((i + c - 1) % S)", "u_empty.index((i + c) % S)"),
    "sums are used under products": (
        "s, dh, acc = warpgroup_mma_wait(0, deps=(s, dh, acc))",
        "s, dh, acc = warpgroup_mma_wait(1, deps=(s, dh, acc))",
    ),
    "the last up is let go under its product": (
        "    acc = warpgroup_mma_wait(0, deps=(acc,))\n    mbarrier.arrive(u_empty.index((i + UNROLL - 1) % S))\n",
        "    mbarrier.arrive(u_empty.index((i + UNROLL - 1) % S))\n    acc = warpgroup_mma_wait(0, deps=(acc,))\n",
    ),
    "stores are under way at the end": ("acc.to(dx.dtype))\n    tma.store_wait(0)\n", "acc.to(dx.dtype))\n"),
    "dr and dx are staged over each other": (
        "store(out, tile, tile.reshape((128, 64)).permute((1, 0)), at, value, 0)",
        "store(out, tile, tile.reshape((128, 64)).permute((1, 0)), at, value, 1)",
    ),
    "stages are not counted on": ("            i += UNROLL\n", ""),
    "one group lets go of up": ("bars = (barriers(S, 1), barriers(S, 2)", "bars = (barriers(S, 1), barriers(S, 1)"),
    "one group lets go of down": (
        "barriers(S, 2), barriers(S, 1), barriers(S, 2))",
        "barriers(S, 2), barriers(S, 1), barriers(S, 1))",
    ),
    "two of three tiles are expected": ("3 * 128 * 64 * 2", "2 * 128 * 64 * 2"),
}
"""Text of trm/kernels/specialized/mixer_input_grad.py."""


@pytest.mark.parametrize("fault", INPUT)
def test_input_gradient(fault: str) -> None:
    assert caught(partial(mixer_input_grad, case=mixer(1, 21)), 3, SCHEDULES, (("mixer_input_grad", *INPUT[fault]),))


SUMMED = {
    "tiles are loaded over others": ("        mbarrier.wait(empty.index(slot), ((i // S) & 1) ^ 1)\n", ""),
    "a ring with one stage too many": (
        "mbarrier.wait(empty.index(slot), ((i // S) & 1) ^ 1)",
        "if i > S: mbarrier.wait(empty.index((i - 1) % S), (((i - 1) // S) & 1) ^ 1)",
    ),
    "tiles are not waited for": (
        "        mbarrier.wait(full.index(slot), (i // S) & 1)\n        x, dr",
        "        x, dr",
    ),
    "tiles are not let go by who makes factors": ("        mbarrier.arrive(empty.index(slot))\n", ""),
    "tiles are not let go by who sums": ("                mbarrier.arrive(empty.index((i - 1) % S))\n", ""),
    "the last tile is not let go": ("        mbarrier.arrive(empty.index((i0 + UNROLL - 1) % S))\n", ""),
    "one group lets go of a tile": ("mbarrier.init(empty.index(s), count=2)", "mbarrier.init(empty.index(s), count=1)"),
    "factors are made over others": ("        mbarrier.wait(p_empty.index(q), ((i // Q) & 1) ^ 1)\n", ""),
    "factors are not waited for": ("            mbarrier.wait(p_full.index(q), (i // Q) & 1)\n", ""),
    "factors are waited for by the wrong parity": (
        "p_full.index(q), (i // Q) & 1",
        "p_full.index(q), (i // Q + 1) & 1",
    ),
    "factors are not fenced": ("        fence_async_shared()\n", ""),
    "factors are told before they are fenced": (
        "        fence_async_shared()\n        mbarrier.arrive(p_full.index(q))\n",
        "        mbarrier.arrive(p_full.index(q))\n        fence_async_shared()\n",
    ),
    "factors are not told": ("        mbarrier.arrive(p_full.index(q))\n", ""),
    "factors are let go under products": (
        "warpgroup_mma_wait(3, deps=(a, b, c))",
        "warpgroup_mma_wait(6, deps=(a, b, c))",
    ),
    "factors of the present tile are let go": ("p_empty.index((i - 1) % Q)", "p_empty.index(i % Q)"),
    "sums are used under products": ("a, b, c = warpgroup_mma_wait(0, deps=(a, b, c))", "pass"),
}
"""Text of trm/kernels/specialized/mixer_weight_grad.py."""


@pytest.mark.parametrize("fault", SUMMED)
def test_weight_gradient(fault: str) -> None:
    case = partial(mixer_weight_grad, case=mixer(1, 21), parts=1, add=False)
    assert caught(case, 1, SCHEDULES, (("mixer_weight_grad", *SUMMED[fault]),))
