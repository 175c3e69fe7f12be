"""The shape of the code: import directions, module docstrings, and forbidden imports."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("storage", "relay", "trm", "lm")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MODELS = ("trm", "lm")
"""None imports another."""
CHAIN = ("storage", "relay/core", "relay/people", "relay/torch", *MODELS, "relay/app")
"""Each imports only itself and those before it, also within functions. relay/__init__.py imports nothing of ours."""
CORE = (
    {"errors", "clock", "names", "workload", "wholefile", "gpus", "budget", "settings", "resources", "folders"},
    {"ledger"},
    {"events"},
    {"lease"},
    {"checkpoint"},
)
"""The same within relay/core; session and runs come last, and neither imports the other."""
LAST = {"session", "runs"}
GROUPED = ("relay/app", "relay/app/commands")
"""Folders whose packages import each other without a circle."""
NAMES_A_MODEL = ("relay/app/models/", "relay/app/data/rates.yaml")
"""The plug-ins and their registry, and the steps that were measured: all that names a model in relay/."""

COMMAND = re.compile(r"(^|[\s(`'\"])--[a-z]|rotate_accounts|python3? |multi_account_workflow")
STORED = "relay/core/ledger/frozen.py"
"""It holds what runs have stored, whatever a command is called by now."""


@dataclass(frozen=True)
class Facts:
    """The facts about a file that the tests below need; its syntax tree is large and is not kept."""

    doc: str | None
    imports: frozenset[str]
    """Top-level packages that it imports, anywhere in it."""
    modules: frozenset[str]
    """The same with whole names, and with what is taken from each: `relay.core.ledger.state.RunState`."""
    strings: frozenset[str]
    """Those that look like the name of a module, as `importlib.resources.files` takes one."""
    calls: tuple[str, ...]
    """Calls by plain name or by module and name: `eval`, `torch.load`."""
    commands: tuple[str, ...]
    """Strings that name an option or a command, docstrings aside."""


@functools.cache
def facts(path: Path) -> Facts:
    tree = ast.parse(path.read_text())
    modules: set[str] = set()
    strings: set[str] = set()
    calls: list[str] = []
    commands: list[str] = []
    docs: set[int] = set()
    for node in ast.walk(tree):  # level by level: a docstring's statement comes before the string
        if isinstance(node, ast.Expr):
            docs.add(id(node.value))
        if isinstance(node, ast.Constant) and id(node) not in docs and COMMAND.search(str(node.value)):
            commands.append(str(node.value))
        match node:
            case ast.Import(names):
                modules |= {alias.name for alias in names}
            case ast.ImportFrom(str(module), names, 0 | None):
                modules |= {f"{module}.{alias.name}" for alias in names}
            case ast.Call(ast.Name(name)):
                calls.append(name)
            case ast.Call(ast.Attribute(ast.Name(module), name)):
                calls.append(f"{module}.{name}")
            case ast.Constant(str(text)) if text in MODELS or text.startswith(("relay.", "trm.", "lm.")):
                strings.add(text)
    imports = frozenset(name.split(".")[0] for name in modules)
    return Facts(
        ast.get_docstring(tree), imports, frozenset(modules), frozenset(strings), tuple(calls), tuple(commands)
    )


@functools.cache
def by_name() -> Mapping[str, Path]:
    """Every module of ours by its whole name, a package by its own."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for path in (ROOT / package for package in PACKAGES)
        for path in path.rglob("*.py")
    }


def imported(path: Path) -> set[Path]:
    """The files of ours that it imports, anywhere in it."""
    known = by_name()
    return {known[name if name in known else name.rpartition(".")[0]] for name in facts(path).modules if _of_ours(name)}


def _of_ours(name: str) -> bool:
    return name in by_name() or name.rpartition(".")[0] in by_name()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def link(path: Path) -> int | None:
    """Its place in CHAIN; None for relay/__init__.py."""
    name = name_of(path)
    return next((place for place, folder in enumerate(CHAIN) if name.startswith(f"{folder}/")), None)


