"""Any bytes in any file of a checkpoint, below the session: hypothesis chooses place and bytes; forged manifests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relay.app.checks.verify import verify
from relay.core.checkpoint.local import LocalFolder
from relay.core.checkpoint.manifest import MAX_FILES
from relay.core.checkpoint.restore import Damaged, Route, read_manifest, restore
from relay.core.ledger.canonical import digest
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import Checkpoint, RunState
from storage.memory import MemoryStore
from tests.core.making import QuietRuntime
from tests.core.toy import ToyWorkload
from tests.damage.harms import HOSTILE_JSON
from tests.damage.scene import NAMES, PROJECT, Picture

HEAD = NAMES.checkpoint(30, 3)


def mutate(data: bytes, kind: str, at: float, junk: bytes) -> bytes:
    """Bytes changed, cut off, put in or left out, anywhere."""
    place = int(at * len(data))
    return {
        "change": data[:place] + junk + data[place + len(junk) :],
        "cut": data[:place],
        "insert": data[:place] + junk + data[place:],
        "leave out": data[:place] + data[place + len(junk) :],
    }[kind]


def store_of(picture: Picture) -> MemoryStore:
    store = MemoryStore()
    for name, data in picture.store.items():
        store.put(name, data)
    return store


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["state.json", "ema.json", "manifest.json"]),
    st.sampled_from(["change", "cut", "insert", "leave out"]),
    st.floats(0, 1),
    st.binary(min_size=1, max_size=40),
)
def test_i9_whatever_bytes_stand_there_only_what_was_committed_is_loaded(
    picture: Picture, file: str, kind: str, at: float, junk: bytes
) -> None:
    store, name = store_of(picture), HEAD + file
    hurt = mutate(picture.store[name], kind, at, junk)
    store.put(name, hurt)
    ledger, toy = RunLedger(store, PROJECT, "hurt", QuietRuntime()), ToyWorkload()
    state, same = ledger.read().state, hurt == picture.store[name]
    with TemporaryDirectory() as folder:
        found = restore(state, Route(store, NAMES, LocalFolder(Path(folder)), workers=1), toy)
    assert found.checkpoint.key == ((30, 3) if same else (20, 2))
    assert toy.digest().digest == found.checkpoint.state_hash
    assert same or (name in found.evidence and "step_30.e3" in found.evidence)
    assert verify(ledger, store).ok == same


def forged(picture: Picture, data: bytes) -> tuple[MemoryStore, RunState, Checkpoint]:
    """A head whose manifest is `data`, and whose entry names these bytes, by a stranger who can write both."""
    store = store_of(picture)
    state = RunLedger(store, PROJECT, "hurt", QuietRuntime()).read().state
    assert state.head is not None
    store.put(state.head.manifest, data)
    return store, state, state.head.model_copy(update={"sha256": digest(data)})


def refused(picture: Picture, data: bytes) -> str:
    store, state, head = forged(picture, data)
    with pytest.raises(Damaged) as evidence:
        read_manifest(head, state, store, NAMES)
    assert len(str(evidence.value)) < 400 and "\n" not in str(evidence.value)
    return str(evidence.value)


def with_file(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda manifest: manifest["files"][0].update(changes)


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_manifest_is_refused_even_where_its_hash_is_right(picture: Picture, what: str) -> None:
    assert HEAD + "manifest.json" in refused(picture, HOSTILE_JSON[what])


def keyed(key: str) -> Callable[[dict[str, Any]], None]:
    return with_file(key=key, ref=key)


LEAVING = {
    "up": HEAD + "../../../../etc/passwd",
    "up and back": HEAD + "../step_30.e3/state.json",
    "absolute": "/etc/passwd",
    "a drive": "C:\\windows\\system32\\config",
    "a drive in the folder": HEAD + "c:state.json",
    "backslashes": HEAD + "..\\..\\state.json",
    "upper case": HEAD + "STATE.json",
    "another run's": NAMES.checkpoints.replace("/hurt/", "/other/") + "step_20.e1/state.json",
    "the ledger": NAMES.ledger + "00000000000000000000.json",
    "a store identity": "trm-relay.store.json",
    "percent": HEAD + "%2e%2e/state.json",
    "NUL": HEAD + "state\x00.json",
    "a line break": HEAD + "state.json\n",
    "very long": HEAD + "s" * 5_000,
    "long within the limit": HEAD + "s" * 300,
    "hidden": HEAD + ".state.json",
    "a folder": HEAD,
    "nothing": "",
    "half a surrogate": HEAD + "\ud800",
}


@pytest.mark.parametrize("what", LEAVING)
def test_i3_a_file_name_that_leaves_the_folder_is_refused(picture: Picture, what: str) -> None:
    manifest = json.loads(picture.store[HEAD + "manifest.json"])
    keyed(LEAVING[what])(manifest)
    refused(picture, json.dumps(manifest).encode())
    manifest = json.loads(picture.store[HEAD + "manifest.json"])
    manifest["files"][0]["name"] = LEAVING[what].removeprefix(HEAD)
    refused(picture, json.dumps(manifest).encode())


def twice(manifest: dict[str, Any]) -> None:
    manifest["files"].append(dict(manifest["files"][0]))


def many(manifest: dict[str, Any]) -> None:
    one = manifest["files"][0]
    manifest["files"] = [
        one | {"name": f"f{n}", "key": f"{HEAD}f{n}", "ref": f"{HEAD}f{n}"} for n in range(MAX_FILES + 1)
    ]


WRONG: dict[str, Callable[[dict[str, Any]], None]] = {
    "a file twice": twice,
    "names that differ in case": lambda m: m["files"].append(m["files"][0] | {"name": "EMA.json"}),
    "too many files": many,
    "a negative size": with_file(size=-1),
    "a huge size": with_file(size=2**60),
    "a size that is a text": with_file(size="42"),
    "a size that is a float": with_file(size=42.0),
    "a hash in capitals": with_file(sha256="A" * 64),
    "another step": lambda m: m.update(step=20),
    "another epoch": lambda m: m.update(epoch=2),
    "another run": lambda m: m.update(run="other"),
    "another project": lambda m: m.update(project="else"),
    "another state": lambda m: m.update(state_hash="0" * 64),
    "a newer format": lambda m: m.update(format=2),
    "an unknown key": lambda m: m.update(exec="rm"),
    "a metric that is no number": lambda m: m.update(metrics={"loss": "NaN"}),
    "a metric beyond a double": lambda m: m.update(metrics={"loss": 10**400}),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_manifest_that_says_what_cannot_be_is_refused(picture: Picture, what: str) -> None:
    manifest = json.loads(picture.store[HEAD + "manifest.json"])
    WRONG[what](manifest)
    refused(picture, json.dumps(manifest).encode())


def test_i3_a_file_that_is_said_to_lie_elsewhere_is_not_followed(picture: Picture) -> None:
    """Key and Ref disagree: where names are unique that is no Ref this store has given."""
    manifest = json.loads(picture.store[HEAD + "manifest.json"])
    manifest["files"][0]["ref"] = "trm-relay.store.json"
    store, state, head = forged(picture, json.dumps(manifest).encode())
    head = state.model_copy(update={"head": head, "retained": (*state.retained[:-1], head)})
    with TemporaryDirectory() as folder:
        found = restore(head, Route(store, NAMES, LocalFolder(Path(folder)), workers=1), ToyWorkload())
    assert found.checkpoint.key == (20, 2) and "somewhere else" in found.evidence
