"""Weights & Biases: one W&B run for each line, shared by all sessions."""

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
from relay.core.folders import home_folder
from storage.packages import pip

if TYPE_CHECKING:
    import wandb

SLOT = "relay/slot"
FINISH_S, INIT_S = 8.0, 60.0
OFFLINE = ("offline", "dryrun")


def _goes_on() -> None:
    """Ignore the stop button on a run's page: W&B would send this process a SIGINT, which ends training."""


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
"""W&B's defaults send console, code, repository, host, user, packages and hardware; these settings disable that."""
UNASKED = {"WANDB_ERROR_REPORTING": "false"}
"""W&B's own variables, set unless the user has set them: its client would report its failures to its maker."""


class Wandb:
    """Sink for the W&B project of the same name, unless WANDB_PROJECT names another.

    Rows are logged over `trainer/step` and not W&B's own step, which would drop late steps. The run's summary holds the
    newest slot, so the next session on any machine can read how far the run was fed.
    """

    def __init__(self, environ: Mapping[str, str], marks: Path, own: int | None) -> None:
        """`marks`: the mark file of this machine, for offline mode. `own`: the slot of this session's lease; None to
        write all points. Raises SinkOff."""
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
        """Return the slot of the W&B run; offline, of this machine's mark.

        Offline and without a mark a session writes only its own commits, so that no two machines sync the same points
        later.
        """
        self.close()
        self._alone.take(self._marks.with_suffix(".lock"))
        self._line, self._step = line, 0
        patient = {} if self._own is not None else {"finish_timeout": 0.0}  # only a session must end quickly
        self._wandb.setup(self._wandb.Settings(silent=True))  # login prints before the run's own settings apply
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
        """Queue the points for W&B's own process; offline, they stay in its folder."""
        assert self._run is not None and self._line is not None, "begin comes first"
        for point in points:
            self._run.log({STEP: point.step, **point.values})
            self._step = point.step
        self._run.summary[SLOT] = slot
        mark = Mark(run_id=self._line.run_id, rewinds=self._line.rewinds, slot=slot, step=self._step)
        keep_mark(self._marks, mark)

    def close(self) -> None:
        """Finish the upload. In a session this raises after FINISH_S; the next session continues."""
        run, self._run = self._run, None
        try:
            if run is not None:
                run.finish()
        finally:
            self._alone.leave()

    def where(self) -> str:
        """Return the run's page; offline, the command that syncs the folder."""
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
    """Raises SinkOff if this W&B lacks a setting of SILENT: it could send more data, or interrupt training."""
    unknown = sorted(set(SILENT) - set(getattr(library.Settings, "model_fields", ())))
    if unknown:
        raise SinkOff(
            f"W&B {library.__version__} has no setting {unknown[0]} and might send more than the curves: "
            f"`{pip()} install --upgrade wandb`."
        )


def refuse(environ: Mapping[str, str]) -> None:
    """Raises SinkOff if W&B is turned off, or would prompt for a key."""
    if environ.get("WANDB_DISABLED"):
        raise SinkOff("WANDB_DISABLED turns W&B off, whatever its value. Unset it.")
    if environ.get("WANDB_MODE") == "disabled":
        raise SinkOff("WANDB_MODE=disabled turns W&B off. Unset it, or set it to online or offline.")
    if environ.get("WANDB_MODE") not in OFFLINE and not _has_key(environ):
        raise SinkOff("W&B has no key here. Set WANDB_API_KEY, or WANDB_MODE=offline and sync later.")


def _has_key(environ: Mapping[str, str]) -> bool:
    """Return whether W&B can log in without a prompt."""
    if environ.get("WANDB_API_KEY") or environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    home = Path(environ["HOME"]) if environ.get("HOME") else home_folder() or Path("/")
    host = urlsplit(environ.get("WANDB_BASE_URL") or "https://api.wandb.ai").hostname or ""
    places = [Path(environ["NETRC"])] if environ.get("NETRC") else [home / ".netrc", home / "_netrc"]
    for place in places:
        with suppress(OSError, netrc.NetrcParseError, UnicodeDecodeError):
            if netrc.netrc(place).authenticators(host):
                return True
    return False
