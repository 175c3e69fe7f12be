"""Where a run's data came from, for participants who must make, fetch or bring the same.

A run pins data by its content. This object names the source: it is advice, and a wrong or absent one is harmless,
because the content is compared before a session trains.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from relay.core.errors import BadConfig
from relay.core.lease.heartbeat import find
from relay.core.ledger.canonical import NotCanonical, dumps, loads
from relay.core.ledger.fields import Digest, Line, Strict, Whole
from relay.core.names import Names
from storage.base import Store, StoreError
from storage.wording import counted

LIMIT = 8000
MOST = 8
"""Settings that name data."""
Key = Annotated[str, Field(pattern=r"^[a-z_.]{1,64}$")]


class Source(Strict):
    """The source of one setting's data."""

    kind: Literal["generated", "hub", "file", "folder"]
    """The first two can be had anywhere; a file or a folder only its owners have."""
    name: Line = ""
    """Of the file or folder, without its path."""
    rows: Whole = 0
    sha256: Digest | None = None
    """Of the file's bytes, or of a folder's rows."""


class Sources(Strict):
    """The object in the store."""

    format: Literal[1] = 1
    sources: Annotated[dict[Key, Source], Field(max_length=MOST)]


class DataElsewhere(BadConfig):
    """The run trains on data that only its participants have, and this machine has no copy that it knows of."""

    def __init__(self, run: str, missing: Mapping[str, Source | None], variables: Mapping[str, str]) -> None:
        """`missing`: the source by setting, None if unknown; `variables`: lead another shell to the run's store."""
        listed = "; ".join(f"{key}: {described(source)}" for key, source in missing.items())
        super().__init__(f"Run {run} trains on data that is not on this machine: {listed}.")
        self.run, self.missing, self.variables = run, dict(missing), dict(variables)


class DataDiffers(BadConfig):
    """Data that was made, fetched or remembered here is not the data that the run pinned."""

    def __init__(self, run: str, differing: Mapping[str, Source | None], variables: Mapping[str, str]) -> None:
        """As `DataElsewhere`."""
        listed = "; ".join(f"{key}: the run has {described(source)}" for key, source in differing.items())
        super().__init__(f"This machine's data is not what run {run} trains on: {listed}.")
        self.run, self.missing, self.variables = run, dict(differing), dict(variables)


def described(source: Source | None) -> str:
    """The source in words, with its identity."""
    if source is None:
        return "a file or folder of the participants, whose name was not recorded"
    if source.kind in ("generated", "hub"):
        return f"{source.kind} data of that time"
    digest = f", sha256 {source.sha256}" if source.sha256 else ""
    return f"the {source.kind} {source.name} ({counted(source.rows, 'row')}{digest})"


def read_sources(store: Store, names: Names) -> dict[str, Source] | None:
    """The recorded sources by setting; None if there are none, or none that can be read."""
    with suppress(StoreError, NotCanonical, ValidationError):
        stat = find(store, names.data)
        if stat is not None:
            data = store.get(stat.ref, limit=LIMIT)
            loads(data, LIMIT)
            return dict(Sources.model_validate_json(data).sources)
    return None


def write_sources(store: Store, names: Names, sources: Mapping[str, Source]) -> None:
    """Record the sources. A failure is ignored: participants then name the data themselves."""
    if sources:
        with suppress(StoreError):
            store.put(names.data, dumps(Sources(sources=dict(sources)).model_dump(mode="json")))