def rank(path: Path) -> int | None:
    """Its place within relay/core; None for the package's own file and for other packages."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[:2] != ("relay", "core") or parts[2] == "__init__":
        return None
    if parts[2:] == ("ledger", "frozen"):
        return 0  # it imports nothing of ours
    assert parts[2] in LAST.union(*CORE), f"{name_of(path)}: say in CORE where it stands"
    return next((place for place, names in enumerate(CORE) if parts[2] in names), len(CORE))


def points_back(path: Path, other: Path) -> bool:
    """Whether an import goes against the arrows."""
    ours, theirs = link(path), link(other)
    if ours is not None and theirs is not None and (theirs > ours or {CHAIN[ours], CHAIN[theirs]} == set(MODELS)):
        return True
    mine, its = rank(path), rank(other)
    if mine is None or its is None:
        return False
    return its > mine or (
        mine == its == len(CORE) and path.parts[len(ROOT.parts) + 2] != other.parts[len(ROOT.parts) + 2]
    )


def named(path: Path) -> set[Path]:
    """The modules of ours that stand in its strings."""
    return {by_name()[text] for text in facts(path).strings if text in by_name()}


def against_the_arrows() -> set[str]:
    return {f"{name_of(a)} -> {name_of(b)}" for a in SOURCES for b in imported(a) | named(a) if points_back(a, b)}


@pytest.mark.slow
def test_imports_point_one_way() -> None:
    assert sorted(against_the_arrows()) == []


def test_a_model_is_imported_by_its_plug_in_alone() -> None:
    found = {
        name_of(path) for path in SOURCES if name_of(path).startswith("relay/") and facts(path).imports & {*MODELS}
    }
    assert not [name for name in found if not name.startswith(NAMES_A_MODEL)]


NAMES_OF_MODELS = re.compile(
    r"exact_accuracy|puzzle|sudoku|maze|\btrm\b(?!-relay)|\blm\b|\blm_|\bbpb|[\"']valid[\"'/]", re.IGNORECASE
)
"""Words of one model: its own name, its data, its metrics, its splits. The program is called trm-relay."""


@pytest.mark.slow
def test_nothing_but_the_plug_ins_speaks_of_a_model() -> None:
    """Strings, names, docstrings and comments of storage, core, people, torch and the application."""
    kinds = {".py", ".js", ".css", ".html", ".yaml"}
    files = [path for package in ("storage", "relay") for path in (ROOT / package).rglob("*") if path.suffix in kinds]
    lines = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in files
        if not name_of(path).startswith(NAMES_A_MODEL) and "uPlot" not in path.name
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NAMES_OF_MODELS.search(line)
    ]
    assert lines == []


def test_a_word_of_a_model_is_found() -> None:
    for line in (
        "import trm",
        'split == "valid"',
        "f'valid/{name}'",
        "def draw_puzzles",
        "# Sudoku",
        "trm.config",
        "import lm",
        "bpb_1",
        "task=lm_tiny",
    ):
        assert NAMES_OF_MODELS.search(line), line
    for line in ("`trm-relay doctor`", "not valid YAML", "valid = True", '"invalid"', "trm_relay"):
        assert not NAMES_OF_MODELS.search(line), line


def test_the_core_names_no_command() -> None:
    """Its errors are facts; relay/app/messages/errors.py names the command that helps."""
    assert not [
        f"{name_of(path)}: {text}"
        for path in SOURCES
        if name_of(path).startswith("relay/core/") and name_of(path) != STORED
        for text in facts(path).commands
    ]
    assert facts(ROOT / STORED).commands, "the pattern finds one where there is one"


def test_importing_relay_loads_the_standard_library_alone() -> None:
    code = (
        "import sys; before = set(sys.modules); import relay;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before} - {'relay'};"
        "assert new <= sys.stdlib_module_names, new;"
        "assert {name for name in sys.modules if name.startswith('relay.')} == set()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_no_module_has_the_name_of_a_lazy_export() -> None:
    assert not [folder for folder in ("relay", "relay/torch") if (ROOT / folder / "session.py").exists()]


def is_backend(path: Path) -> bool:
    """Whether only open_store imports it, for an address that needs its SDK."""
    return path.relative_to(ROOT).parts[:2] in {("storage", name) for name in ("s3", "hf", "dropbox")}


@pytest.mark.slow
def test_a_session_on_a_cpu_trains_without_torch_s_compiler(tmp_path: Path) -> None:
    """Importing it takes as long as the rest of torch, and a session compiles nothing with it."""
    code = (
        "import sys, lm.workload; from pathlib import Path; from tests.trm.small import small;"
        "from trm.workload import TrmWorkload; made = TrmWorkload(small(), Path(sys.argv[1]), 'cpu', steps=2);"
        "made.start(); made.advance(2, lambda: False, None); made.snapshot();"
        "assert not {'torch._dynamo', 'torch._inductor', 'sympy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=ROOT)


def circle(imported: Mapping[str, Iterable[str]]) -> list[str]:
    """Names of which each imports the next, and the last the first; empty without a circle."""
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
    """Imports within functions count too."""
    assert not circle({name_of(path): [name_of(other) for other in imported(path)] for path in SOURCES})


@pytest.mark.parametrize("folder", GROUPED)
def test_the_groups_of_a_folder_import_each_other_one_way(folder: str) -> None:
    """Modules next to the groups may import any of them."""
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


def test_torch_is_imported_only_where_it_is_needed() -> None:
    found = {name_of(path) for path in SOURCES if "torch" in facts(path).imports}
    assert not [name for name in found if not name.startswith(("relay/torch/", "trm/", "lm/"))]


@pytest.mark.slow
def test_importing_relay_and_storage_needs_no_extra() -> None:
    """Every module of both but the backends and relay/torch imports in an interpreter without the extras' modules."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in SOURCES
        if not name_of(path).startswith(("trm/", "lm/", "relay/torch/"))
        and path.name != "__init__.py"
        and not is_backend(path)
    ]
    code = f"""
import importlib, sys
for name in ("torch", "numpy", "safetensors", "einops", "numba", "boto3", "googleapiclient", "dropbox", "starlette",
             "tensorboard", "tokenizers", "pyarrow", "trackio", "wandb"):
    sys.modules[name] = None
for name in {modules!r}:
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_every_module_opens_with_a_sentence() -> None:
    assert [name_of(path) for path in SOURCES if not facts(path).doc] == [], "a sentence that says what it does"


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert not [path for path in SOURCES if facts(path).imports & banned]
    evaluate = {"eval", "exec", "torch.load", "np.load", "numpy.load", "yaml.load", "yaml.unsafe_load"}
    calls = [f"{path.name}: {call}" for path in SOURCES for call in facts(path).calls if call in evaluate]
    assert calls == ["interop.py: torch.load"], "the reference's own files; see there what is checked before"


def test_every_invariant_has_a_test_named_after_it() -> None:
    names = " ".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [n for n in range(1, 10) if f"def test_i{n}_" not in names]
