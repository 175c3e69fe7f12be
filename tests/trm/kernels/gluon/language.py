"""The names that kernels import from Gluon, as modules."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from tests.trm.kernels.gluon import barriers, copies, products, shared
from tests.trm.kernels.gluon.machine import Machine, Task
from tests.trm.kernels.gluon.values import Number, Pointer, Values, constant, plain

ASSEMBLY: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ex2.approx": torch.exp2,
    "tanh.approx": torch.tanh,
    "shl.b32": torch.Tensor.float,
}
"""What a text that begins so computes."""
WRITTEN = "cp.async.bulk.wait_group 0"


class Kernel:
    """Called inside a kernel as a function, launched from outside: its programs one after another, in any order."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.function(*args, **named)

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*args: Any, num_warps: int, maxnreg: int) -> None:
            given = [Pointer(x.view(-1)) if isinstance(x, torch.Tensor) else constant(x) for x in args]
            programs = list(itertools.product(*(range(n) for n in grid)))
            Machine.chance.shuffle(programs)
            for program in programs:
                machine = Machine(program, grid)
                machine.run(partial(live, self.function, *given))

        return launch


def live(function: Callable[..., None], *args: Any) -> None:
    """A thread from its beginning to its end, with which nothing that it began may be left."""
    function(*args)
    task = Machine.present.current
    assert not task.products, "ends with products under way"
    assert not task.stores, "ends while a bulk store may still read shared memory"
    copies.written()


class Ends(list[Task]):
    """Whether these have ended."""

    def __call__(self) -> bool:
        return all(task.over for task in self)

    def __str__(self) -> str:
        return "for its partitions"


def warp_specialize(parts: Sequence[tuple[Kernel, tuple[Any, ...]]], _warps: Any, _registers: Any) -> None:
    machine = Machine.present
    machine.pause(
        Ends(
            machine.start(f"{number} {kernel.function.__name__}", partial(live, kernel, *args))
            for number, (kernel, args) in enumerate(parts)
        )
    )


def allocate(dtype: torch.dtype, shape: Sequence[int], _layout: Any) -> Any:
    if dtype == torch.int64:
        return barriers.Barriers(barriers.Barrier(f"{i} of {shape[0]}") for i in range(shape[0]))
    return shared.Shared.empty(shape, dtype)


def load(pointer: Pointer, mask: Any = True, other: float = 0.0) -> Values:
    real = torch.as_tensor(plain(mask)).expand(torch.as_tensor(pointer.at).shape)
    return Values(torch.where(real, pointer.data[pointer.places(real)], other).to(pointer.data.dtype))


def store(pointer: Pointer, value: Values, mask: Any = True) -> None:
    real = torch.as_tensor(plain(mask)).expand(pointer.at.shape)
    pointer.data[pointer.places(real)[real]] = value.data.expand(real.shape)[real].to(pointer.data.dtype)


def where(condition: Any, a: Any, b: Any) -> Any:
    if isinstance(condition, Values):
        return Values(torch.where(condition.data, plain(a), plain(b)))
    return a if condition else b


def assembly(text: str, _names: str, args: Sequence[Any], **_options: Any) -> Any:
    if text.startswith(WRITTEN):
        return copies.written()
    (found,) = (compute for begin, compute in ASSEMBLY.items() if text.startswith(begin))
    return Values(found(args[0].data))


def _layouts(gl: Any) -> None:
    for name in ("SliceLayout", "DotOperandLayout", "NVMMADistributedLayout", "SwizzledSharedLayout", "BlockedLayout"):
        setattr(gl, name, lambda *_args, **_named: None)
    gl.DistributedLinearLayout = gl.SliceLayout
    gl.NVMMASharedLayout = type("Layout", (SimpleNamespace,), {"get_default_for": staticmethod(lambda *_: None)})


def _elementwise(gl: Any) -> None:
    for compute in (torch.exp2, torch.log2, torch.rsqrt, torch.sqrt):
        setattr(gl, compute.__name__, lambda x, compute=compute: Values(compute(x.data)))
    gl.maximum = lambda a, b: Values(torch.maximum(a.data, b.data))
    gl.sum = lambda x, axis: Values(x.data.sum(dim=axis))
    gl.max = lambda x, axis: Values(x.data.amax(dim=axis))


def _shapes(gl: Any) -> None:
    gl.zeros = lambda shape, dtype, _layout: Values(torch.zeros(tuple(shape), dtype=dtype))
    gl.full = lambda shape, value, dtype, _layout: Values(torch.full(tuple(shape), value, dtype=dtype))
    gl.arange = lambda start, end, _layout: Values(torch.arange(start, end))
    gl.reshape = lambda x, shape: Values(x.data.reshape(*shape))
    gl.permute = lambda x, order: Values(x.data.permute(*order))
    gl.split = lambda x: (Values(x.data[..., 0]), Values(x.data[..., 1]))
    gl.join = lambda a, b: Values(torch.stack((a.data, b.data), dim=-1))
    gl.convert_layout = lambda x, _layout, assert_trivial=False: x


def language(half: torch.dtype) -> ModuleType:
    """What kernels call gl; `half`: its bfloat16."""
    gl: Any = ModuleType("triton.experimental.gluon.language")
    gl.constexpr, gl.static_range = constant, range
    gl.float32, gl.bfloat16, gl.int32, gl.int64 = torch.float32, half, torch.int32, torch.int64
    gl.program_id = lambda axis: Number(Machine.present.program[axis])
    gl.num_programs = lambda axis: Number(Machine.present.grid[axis])
    gl.cdiv = lambda a, b: -(-a // b)
    gl.load, gl.store, gl.where, gl.inline_asm_elementwise = load, store, where, assembly
    gl.allocate_shared_memory, gl.warp_specialize = allocate, warp_specialize
    for fill in (_layouts, _elementwise, _shapes):
        fill(gl)
    return gl


def hopper() -> ModuleType:
    found: Any = ModuleType("triton.experimental.gluon.language.nvidia.hopper")
    found.mbarrier = SimpleNamespace(
        init=barriers.init, wait=barriers.wait, arrive=barriers.arrive, expect=barriers.expect,
        MBarrierLayout=lambda: None,
    )  # fmt: skip
    found.tma = SimpleNamespace(
        async_copy_global_to_shared=copies.load, async_copy_shared_to_global=copies.store, store_wait=copies.store_wait
    )
    found.fence_async_shared = shared.fence_async_shared
    found.warpgroup_mma, found.warpgroup_mma_wait = products.warpgroup_mma, products.warpgroup_mma_wait
    return found
