"""The shape of the code: import direction, sizes, docstrings, and what may not be imported where."""

from __future__ import annotations

import ast
import functools
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("storage", "relay", "trm")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
ALLOWED = {"storage": {"storage"}, "trm": {"trm"}, "relay": {"relay", "storage"}}


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Top-level packages a file imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return frozenset(found)


def functions() -> list[tuple[int, str]]:
    return [
        ((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}")
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def is_backend(path: Path) -> bool:
    """Whether only open_store imports it, for an address that needs its SDK."""
    return path.relative_to(ROOT).parts[:2] in {("storage", name) for name in ("s3", "dropbox")}


@pytest.mark.slow
def test_a_session_starts_without_torch_s_compiler() -> None:
    """Importing it takes as long as the rest of torch, and a session compiles nothing with it."""
    code = (
        "import sys, trm.workload; from trm.device import settle; settle(1);"
        "assert not {'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    ours = imports(path) & set(PACKAGES)
    extra = {"trm"} if path == ROOT / "relay" / "cli.py" else set()
    assert ours <= ALLOWED[package] | extra


@pytest.mark.parametrize("package", ["relay", "storage"])
def test_no_torch_in(package: str) -> None:
    assert not [path for path in SOURCES if path.parts[len(ROOT.parts)] == package and "torch" in imports(path)]


def test_importing_relay_and_storage_needs_no_extra() -> None:
    """Every module of both but the backends imports in an interpreter that refuses what only extras bring."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in SOURCES
        if path.relative_to(ROOT).parts[0] != "trm" and path.name != "__init__.py" and not is_backend(path)
    ]
    code = f"""
import importlib, sys
for name in ("torch", "numpy", "safetensors", "einops", "numba", "boto3", "googleapiclient", "dropbox", "starlette",
             "tensorboard", "trackio", "wandb"):
    sys.modules[name] = None
for name in {modules!r}:
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_opens_with_a_sentence_and_stays_small(path: Path) -> None:
    text = path.read_text()
    doc = ast.get_docstring(tree(path))
    assert doc, "a module opens with one sentence saying what it does and what it does not know"
    assert len(text.splitlines()) <= 300


def test_functions_stay_short() -> None:
    lengths = functions()
    assert not [name for length, name in lengths if length > 80]
    assert statistics.median(length for length, _ in lengths) <= 12


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert not [path for path in SOURCES if imports(path) & banned]
    calls = [
        f"{path.name}: {ast.unparse(node.func)}"
        for path in SOURCES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        and (
            (isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"})
            or ast.unparse(node.func) in {"torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load"}
        )
    ]
    assert calls == ["interop_step.py: torch.load"], "the reference's own files; see there what is checked before"


def test_every_invariant_has_a_test_named_after_it() -> None:
    names = " ".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [n for n in range(1, 10) if f"def test_i{n}_" not in names]
