"""The page on privacy lists every field that is stored, no more and no less."""

from __future__ import annotations

import inspect
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

from relay.core.checkpoint import manifest
from relay.core.ledger import changes, entry, fields, registry, sessionreport, state
from relay.core.runs import opening, sources
from relay.people import account
from relay.torch import fingerprint
from tests.app.cli import Desk
from trm import checkpoint as statefile

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "stored.md"
OBJECTS: dict[str, type[BaseModel]] = {
    "identity of the store": opening.StoreIdentity,
    "source of the data": sources.Sources,
    "its setting": sources.Source,
    "entry of a log": entry.Entry,
    "what it passes over": fields.Passed,
    "a checkpoint kept with it": fields.Kept,
    "registry": registry.RegistryState,
    "a run in it": registry.RunRow,
    "an account in it": registry.Row,
    "account object": account.Account,
    "its hours": account.Reading,
    "its word for a run": account.Confirmed,
    "state of a run": state.RunState,
    "holder": state.Holder,
    "session in the chain": state.Link,
    "usage of an account": state.Usage,
    "incident": state.Incident,
    "failure": state.Failure,
    "checkpoint": state.Checkpoint,
    "next digest": state.NextDigest,
    "retired checkpoint": state.Retired,
    "origin of a fork": state.Origin,
    "older sessions": state.History,
    "genesis": changes.Genesis,
    "samples of training": sessionreport.Samples,
    "manifest": manifest.Manifest,
    "file of a checkpoint": manifest.FileEntry,
    "state.json": statefile.Document,
    "its note of a shared table": statefile.TableNote,
    "session report": sessionreport.SessionReport,
    "its checkpoints": sessionreport.Made,
    "its incidents": sessionreport.Happened,
    "its hours left": sessionreport.Left,
}
STORED = (account, manifest, fields, sessionreport, sessionreport, state, opening, sources, statefile)
"""Modules whose models are written into the store as they are; those of `changes` and `registry` make states."""
OTHERS = {"sign of life", "request to stop", "environment in a manifest"}


def rows() -> dict[str, list[str]]:
    table = PAGE.read_text().partition("## Every field")[2]
    found = re.findall(r"^\| ([^|]+) \| ((?:`\w+` ?)+) \|$", table, re.MULTILINE)
    return {name: re.findall(r"`(\w+)`", fields) for name, fields in found}


@pytest.mark.parametrize("name", OBJECTS)
def test_the_page_lists_the_fields_of_each_object(name: str) -> None:
    assert rows()[name] == list(OBJECTS[name].model_fields)


def test_no_stored_object_is_missing_on_the_page() -> None:
    assert rows().keys() == OBJECTS.keys() | OTHERS
    made = {model for module in STORED for model in models(module)} - {state.Named, state.Sparing, state.Strict}
    assert made <= set(OBJECTS.values())


def models(module: ModuleType) -> list[type[BaseModel]]:
    found = (value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, BaseModel))
    return [value for value in found if value.__module__ == module.__name__ and value.model_fields]


def test_signs_of_life_requests_and_the_environment_are_as_the_page_says(desk: Desk) -> None:
    seen = dict[str, list[str]]()

    def sleep(seconds: float) -> None:
        if not seen:
            desk("stop", "--run", "r", "--note", "enough")
            home = next((desk.folder / "relay_store" / "runs").glob("*/r"))
            for kind, file in (("sign of life", "heartbeat.1"), ("request to stop", "stop.1")):
                if (home / file).exists():
                    seen[kind] = sorted(json.loads((home / file).read_text()))

    desk.plugin.made = {"sleep": sleep, "step_s": 0.02}
    desk.train(100_000, "lease.ttl_s=2", code=75)
    assert "request to stop" in seen
    assert all(fields == sorted(rows()[kind]) for kind, fields in seen.items())
    written = inspect.getsource(fingerprint)
    assert set(re.findall(r'^ {8}"(\w+)":', written, re.MULTILINE)) == set(rows()["environment in a manifest"])
