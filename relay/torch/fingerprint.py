"""The environment that decides how numbers are rounded, as short plain strings, without host, user or path."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from relay.torch.device import settle

_DRIVER = Path("/proc/driver/nvidia/version")
ALWAYS = (
    *("OMP_THREAD_LIMIT", "OMP_DYNAMIC", "OMP_SCHEDULE", "OMP_NESTED", "OMP_MAX_ACTIVE_LEVELS"),
    *("KMP_DETERMINISTIC_REDUCTION", "KMP_FORCE_REDUCTION", "KMP_DYNAMIC_MODE", "KMP_ALL_THREADS"),
    *("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE", "DNNL_DEFAULT_FPMATH_MODE"),
)
MKL = ("MKL_CBWR", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "MKL_DOMAIN_NUM_THREADS", "MKL_DEBUG_CPU_TYPE")
OPENBLAS = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS")
ON_GPU = (
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "CUBLASLT_WORKSPACE_SIZE", "CUBLAS_EMULATE"),
    *("TORCH_CUDNN_V8_API_DISABLED", "TORCH_BLAS_PREFER_CUBLASLT", "DISABLE_ADDMM_CUDA_LT"),
    *("TORCHINDUCTOR_MAX_AUTOTUNE", "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM", "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING"),
    *("TORCHINDUCTOR_SPLIT_REDUCTIONS", "TORCHINDUCTOR_EMULATE_PRECISION_CASTS", "TORCHINDUCTOR_BATCH_INVARIANT"),
)
"""Variables that make the same libraries round or split sums in another way. The number of threads is pinned."""
_PLAIN = re.compile(r"[A-Za-z0-9_.,:=+-]{1,40}")


def fingerprint(device: torch.device, on_xla: bool = False) -> dict[str, str]:
    """Device, driver, libraries, instruction set and threads; two equal ones are expected to give equal bits."""
    about = {
        "device": device.type,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "cudnn": str(torch.backends.cudnn.version()),  # type: ignore[no-untyped-call]
        "triton": installed("triton"),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": str(torch.get_num_threads()),
        "blas": _library("Math Kernel Library Version") or _library("OpenBLAS") or "unknown",
        "onednn": _library("MKL-DNN v") or _library("oneDNN v") or "unknown",
    }
    blas = MKL if "Math Kernel Library" in torch.__config__.show() else OPENBLAS
    named = (*ALWAYS, *blas, *(ON_GPU if device.type == "cuda" else ()))
    about |= dict(variables(named, os.environ))
    if on_xla:
        return about | _xla()
    return about | (_gpu(device) if device.type == "cuda" else {})


def variables(names: tuple[str, ...], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name in lower case, value) of those that are set: one that is not set leaves every fingerprint as it was."""
    for name in names:
        if value := environ.get(name, "").strip():
            yield name.lower(), value if _PLAIN.fullmatch(value) else "set"


def of_session(device: str, threads: int) -> dict[str, str]:
    """The fingerprint of a session on this device, without a workload."""
    settle(threads)
    return fingerprint(torch.device(device))


def _gpu(device: torch.device) -> dict[str, str]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "gpu": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": str(properties.multi_processor_count),
        "driver": _driver(),
    }


def _xla() -> dict[str, str]:
    import torch_xla.runtime

    return {"device": "xla", "torch_xla": installed("torch_xla"), "client": torch_xla.runtime.device_type()}


def _driver() -> str:
    """Version of the NVIDIA kernel driver, if the system reports it."""
    text = _DRIVER.read_text() if _DRIVER.exists() else ""
    found = re.search(r"\b\d{3}\.\d+(\.\d+)?\b", text)
    return found.group() if found else "unknown"


def _library(mark: str) -> str | None:
    """The text after `mark` in torch's description of its build, up to a space."""
    found = re.search(re.escape(mark) + r"\s*(\S+)", torch.__config__.show())
    return found.group(1) if found else None


def installed(package: str) -> str:
    """The version of an installed distribution, or 'none'."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
