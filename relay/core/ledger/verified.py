"""Stores on this machine how far a log was validated, so that the next session need not start at the genesis."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from relay.core.errors import BadData
from relay.core.ledger.canonical import digest, dumps
from relay.core.ledger.fields import Digest, Epoch, Strict
from relay.core.wholefile import write_whole
from relay.core.workload import Step

MAX_BYTES = 1_000


class VerifiedUpTo(Strict):
    """A valid entry: every slot up to it was validated. Its digest ties it to the log that it was read from."""

    seq: Step
    digest: Digest
    step: Step = 0
    """The training step of its state."""
    epoch: Epoch = 0
    check: Digest | None = None
    """SHA-256 over the other fields; marks of older versions have none."""

    @property
    def sure(self) -> bool:
        """Whether it is unchanged since it was written: only then it proves that a log was rolled back."""
        return self.check == self._sum()

    def checked(self) -> VerifiedUpTo:
        """The same with `check`."""
        return self.model_copy(update={"check": self._sum()})

    def _sum(self) -> str:
        return digest(dumps(self.model_dump(mode="json", exclude={"check"})))


class RolledBack(BadData):
    """The store holds less than this machine has read there (65)."""

    def __init__(self, message: str, *, run: str, step: int, epoch: int, known: VerifiedUpTo | None = None) -> None:
        super().__init__(message)
        self.run = run
        self.step, self.epoch = step, epoch
        """The newest committed step that this machine knows of, and its epoch."""
        self.known = known
        """The newest entry that this machine has read, if its mark shows it."""


class MarkDiffers(RolledBack):
    """The entry of this machine's mark is not in the store; raised by a read that checks nothing more."""

    def __init__(self, run: str, known: VerifiedUpTo, tail: int, step: int) -> None:
        """`tail` and `step`: the newest slot of the store, and its step."""
        super().__init__(
            f"the store was rolled back: this machine has read slot {known.seq} (step {known.step:,}), but the store "
            f"ends at slot {tail} (step {step:,}) or holds another entry there.",
            run=run,
            step=known.step,
            epoch=known.epoch,
            known=known,
        )


class VerifiedMark(Protocol):
    """Storage for the newest validated entry."""

    def recall(self) -> VerifiedUpTo | None:
        """The newest stored entry, if any."""

    def keep(self, verified: VerifiedUpTo) -> None:
        """Store it, or fail silently: without it a session only reads more."""


class NoMark:
    """Stores nothing: every session validates without a mark."""

    def recall(self) -> VerifiedUpTo | None:
        return None

    def keep(self, verified: VerifiedUpTo) -> None:
        return None


class FileMark:
    """A small file in the run's folder under `sync/`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def recall(self) -> VerifiedUpTo | None:
        """The stored entry; None if the file is absent or invalid."""
        try:
            with self._path.open("rb") as file:
                return VerifiedUpTo.model_validate_json(file.read(MAX_BYTES))
        except (OSError, ValidationError):
            return None

    def keep(self, verified: VerifiedUpTo) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, dumps(verified.checked().model_dump(mode="json")))


def mark_of(home: Path, run_id: str) -> FileMark:
    """The mark of a run whose folder under `sync/` is `home`."""
    return FileMark(home / f"judged.{run_id[:8]}.json")
