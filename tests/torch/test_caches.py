"""Compiled kernels: what decides their key, and that an archive can write nothing but kernels that were not there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from relay.torch import caches
from relay.torch.caches import INDUCTOR, KEYED, MAX_FILES, KernelCache, key_of, triton_home

A, B = "A" * 52, "B" * 52
CHOICE = "ab/c3zq.best_config"
KERNEL = {f"{A}/_mix.cubin": b"\x7fELF code", f"{A}/_mix.json": b'{"shared": 0}', f"{B}/cuda_utils.so": b"\x7fELF host"}


def archive(files: dict[str, bytes]) -> bytes:
    return save({name: np.frombuffer(content, np.uint8) for name, content in files.items()})


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelCache:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(INDUCTOR, "")
    monkeypatch.setattr(caches, "_listen", lambda count: False)
    made = KernelCache("ab" * 32, triton_home({"TRITON_CACHE_DIR": str(tmp_path)}))
    made.open()
    return made


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_archive_is_unpacked_beside_what_is_there_and_packs_to_the_same_bytes(kernels: KernelCache) -> None:
    own = kernels.folder / B
    own.mkdir()
    (own / "cuda_utils.so").write_bytes(b"this machine's")
    assert kernels.unpack(archive(KERNEL)) == 3
    there = everything(kernels.folder)
    group = json.loads(there.pop(f"{A}/__grp___mix.json"))
    assert there == {**KERNEL, f"{B}/cuda_utils.so": b"this machine's"}
    assert group == {"child_paths": {name: str(kernels.folder / A / name) for name in ("_mix.cubin", "_mix.json")}}, (
        "Triton finds a kernel by the paths in its group"
    )
    assert kernels.pack() == kernels.pack() == archive({**KERNEL, f"{B}/cuda_utils.so": b"this machine's"})
    assert kernels.open() == 1


def test_the_folder_lies_where_triton_looks_also_for_a_user_without_a_home_and_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container that runs under a bare number, and in a notebook whose process goes on."""
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert triton_home({}) == Path("~/.triton/cache")
    assert triton_home({"TRITON_HOME": "/h"}) == Path("/h/.triton/cache")
    again = KernelCache("cd" * 32, triton_home({"TRITON_CACHE_DIR": str(tmp_path / f"relay-{'ab' * 8}")}))
    assert again.folder == tmp_path / f"relay-{'cd' * 8}"


def test_only_finished_kernels_and_nothing_else_is_packed(kernels: KernelCache, tmp_path: Path) -> None:
    kernels.unpack(archive(KERNEL))
    half = kernels.folder / ("C" * 52)
    half.mkdir()
    for name in ("_half.cubin", "_half.json", "_mix.ptx", "notes.txt"):
        (half / name).write_text("no group names it")
    (kernels.folder / "notes").mkdir()
    (kernels.folder / "notes" / "secret.json").write_text("{}")
    (tmp_path / "stranger.so").write_text("of another program")
    (half / "link.so").symlink_to(tmp_path / "stranger.so")
    (kernels.folder / ("D" * 52)).symlink_to(kernels.folder / A)
    assert kernels.pack() == archive(KERNEL)


def test_of_torchs_own_folder_only_the_autotuners_choices_travel(kernels: KernelCache, tmp_path: Path) -> None:
    """Its graphs are pickles, and its sources are code."""
    folder = Path(os.environ[INDUCTOR])
    for name in (CHOICE, "ab/c3zq.py", "fxgraph/ab/graph", "fxgraph/ab.best_config", "locks/x.lock"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b'{"XBLOCK": 8}')
    packed = kernels.pack()
    assert packed == archive({CHOICE: b'{"XBLOCK": 8}'})
    other = KernelCache("cd" * 32, tmp_path)
    other.open()
    assert other.unpack(packed) == 1 and everything(other.folder) == {f"inductor/{CHOICE}": b'{"XBLOCK": 8}'}
    assert Path(os.environ[INDUCTOR]) == other.folder / "inductor"
    other.unpack(archive({CHOICE: b"{}"}))
    assert everything(other.folder) == {f"inductor/{CHOICE}": b'{"XBLOCK": 8}'}, "a choice of this machine stays"


def test_an_empty_folder_is_not_packed(kernels: KernelCache) -> None:
    with pytest.raises(ValueError, match="0 files"):
        kernels.pack()


