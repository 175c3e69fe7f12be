"""Compile every kernel for compute capability 9.0, as its launcher would start it at full size; needs no GPU.

Run as a program outside the interpreter: prints one JSON object a launch with registers a thread, and stack and shared
memory in bytes.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from relay.torch import rng
from relay.torch.kernels import digest
from trm.kernels import attention, batch, channel_mlp, embedding, loss, norm, optimizer, token_mixer
from trm.kernels.layout import Anew, Tables, Total
from trm.kernels.specialized import attention as hopper_attention
from trm.kernels.specialized import channel, mixer
from trm.layers import rotary_tables


class Hopper:
    """What Triton asks its driver before a launch, answered for a GPU that is not here."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_instead(kernel: Any, grid: tuple[int, ...]) -> Any:
    """Stands in for `kernel[grid]`: what would be launched is compiled and reported."""

    def compile_launch(*args: Any, **options: int) -> None:
        compiled = kernel.run(*args, grid=grid, warmup=True, **options)
        print(json.dumps({"kernel": f"{kernel.__module__}.{kernel.__name__}", **resources(compiled)}), flush=True)

    return compile_launch


def resources(compiled: Any) -> dict[str, int]:
    """Registers a thread, stack bytes a thread (spills), shared bytes a program."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        tool = triton.knobs.nvidia.cuobjdump.path
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.search(rf"{what}:(\d+)", text)[1]) for what in ("REG", "STACK"))  # type: ignore[index]
    return {"registers": registers, "stack": stack, "shared": compiled.metadata.shared}


def launch_all() -> None:
    """Every launcher once, at the published configuration's widths and a batch of one or two."""
    x = torch.zeros(2, 97, 512, dtype=torch.bfloat16)
    rows, wgu, wd = x.flatten(0, 1), torch.zeros(1024, 128).bfloat16(), torch.zeros(512, 128).bfloat16()
    y, rstd = token_mixer.forward(x, wgu, wd, 1e-5)
    token_mixer.input_grad(x, y, rstd, x, wgu, wd, torch.empty_like(x))
    token_mixer.weight_grad(x, x, wgu, wd, torch.zeros(2, 1024, 128), torch.zeros(2, 512, 128), True)
    up, down = torch.zeros(3072, 512).bfloat16(), torch.zeros(512, 1536).bfloat16()
    channel_mlp.gate_up(rows, up, False)
    _, products = channel_mlp.gate_up(rows, up, True)
    squares = torch.zeros(len(rows), 1)
    channel_mlp.gate_up(rows, up, True, squares, 1e-5)
    channel_mlp.hidden_grad(rows, down, products)
    _, _, row_rstd = norm.forward(rows, rows, 1e-5, rows)
    norm.forward(rows, rows, 1e-5, squares=squares)
    norm.backward(rows, rows, row_rstd)
    norm.backward_of_sum(rows, rows, squares, 1e-5)
    tables, qkv = rotary_tables(97, 64, 10000.0), torch.zeros(2, 97, 1536).bfloat16()
    attention.forward(qkv, *tables, 8)
    attention.backward(qkv, *tables, x, (), x, 8)
    attention.forward(torch.zeros(2, 150, 1536).bfloat16(), *rotary_tables(150, 64, 10000.0), 8)
    ids = torch.zeros(2, 81, dtype=torch.int32)
    loss.loss_and_grad(torch.zeros(2, 97, 16).bfloat16(), ids, 16, 11, -100)
    sought = Tables(torch.zeros(11, 512), ids, torch.zeros(1, 512), ids[:, 0])
    embedding.inject(x, x, sought, None)
    embedding.inject(x, x, sought, Anew(torch.zeros(2, dtype=torch.bool), x[0, 0], x[0, 0]))
    embedding.token_grad(ids, torch.zeros(6, 2, 97, 512).bfloat16(), 16, 11)
    cells, chosen = torch.zeros(9, 81, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64)
    batch.batch(cells, cells, chosen, 0, 1, -100, True)
    digest.lanes([torch.zeros(8192, dtype=torch.int64)], torch.zeros(1, 4, dtype=torch.int64), *rng.constants())
    flat = torch.zeros(4096)
    optimizer.adam_atan2_ema_(flat, flat, flat, flat, flat, torch.zeros(3), (0.9, 0.95), 0.999)


def launch_specialized() -> None:
    """Every launcher of the kernels for Hopper alone."""
    x = torch.zeros(2, 97, 512, dtype=torch.bfloat16)
    rows, wgu, wd = x.flatten(0, 1), torch.zeros(1024, 128).bfloat16(), torch.zeros(512, 128).bfloat16()
    y, rstd = mixer.forward(x, wgu, wd, 1e-5)
    mixer.input_grad(x, y, rstd, x, wgu, wd, torch.empty_like(x))
    mixer.weight_grad(x, x, wgu, wd, torch.zeros(2, 1024, 128), torch.zeros(2, 512, 128), True)
    up, down = torch.zeros(3072, 512).bfloat16(), torch.zeros(512, 1536).bfloat16()
    channel.gate_up(rows, up, False)
    _, products = channel.gate_up(rows, up, True)
    channel.hidden_grad(rows, down, products)
    squares = hopper_attention.add(rows, rows, torch.zeros(512, 512).bfloat16(), rows)
    for keep in (True, False):
        channel.gate_up(rows, up, keep, squares, 1e-5)
    norm.backward_of_sum(rows, rows, squares, 1e-5)
    total, rotary = Total(x, squares), rotary_tables(97, 64, 10000.0)
    _, row_rstd = hopper_attention.project_total(total, torch.zeros(1536, 512).bfloat16(), *rotary, 8, 1e-5)
    hopper_attention.add(rows, rows, torch.zeros(512, 512).bfloat16(), rows, row_rstd)
    for some in (x, torch.zeros(2, 916, 512).bfloat16()):
        rotary = rotary_tables(some.shape[1], 64, 10000.0)
        projected = hopper_attention.project(some, torch.zeros(1536, 512).bfloat16(), *rotary, 8)
        mixed, kept = hopper_attention.forward(projected, *rotary, 8)
        hopper_attention.backward(projected, *rotary, mixed, kept, some, 8)


if __name__ == "__main__":
    driver.set_active(Hopper())
    triton.JITFunction.__getitem__ = compile_instead
    launch_all()
    launch_specialized()
