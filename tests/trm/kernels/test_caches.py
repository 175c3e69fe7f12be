"""A kernel compiled in one folder is found by Triton itself in another folder, through the archive."""

from __future__ import annotations

from pathlib import Path

import pytest
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

import trm.kernels  # says outright what Triton would warn of
from relay.torch.caches import INDUCTOR, KernelCache, triton_home

assert trm.kernels


def copy(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at))


def compile_copy(block: int) -> bytes:
    """For a Hopper GPU, which is not needed for it."""
    source = ASTSource(JITFunction(copy), {"x_ptr": "*fp32", "y_ptr": "*fp32", "BLOCK": "constexpr"}, {"BLOCK": block})
    return triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["cubin"]


def machine(home: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    """A machine's cache in use; settings of the process are put back after the test."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(home))
    monkeypatch.setenv(INDUCTOR, "")
    monkeypatch.setattr(triton.knobs.compilation, "listener", None)
    kernels = KernelCache("ab" * 32, triton_home({"TRITON_CACHE_DIR": str(home)}))
    kernels.open()
    return kernels


def test_triton_finds_what_another_machine_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = machine(tmp_path / "one", monkeypatch)
    made = compile_copy(128)
    assert one.counts() == {"kernels_loaded": 0, "kernels_compiled": 1}
    archive = one.pack()
    two = machine(tmp_path / "two", monkeypatch)
    assert two.unpack(archive) == 2
    assert compile_copy(128) == made
    assert two.counts() == {"kernels_loaded": 1, "kernels_compiled": 0}
    assert compile_copy(256) != made
    assert two.counts() == {"kernels_loaded": 1, "kernels_compiled": 1}
    assert two.unpack(archive) == 2 and compile_copy(256), "what is here stays"
    assert one.pack() == archive and len(two.pack()) > len(archive)
