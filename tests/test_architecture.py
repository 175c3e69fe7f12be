"""The shape of the code: import direction, groups, sizes, docstrings, and what may not be imported where."""

from __future__ import annotations

import ast
import functools
import graphlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("storage", "relay", "trm")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
GROUPED = ("relay", "relay/commands")
"""Folders whose modules stand in groups."""
MOST_BESIDE = 40
"""Modules in one folder; more are a heap, in which nobody finds the one that they look for."""
ALLOWED = {"storage": {"storage"}, "trm": {"trm"}, "relay": {"relay", "storage"}}


@dataclass(frozen=True)
class Facts:
    """What the tests below ask of a file; its tree, which is large, is let go."""

    doc: str | None
    imports: frozenset[str]
    """Top-level packages that it imports, anywhere in it."""
    modules: frozenset[str]
    """The same with whole names, and with what is taken from each: `relay.log.state.RunState`."""
    calls: tuple[str, ...]
    """What it calls by name, or by the name of a module: `eval`, `torch.load`."""


@functools.cache
def facts(path: Path) -> Facts:
    tree = ast.parse(path.read_text())
    modules: set[str] = set()
    calls: list[str] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                modules |= {alias.name for alias in names}
            case ast.ImportFrom(str(module), names, 0 | None):
                modules |= {f"{module}.{alias.name}" for alias in names}
            case ast.Call(ast.Name(name)):
                calls.append(name)
            case ast.Call(ast.Attribute(ast.Name(module), name)):
                calls.append(f"{module}.{name}")
    imports = frozenset(name.split(".")[0] for name in modules)
    return Facts(ast.get_docstring(tree), imports, frozenset(modules), tuple(calls))


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
    ours = facts(path).imports & set(PACKAGES)
    extra = {"trm"} if path == ROOT / "relay" / "cli.py" else set()
    assert ours <= ALLOWED[package] | extra


def circle(imported: Mapping[str, Iterable[str]]) -> list[str]:
    """Some each of which imports the next, the last the first; empty if there are none such."""
    try:
        graphlib.TopologicalSorter(imported).prepare()
    except graphlib.CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_a_circle_of_groups_is_seen_and_named_in_its_order() -> None:
    assert circle({"runs": ["log"], "sessions": ["runs", "log"]}) == []
    found = circle({"runs": ["log"], "log": ["people"], "people": ["runs"], "text": []})
    assert " ".join(found) in {"runs log people runs", "log people runs log", "people runs log people"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Neither at once nor within a function: whoever reads one of them would have to know all."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in SOURCES}
    imported = {
        name: {taken if taken in names else taken.rpartition(".")[0] for taken in facts(path).modules} & names.keys()
        for name, path in names.items()
    }
    assert not circle(imported)


@pytest.mark.parametrize("folder", GROUPED)
def test_the_groups_of_a_folder_import_each_other_one_way(folder: str) -> None:
    """Of modules beside the groups, which name what these hold and are named by them, nothing is asked."""
    groups = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    because: dict[str, dict[str, str]] = {group: {} for group in groups}
    for path in (ROOT / folder).rglob("*.py"):
        group = path.relative_to(ROOT / folder).parts[0]
        for name in facts(path).modules if group in groups else ():
            other = name.removeprefix(f"{folder.replace('/', '.')}.").split(".")[0]
            if other in groups - {group}:
                because[group][other] = f"{path.relative_to(ROOT)} imports {name}"
    found = circle(because)
    assert not found, f"a circle: {' -> '.join(found)}; " + "; ".join(because[a][b] for a, b in pairwise(found))


def test_no_folder_is_a_heap() -> None:
    beside = Counter(str(path.parent.relative_to(ROOT)) for path in SOURCES if path.name != "__init__.py")
    assert not {folder: count for folder, count in beside.items() if count > MOST_BESIDE}, "divide it by idea"


@pytest.mark.parametrize("package", ["relay", "storage"])
def test_no_torch_in(package: str) -> None:
    assert not [path for path in SOURCES if path.parts[len(ROOT.parts)] == package and "torch" in facts(path).imports]


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
def test_module_opens_with_a_sentence(path: Path) -> None:
    assert facts(path).doc, "a module opens with one sentence that says what it does"


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert not [path for path in SOURCES if facts(path).imports & banned]
    evaluate = {"eval", "exec", "torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load"}
    calls = [f"{path.name}: {call}" for path in SOURCES for call in facts(path).calls if call in evaluate]
    assert calls == ["interop_step.py: torch.load"], "the reference's own files; see there what is checked before"


def test_every_invariant_has_a_test_named_after_it() -> None:
    names = " ".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [n for n in range(1, 10) if f"def test_i{n}_" not in names]
