"""Weights & Biases: one of its runs for each line, the same for everybody who trains; knows no ledger.

Rows are logged without a step of W&B's own, over `trainer/step`: nothing is dropped where a step comes late. The newest
slot lies in the run's summary, so the next session, on whatever machine, asks the run how far it was fed.
"""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from relay.app.trackers.base import NOTHING, Alone, Mark, SinkOff, keep_mark, read_mark, require
from relay.app.trackers.line import STEP, Line, Point
from storage.packages import pip

if TYPE_CHECKING:
    import wandb

SLOT = "relay/slot"
FINISH_S, INIT_S = 8.0, 60.0
OFFLINE = ("offline", "dryrun")


def _goes_on() -> None:
    """What the stop button on a run's page does: W&B would send this process a SIGINT, and training would end."""


SILENT: Mapping[str, Any] = {
    "stop_fn": _goes_on,
    "console": "off",
    "silent": True,
    "disable_git": True,
    "disable_code": True,
    "disable_job_creation": True,
    "save_code": False,
    "host": "relay",
    "username": "relay",
    "email": "",
    "program": "relay",
    "program_relpath": "",
    "program_abspath": "",
    "notebook_name": "relay",
    "x_disable_stats": True,
    "x_disable_meta": True,
    "x_disable_machine_info": True,
    "x_save_requirements": False,
    "init_timeout": INIT_S,
    "finish_timeout": FINISH_S,
    "finish_timeout_raises": True,
    "x_transaction_log_flush_interval": 1.0,
}
"""W&B by itself sends console, code, repository, host, user, packages and hardware: none of that."""
UNASKED = {"WANDB_ERROR_REPORTING": "false"}
"""Variables of W&B's own that are set unless somebody has: its client would tell its maker of its own failures."""


class Wandb:
    """The W&B project of the run's project, unless WANDB_PROJECT names another."""

    def __init__(self, environ: Mapping[str, str], marks: Path, own: int | None) -> None:
        """`marks`: as with trackio, for what has no network; `own`: the slot of this session's lease, None for
        whoever brings all there is. Raises SinkOff."""
        refuse(environ)
        require("wandb")
        for name, value in UNASKED.items():
            os.environ.setdefault(name, value)
        import wandb

        _require_silence(wandb)
        self._wandb, self._environ, self._marks, self._own = wandb, environ, marks, own
        self._offline = environ.get("WANDB_MODE") in OFFLINE
        self._line: Line | None = None
        self._step = 0
        self._run: wandb.Run | None = None
        self._alone = Alone()

    def begin(self, line: Line) -> int:
        """A run that has no network cannot be asked: then what this machine remembers counts, else only what this
        session itself commits, so that no two machines tell W&B the same later."""
        self.close()
        self._alone.take(self._marks.with_suffix(".lock"))
        self._line, self._step = line, 0
        patient = {} if self._own is not None else {"finish_timeout": 0.0}  # only a session's end is in a hurry
        self._wandb.setup(self._wandb.Settings(silent=True))  # its login speaks before the run's own settings count
        self._run = self._wandb.init(
            entity=self._environ.get("WANDB_ENTITY") or None,
            project=self._environ.get("WANDB_PROJECT") or line.project,
            id=line.key,
            name=line.name,
            group=line.run,
            job_type="relay",
            config=dict(line.config),
            resume="allow",
            reinit="create_new",
            settings=self._wandb.Settings(**{**SILENT, **patient}),
        )
        self._run.define_metric("*", step_metric=STEP)
        self._run.define_metric(STEP, summary="max")
        return self._remembered(line) if self._offline else self._asked()

    def write(self, points: Sequence[Point], slot: int) -> None:
        """Queued for its own process; what has no network waits in its folder."""
        assert self._run is not None and self._line is not None, "begin comes first"
        for point in points:
            self._run.log({STEP: point.step, **point.values})
            self._step = point.step
        self._run.summary[SLOT] = slot
        mark = Mark(run_id=self._line.run_id, rewinds=self._line.rewinds, slot=slot, step=self._step)
        keep_mark(self._marks, mark)

    def close(self) -> None:
        """In a session W&B gives up on its upload after FINISH_S, which raises; the next session goes on."""
        run, self._run = self._run, None
        try:
            if run is not None:
                run.finish()
        finally:
            self._alone.leave()

    def where(self) -> str:
        """The run's page, or the folder to be synced."""
        if self._run is None:
            return "W&B"
        return f"wandb sync {Path(self._run.dir).parent}" if self._offline else str(self._run.url)

    def _remembered(self, line: Line) -> int:
        mark = read_mark(self._marks)
        if mark and (mark.run_id, mark.rewinds) == (line.run_id, line.rewinds):
            return mark.slot
        begun_here = self._own is not None and line.began > self._own
        return NOTHING if self._own is None or begun_here else self._own

    def _asked(self) -> int:
        summary: Any = self._run.summary if self._run is not None else {}
        slot = summary.get(SLOT)
        return int(slot) if isinstance(slot, int | float) else NOTHING


def _require_silence(library: ModuleType) -> None:
    """Raises SinkOff for a version that cannot be told to send nothing else, or to leave this process alone."""
    unknown = sorted(set(SILENT) - set(getattr(library.Settings, "model_fields", ())))
    if unknown:
        raise SinkOff(
            f"W&B {library.__version__} has no setting {unknown[0]} and might send more than the curves: "
            f"`{pip()} install --upgrade wandb`."
        )


def refuse(environ: Mapping[str, str]) -> None:
    """Raises SinkOff where W&B is turned off, or would stop to ask for a key."""
    if environ.get("WANDB_DISABLED"):
        raise SinkOff("WANDB_DISABLED turns W&B off, whatever its value. Unset it.")
    if environ.get("WANDB_MODE") == "disabled":
        raise SinkOff("WANDB_MODE=disabled turns W&B off. Unset it, or set it to online or offline.")
    if environ.get("WANDB_MODE") not in OFFLINE and not _has_key(environ):
        raise SinkOff("W&B has no key here. Set WANDB_API_KEY, or WANDB_MODE=offline and sync later.")


def _has_key(environ: Mapping[str, str]) -> bool:
    """Whether W&B can log in without asking anybody."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    home = Path(environ.get("HOME", "~")).expanduser()
    host = urlsplit(environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    places = [Path(environ["NETRC"])] if environ.get("NETRC") else [home / ".netrc", home / "_netrc"]
    for place in places:
        with suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
            if netrc.netrc(place).authenticators(host):
                return True
    return False