PLAIN = {f"{A}/_mix.cubin": b"1", f"{A}/_mix.json": b"2"}
HOSTILE = {
    "a parent": archive(PLAIN | {"../evil.so": b"x"}),
    "an absolute path": archive(PLAIN | {"/tmp/evil.so": b"x"}),
    "a parent further in": archive(PLAIN | {f"{A}/../evil.so": b"x"}),
    "deeper": archive(PLAIN | {f"{A}/{B}/evil.so": b"x"}),
    "a folder of no kernel": archive(PLAIN | {"x/evil.so": b"x"}),
    "a hidden file": archive(PLAIN | {f"{A}/.evil.so": b"x"}),
    "NUL": archive(PLAIN | {f"{A}/evil\0.so": b"x"}),
    "a line break": archive(PLAIN | {f"{A}/evil.so\n": b"x"}),
    "another kind of file": archive(PLAIN | {f"{A}/evil.py": b"x"}),
    "a group of its own": archive(PLAIN | {f"{A}/__grp___mix.json": b"{}", f"{A}/__grp___mix.cubin": b""}),
    "names that differ in case": archive(PLAIN | {f"{A}/_MIX.cubin": b"1", f"{A}/_MIX.json": b"2"}),
    "a binary alone": archive({f"{A}/_mix.cubin": b"1"}),
    "metadata alone": archive({f"{A}/_mix.json": b"1"}),
    "numbers instead of bytes": save({f"{A}/evil.so": np.zeros(3, np.float32)}),
    "a table instead of bytes": save({f"{A}/evil.so": np.zeros((3, 3), np.uint8)}),
    "too many": archive({f"{A}/k{number}.so": b"" for number in range(MAX_FILES + 1)}),
    "a choice that is no JSON": archive({CHOICE: b"\x80\x04."}),
    "a choice that is a list": archive({CHOICE: b"[]"}),
    "a large choice": archive({CHOICE: b'{"x": "' + b"x" * 4096 + b'"}'}),
    "a choice among the graphs": archive({"fxgraph/c3zq.best_config": b"{}"}),
    "a graph": archive({"ab/c3zq": b"{}"}),
    "a size past the end": archive(PLAIN).replace(b"[1,2]", b"[1,9]"),
    "two in one place": archive(PLAIN).replace(b"[1,2]", b"[0,1]"),
    "cut off": archive(PLAIN)[:-3],
    "more behind it": archive(PLAIN) + b"x",
    "no archive": b"no archive",
    "a pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    "nothing": b"",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_before_a_file_is_written(kernels: KernelCache, case: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        kernels.unpack(HOSTILE[case])
    assert everything(kernels.folder.parent) == {}


@given(st.data())
def test_no_changed_byte_raises_anything_else(data: st.DataObject) -> None:
    """Of the signed archive, which only a holder of the key can change."""
    inside = bytearray(archive(KERNEL))
    for _ in range(data.draw(st.integers(1, 4))):
        inside[data.draw(st.integers(0, len(inside) - 1))] = data.draw(st.integers(0, 255))
    try:
        files = caches._read(bytes(inside))
    except ValueError:
        return
    assert all(len(folder) == 52 and "/" not in name and name != ".." for folder, name in files)


def test_the_key_covers_facts_sources_and_the_kind_of_binaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {**dict.fromkeys(KEYED, "1"), "path": "fused", "arch": {"hidden_size": 512}, "sizes": {"seq_len": 81}}
    sources = tmp_path / "kernels"
    (sources / "specialized").mkdir(parents=True)
    keys = {key_of(facts, sources)}
    keys |= {key_of({**facts, name: "2"}, sources) for name in facts}
    assert len(keys) == len(facts) + 1
    assert key_of(dict(reversed(facts.items())), sources) in keys
    for number, (name, text) in enumerate([("a.py", "x"), ("a.py", "y"), ("specialized/a.py", "y")]):
        (sources / name).write_text(text)
        keys.add(key_of(facts, sources))
        assert len(keys) == len(facts) + 2 + number
    monkeypatch.setattr("platform.libc_ver", lambda: ("glibc", "2.17"))
    assert key_of(facts, sources) not in keys and len(key_of(facts, sources)) == 64


def test_triton_s_own_rules_say_where_kernels_lie(kernels: KernelCache, tmp_path: Path) -> None:
    assert triton_home({"TRITON_HOME": "/x", "TRITON_CACHE_DIR": ""}) == Path("/x/.triton/cache")
    assert triton_home({}) == Path.home() / ".triton" / "cache"
    assert Path(os.environ["TRITON_CACHE_DIR"]) == kernels.folder != tmp_path
    assert kernels.folder.stat().st_mode & 0o077 == 0
