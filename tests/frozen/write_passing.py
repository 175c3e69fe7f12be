"""Writes the second golden store: `python -m tests.frozen.write_passing FOLDER`. Entries of format 5 (decision 0014).

Written once, by the first version that wrote format 5, and never again. Slots were unreadable, were passed over, and
became readable again; one of them held a commit, whose checkpoint is kept.
"""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from unittest import mock

from relay.app.commands import stores
from relay.app.messages import advice
from relay.core.ledger.passing import Prover
from storage.base import open_store
from tests.frozen.write_golden import Making, pack, sizes

RUN = "golden"
"""As `Making.train` names it."""
SHORT = "lease.ttl_s=2"


def unreadable(making: Making, *ahead: int) -> dict[Path, bytes]:
    """Spoil slots so far ahead of the tail, as a bad disk would; what they held."""
    found = {}
    for number in ahead:
        path = making.slot(RUN, number)
        found[path] = path.read_bytes() if path.exists() else b""
        path.write_bytes(b"\0" + found[path][1:])
    return found


def write(folder: Path) -> None:
    """Everything, into `folder`/store."""
    making = Making(folder)
    with (
        mock.patch.object(stores, "open_store", lambda url, **more: making.later(open_store(url, **more))),
        mock.patch.object(advice, "interpreter", lambda: "python"),
        mock.patch.object(Prover, "_wait", lambda *_: None),
    ):
        making.train(10, SHORT)
        making.train(20, SHORT, "--account", "account_2")
        commit_and_release = unreadable(making, -1, 0)
        making.offset_s += 3600.0
        making.train(15, SHORT, desk=making.elsewhere)
        making.train(25, SHORT, "--account", "account_2", desk=making.elsewhere)
        unreadable(making, 1)
        making.train(30, SHORT, desk=making.elsewhere)
        unreadable(making, 1)
        unreadable(making, 1)
        making.train(35, SHORT, "--account", "account_2", desk=making.elsewhere)
        for path, data in commit_and_release.items():
            path.write_bytes(data)  # the disk is well again
        unreadable(making, 1)
        making.desk("runs", "archive", RUN)
        making.desk("runs", "unarchive", RUN)
        making.train(40, SHORT, desk=making.elsewhere)


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    write(folder)
    pack(folder / "store", folder / "passing.tar.xz")
    print(json.dumps(sizes(folder / "store", folder / "passing.tar.xz")))


if __name__ == "__main__":
    main()
