"""A folder on a disk: no link is followed, and what the system refuses is told as what it is."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from storage.base import BadAddress, Denied, Missing, QuotaExceeded, StoreError, Unavailable
from storage.local import LocalStore
from storage.selftest import self_test
from tests.facts import raising
from tests.storage.helpers import all_files, names


def test_the_root_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = LocalStore(tmp_path / "link")
    ref = store.put_if_absent("a/b", b"data")
    assert LocalStore(tmp_path / "real").get(ref) == b"data"


@pytest.mark.parametrize("target", ["secret", "secret-folder", "nothing-there"])
def test_a_link_in_place_of_an_object_is_refused_by_every_verb(local: LocalStore, tmp_path: Path, target: str) -> None:
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "secret-folder").mkdir()
    local.put("a", b"")
    (local.root / "a").unlink()
    (local.root / "a").symlink_to(tmp_path / target)
    ref = local.ref("a")
    for use in (
        lambda: local.get(ref),
        lambda: local.read_range(ref, 0, 1),
        lambda: local.stat(ref),
        lambda: local.put("a", b"x"),
        lambda: local.put_if_absent("a", b"x"),
        lambda: local.delete(ref),
    ):
        with raising(Denied, local.root / "a"):
            use()
    assert names(local) == []
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "nothing-there").exists()


def test_a_link_in_place_of_a_folder_is_refused_and_not_listed(local: LocalStore, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_bytes(b"secret")
    local.put("in/side", b"")
    (local.root / "out").symlink_to(tmp_path / "outside")
    ref = local.ref("out/secret")
    for use in (
        lambda: local.get(ref),
        lambda: local.stat(ref),
        lambda: local.put("out/secret", b"x"),
        lambda: local.put("out/deeper/new", b"x"),
        lambda: local.put_if_absent("out/new", b"x"),
        lambda: local.delete(ref),
    ):
        with raising(Denied, local.root / "out"):
            use()
    assert names(local) == ["in/side"]
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]


def test_a_pipe_is_denied_and_does_not_hang(local: LocalStore) -> None:
    local.put("a", b"")
    os.mkfifo(local.root / "pipe")
    for use in (lambda: local.get(local.ref("pipe")), lambda: local.put("pipe", b""), lambda: local.stat("pipe")):
        with raising(Denied, local.root / "pipe"):
            use()
    assert names(local) == ["a"]


@pytest.mark.parametrize(
    ("call", "code", "kind"),
    [
        ("fsync", errno.ENOSPC, QuotaExceeded),
        ("open", errno.ENOSPC, QuotaExceeded),
        ("open", errno.EDQUOT, QuotaExceeded),
        ("open", errno.EROFS, Denied),
        ("open", errno.EACCES, Denied),
        ("mkdir", errno.EACCES, Denied),
        ("open", errno.ENAMETOOLONG, Denied),
        ("fsync", errno.EIO, Unavailable),
        ("open", errno.ESTALE, Unavailable),
        ("open", errno.ENOTCONN, Unavailable),
        ("fsync", errno.ETIMEDOUT, Unavailable),
        ("open", errno.EMFILE, Unavailable),
    ],
)
def test_a_refused_write_says_what_and_where_and_leaves_nothing(
    local: LocalStore, failing: Callable[[str, int], None], call: str, code: int, kind: type[StoreError]
) -> None:
    local.put("there/already", b"")
    failing(call, code)
    for write in (local.put, local.put_if_absent):
        with raising(kind, local.root / "new/name", os.strerror(code) * (code != errno.ENAMETOOLONG)):
            write("new/name", b"data")
    assert all_files(local) == ["there/already"]
    assert names(local) == ["there/already"]


@pytest.mark.parametrize(("code", "kind"), [(errno.EIO, Unavailable), (errno.EACCES, Denied), (errno.ENOENT, Missing)])
def test_a_refused_read_is_never_taken_for_a_missing_object(
    local: LocalStore, failing: Callable[[str, int], None], code: int, kind: type[StoreError]
) -> None:
    ref = local.put("a", b"data")
    failing("stat", code)
    with raising(kind, local.root / "a"):
        local.get(ref)


def test_a_read_only_disk_tells_the_machines_time_and_says_so(
    local: LocalStore, failing: Callable[[str, int], None]
) -> None:
    ref = local.put("a", b"data")
    failing("open", errno.EROFS)
    assert abs(local.now() - time.time()) < 5
    assert local.clock_is_local
    assert local.get(ref) == b"data"


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_disk_without_hard_links_is_refused_by_name(
    local: LocalStore, failing: Callable[[str, int], None], code: int
) -> None:
    failing("link", code)
    with raising(BadAddress, local.root):
        self_test(local)
    assert all_files(local) == []
