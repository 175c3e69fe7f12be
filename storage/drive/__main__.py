"""`python -m storage.drive members|newest ADDRESS`: lists a store's Drive accounts, or changes how its logs go on."""

from __future__ import annotations

import sys

from storage.contract import StoreError
from storage.drive import open_drive
from storage.drive.members import go_on_by_newest, membership
from storage.drive.store import DriveStore

_USAGE = "python -m storage.drive members|newest drive://FOLDER_ID/FIRST_ID"


def main(words: list[str]) -> int:
    """Exit code: 0, 2 for wrong words, 69 for any error of the store."""
    if len(words) != 2 or words[0] not in ("members", "newest"):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        store = open_drive(words[1].partition("#")[0], words[0] == "members")
        assert isinstance(store, DriveStore)
        if words[0] == "newest":
            go_on_by_newest(store)
        print("\n".join(membership(store).lines))
    except StoreError as error:
        print(error, file=sys.stderr)
        return 69
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
