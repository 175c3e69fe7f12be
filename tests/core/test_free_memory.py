"""Memory that is free for a process, from files of the system as machines of many kinds have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relay.core import resources
from relay.core.resources import FreeMemory, free_memory

GIB = 2**30
V1 = {"limit": "memory.limit_in_bytes", "used": "memory.usage_in_bytes", "prefix": "total_"}
V2 = {"limit": "memory.max", "used": "memory.current", "prefix": ""}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 GiB free, and a process without limits."""
    monkeypatch.setattr(resources, "_own", lambda name: None)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text(f"MemTotal: 999999999 kB\nMemFree: 1 kB\nMemAvailable: {8 * 2**20} kB\n")
    (tmp_path / "proc/self/status").write_text("Name:\tpython\nVmSize:\t 2097152 kB\nVmData:\t 1048576 kB\n")
    return tmp_path


def group(folder: Path, kind: dict[str, str], limit: int | str, used: int = 0, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / kind["limit"]).write_text(f"{limit}\n")
    (folder / kind["used"]).write_text(f"{used}\n")
    halves = {"inactive_file": cached - cached // 2, "active_file": cached // 2}
    (folder / "memory.stat").write_text("".join(f"{kind['prefix']}{name} {n}\n" for name, n in halves.items()))


def test_without_limits_what_is_available_counts(root: Path) -> None:
    assert free_memory(root) == FreeMemory(8 * GIB, "this machine's memory")


@pytest.mark.parametrize("kind", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize("limited", ["own", "above", "namespace"])
def test_the_tightest_control_group_counts_and_cached_files_are_free(root: Path, kind: dict, limited: str) -> None:
    """namespace: a container sees the host's path, but its own group at the top."""
    line, top = ("7:cpu,memory:", root / "sys/fs/cgroup/memory") if kind is V1 else ("0::", root / "sys/fs/cgroup")
    (root / "proc/self/cgroup").write_text(f"{line}/jobs/one\n")
    unlimited = 2**63 - 4096 if kind is V1 else "max"
    where = {"own": top / "jobs/one", "above": top / "jobs", "namespace": top}
    for name, folder in where.items():
        if limited != "namespace" or name == "namespace":
            group(folder, kind, 4 * GIB if name == limited else unlimited, 3 * GIB, 2 * GIB)
    assert free_memory(root) == FreeMemory(3 * GIB, "the container's memory limit")


def test_a_group_that_is_throttled_first_counts_from_there(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/one\n")
    group(root / "sys/fs/cgroup/one", V2, 4 * GIB, GIB)
    (root / "sys/fs/cgroup/one/memory.high").write_text(f"{2 * GIB}\n")
    assert free_memory(root) == FreeMemory(GIB, "the container's memory limit")


def test_more_used_than_allowed_is_nothing_free(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/one\n")
    group(root / "sys/fs/cgroup/one", V2, GIB, 2 * GIB)
    assert free_memory(root) == FreeMemory(0, "the container's memory limit")


@pytest.mark.parametrize(("name", "used"), [("RLIMIT_AS", 2 * GIB), ("RLIMIT_DATA", GIB)])
def test_limits_of_the_process_count_what_it_has_and_its_threads(
    root: Path, monkeypatch: pytest.MonkeyPatch, name: str, used: int
) -> None:
    monkeypatch.setattr(resources, "_own", lambda asked: 5 * GIB if asked == name else None)
    found = free_memory(root)
    assert found is not None and found.limit == name
    threads = 8 * (8 << 20) if name == "RLIMIT_AS" else 0
    assert 5 * GIB - used - GIB < found.count <= 5 * GIB - used - threads


def test_a_system_without_these_files_has_at_most_its_memory(tmp_path: Path) -> None:
    found = free_memory(tmp_path)
    assert found is not None and found.count > 0
