"""`dashboard --push`: publishes a run's page, after a list of what becomes public."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from relay.app.commands.command import Answer, Call
from relay.app.commands.looking.source import Source
from relay.app.dashboard.page import whole
from relay.app.messages.wording import counted
from relay.core.errors import UsageError, store_errors
from storage.hf.space import SPACE, publish_space

SPACES, STORE = "space:", "store"
"""Forms of --push: a static Space of Hugging Face, and the store that holds the run."""
CARD = """---
title: {title}
sdk: static
app_file: index.html
pinned: false
---
A training run of {run}, as one page. `dashboard --push` of trm-relay wrote it.
"""


def publish(call: Call, source: Source, place: str, yes: bool) -> Answer:
    """List what becomes public; with `yes`, publish it. Raises UsageError (2), StoreError."""
    space = place.removeprefix(SPACES) if place.startswith(SPACES) else None
    if place != STORE and (space is None or not SPACE.fullmatch(space)):
        raise UsageError(f"--push takes {SPACES}OWNER/NAME or {STORE}, not {place!r}.")
    document = source.all()
    files = files_of(document, space is not None, source)
    public = contents(document, source.redacted)
    told = [
        {"name": name, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
    ]
    address = None
    if yes and space is not None:
        address = publish_space(space, files)
    elif yes:
        address = into_store(call, files)
    answer = {
        "schema": "relay.dashboard-push/1",
        "run": source.run,
        "place": place,
        "pushed": yes,
        "address": address,
        "files": told,
        "public": public,
    }
    return Answer(answer, text_of(answer, space is not None))


def files_of(document: Mapping[str, Any], is_space: bool, source: Source) -> dict[str, bytes]:
    """Return the files to publish by name."""
    page = whole(document).encode()
    if not is_space:
        return {source.names.page: page}
    title = f"{document['run']} {document['project']}"  # both are names: letters, digits, - and _
    return {"index.html": page, "README.md": CARD.format(title=title, run=document["run"]).encode()}


def contents(document: Mapping[str, Any], redacted: bool) -> dict[str, Any]:
    """Return what a reader of the page learns."""
    return {
        "redacted": redacted,
        "accounts": [row["label"] for row in document["accounts"]],
        "sessions": len(document["sessions"]),
        "gpus": [row["name"] for row in document["gpus"] if row["name"]],
        "metrics": [one["name"] for one in document["curves"]["series"]],
        "incidents": len(document["incidents"]),
        "notes": [one["text"] for one in document["notes"] if one["text"] is not None],
        "notes_left_out": sum(one["text"] is None for one in document["notes"]),
        "settings": [key for key, _ in document["settings"]],
        "store": document["storage"]["store"],
    }


def into_store(call: Call, files: Mapping[str, bytes]) -> str:
    """Put the page next to the run's ledger; `runs delete` removes it. Returns its address."""
    store = call.stores(read_only=False).ledger
    with store_errors(store):
        for name, data in files.items():
            store.put(name, data)
    return f"{store.address.rstrip('/')}/{next(iter(files))}"


def text_of(answer: Mapping[str, Any], is_space: bool) -> str:
    """Return the list for people."""
    public = answer["public"]
    size = sum(one["bytes"] for one in answer["files"])
    gpus = ", ".join(public["gpus"]) or "unknown"
    names = "ids" if public["redacted"] else "labels"
    first = f"Published: {answer['address']}"
    lines = [
        first if answer["pushed"] else f"Not published. With --yes, {answer['place']} gets:",
        f"  files      {', '.join(one['name'] for one in answer['files'])} ({size:,} bytes)",
        f"  accounts   by their {names}: {', '.join(public['accounts']) or 'none'}",
        f"  sessions   {public['sessions']:,}, with times, steps, versions and GPUs: {gpus}",
        f"  metrics    {', '.join(public['metrics']) or 'none'}",
        f"  incidents  {public['incidents']:,}",
        f"  notes      {_notes(public)}",
        f"  settings   {counted(len(public['settings']), 'setting')} that the run pinned",
        f"  store      {public['store'] or 'unknown'}",
    ]
    if not answer["pushed"] and is_space:
        lines.append("A new Space is public: everybody on the internet can read it.")
    return "\n".join(lines)


def _notes(public: Mapping[str, Any]) -> str:
    if public["notes_left_out"]:
        return f"{counted(public['notes_left_out'], 'note')}, without their texts"
    return "; ".join(public["notes"]) or "none"
