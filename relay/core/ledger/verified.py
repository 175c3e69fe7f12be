"""Remembers on this machine how far a log has been judged, so that the next session need not begin at its genesis."""

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

# --- Remembers on this machine how far a log has been judged, so that the next session need not begin at its genesis

MAX_BYTES = 1_000


class VerifiedUpTo(Strict):
    """A valid entry: every slot up to it was judged. Its digest ties it to the log it was read from."""

    seq: Step
    digest: Digest
    step: Step = 0
    """The training step that its state has."""
    epoch: Epoch = 0
    check: Digest | None = None
    """SHA-256 over the other fields; marks of older versions have none."""

    @property
    def sure(self) -> bool:
        """Whether no bit of it has changed since: only then it proves that a log was rolled back."""
        return self.check == self._sum()

    def checked(self) -> VerifiedUpTo:
        """The same with `check`."""
        return self.model_copy(update={"check": self._sum()})

    def _sum(self) -> str:
        return digest(dumps(self.model_dump(mode="json", exclude={"check"})))


class RolledBack(BadData):
    """The store shows less than this machine has seen there (65)."""

    def __init__(self, message: str, *, run: str, step: int, epoch: int, known: VerifiedUpTo | None = None) -> None:
        super().__init__(message)
        self.run = run
        self.step, self.epoch = step, epoch
        """The newest committed step that this machine knows of, and its epoch."""
        self.known = known
        """The newest entry that this machine has read, where its mark shows it."""


class MarkDiffers(RolledBack):
    """The entry of this machine's mark is not in the store: found by a look that goes no further."""

    def __init__(self, run: str, known: VerifiedUpTo, tail: int, step: int) -> None:
        """`tail` and `step`: where the store ends."""
        super().__init__(
            f"the store was rolled back: this machine has read slot {known.seq} (step {known.step:,}), but the store "
            f"ends at slot {tail} (step {step:,}) or holds another entry there.",
            run=run,
            step=known.step,
            epoch=known.epoch,
            known=known,
        )


class VerifiedMark(Protocol):
    """Where a judged entry is kept."""

    def recall(self) -> VerifiedUpTo | None:
        """The newest one kept, if any."""

    def keep(self, judged: VerifiedUpTo) -> None:
        """Keep it, or fail silently: without it a session only reads more."""


class NoMark:
    """Keeps nothing: every session judges the log from its genesis."""

    def recall(self) -> VerifiedUpTo | None:
        return None

    def keep(self, judged: VerifiedUpTo) -> None:
        return None


class FileMark:
    """A small file in the run's folder under `sync/`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def recall(self) -> VerifiedUpTo | None:
        """None also if the file is not what `keep` writes."""
        try:
            with self._path.open("rb") as file:
                return VerifiedUpTo.model_validate_json(file.read(MAX_BYTES))
        except (OSError, ValidationError):
            return None

    def keep(self, judged: VerifiedUpTo) -> None:
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self._path, dumps(judged.checked().model_dump(mode="json")))


def mark_of(home: Path, run_id: str) -> FileMark:
    """That of a run, whose folder under `sync/` is `home`."""
    return FileMark(home / f"judged.{run_id[:8]}.json")
