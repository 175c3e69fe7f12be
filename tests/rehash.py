"""Computes the hash of the state in a checkpoint's files, from the files.

Every test that claims "the same hash" uses this: the hash in an entry or a manifest proves nothing about the files.
"""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from relay.core.ledger.state import Checkpoint
from storage.base import Ref, Store
from tests.core.toy import hash_of


def rehash(folder: Path) -> str:
    """Of a toy's files or a model's; one without a carry has no file of it."""
    document = json.loads((folder / "state.json").read_bytes())
    if "values" in document:
        return hash_of(document["step"], tuple(document["values"]))
    from relay.torch.snapshot import state_hash
    from relay.torch.statefile import read_tensors
    from trm.checkpoint import FILES, TABLE, load_document, read_table

    about = load_document(folder)
    files = [folder / file for file in FILES if (folder / file).exists()]
    tensors = {name: value for file in files for name, value in read_tensors(file)}
    if about.table is not None:
        tensors[TABLE] = read_table(folder, about)[0]
    return state_hash(tensors, about.step, about.seed)


def held(store: Store, checkpoint: Checkpoint | None) -> str:
    """Of a committed checkpoint's files in the store; fails if ledger or manifest say otherwise."""
    assert checkpoint is not None, "nothing is committed"
    manifest = json.loads(store.get(Ref(checkpoint.ref)))
    with TemporaryDirectory() as name:
        for file in manifest["files"]:
            data = store.get(Ref(file["ref"]))
            assert sha256(data).hexdigest() == file["sha256"], file["key"]
            (Path(name) / file["name"]).write_bytes(data)
        found = rehash(Path(name))
    assert found == manifest["state_hash"] == checkpoint.state_hash, f"{checkpoint.manifest} holds another state"
    return found
