"""What people see, case by case, as text.

Every case is a function of nothing but its name: fixed views and times, a store of its own, UTC.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from unittest import mock

from relay.app.views.accounts import Told, account_text
from relay.app.views.sessionstable import sessions_text
from relay.app.views.status import status_line
from relay.core.ledger.sessionreport import SessionReport, parse
from relay.core.ledger.state import Link, RunState, Usage
from relay.core.runs.registered import Standing
from relay.people.accountstate import Why
from relay.people.quota import Quota
from relay.people.status import AccountRow, RunStatus
from tests.app.cli import Desk
from tests.app.shown import draw, markdown
from tests.people.views import MACHINE, NOW, holder, trained, view
from tests.reports import golden_terminal

WIDTHS = (60, 80, 120, 200)
NAMES = {
    "bidi": "\u202egnihtyna\u202c \u2066x\u2069",
    "ansi": "\x1b[2J\x1b[31mred\x1b]8;;http://evil\x07",
    "emoji": "👩‍👩‍👧‍👦 family 🎉",
    "wide": "日本語の名前がとても長い",
    "combining": "e\u0301" * 20,
    "long": "x" * 10_000,
    "marks": "[a](http://evil) <b>*c*</b> | `d`",
}
LABELS = {"account_1": "John's Colab", "account_3": "Kaggle - Project 1", "account_11": "Backup Account"}
ROWS = (
    AccountRow("account_1", "John's Colab", "ready", 3000, 2, 3600.0),
    AccountRow("account_3", "Kaggle - Project 1", "active", 8750, 5, 8820.0),
    AccountRow("account_11", "Backup Account", "quota_exceeded", 0, 0),
)
GUIDE = (
    AccountRow("account_1", "John's Colab", "ready", 3000, 2),
    AccountRow("account_2", "Kaggle - Project 1", "active", 8750, 5),
    AccountRow("account_11", "Backup Account", "cooling", 0, 0),
)


def guide() -> RunState:
    """The guide's run: 11,750 of 50,000 steps, updated at 2025-01-15T14:30:00Z."""
    usage = {
        "account_1": Usage(sessions=2, steps=3000, seconds=3600.0, by_gpu=((1, 3600, 3000),)),
        "account_3": Usage(sessions=5, steps=8750, seconds=8820.0, by_gpu=((0, 3600, 6000),)),
    }
    return trained(updated=NOW, usage=usage, gpus=("H100 80GB HBM3", "T4"), holder=holder(account="account_3"))


def hostile(state: str = "ready") -> tuple[AccountRow, ...]:
    """Names that no registry lets in as ids, in the place of ids and of labels."""
    return tuple(AccountRow(name, name, state, 1_234_567, 123) for name in NAMES.values())


def report(rows: tuple[AccountRow, ...], ascii_only: bool, width: int) -> str:
    return draw(view(guide(), rows), MACHINE, ascii_only, width)


def status(ascii_only: bool) -> str:
    return _plain(status_line(view(guide(), ROWS, store="file:///mnt/shared/relay")), ascii_only)


def register(account: str, label: str, ascii_only: bool) -> str:
    """Both streams of the command, on a store of its own."""
    with tempfile.TemporaryDirectory() as folder, _no_date():
        environ = {"RELAY_STORE": f"file://{folder}/store", "USER": "ubuntu"}
        with mock.patch("relay.app.commands.common.speaks_utf8", lambda: not ascii_only):
            done = Desk(Path(folder) / "here", environ)("register", account, label, code=None)
        text = f"{done.out}-- stderr, exit code {done.code} --\n{done.err}"
        return re.sub(r"unnamed-[0-9a-f]{4}", "unnamed-0000", text.replace(folder, "FOLDER")).rstrip("\n")


def account(label: str) -> str:
    quota = Quota(26 * 3600.0, 30 * 3600.0, "official", NOW - 7200, NOW + 86_400)
    row = AccountRow("account_3", label, "cooling", 8750, 5, 8820.0, quota, NOW + 86_400, Why.USED, "Ann", "kaggle")
    seen: RunStatus = view(guide(), (row,))
    return account_text(Told(row, seen, [Standing(guide(), seen.sign_of_life)]))


def sessions(width: int | None) -> str:
    links = (
        Link(epoch=1, account="account_1", from_step=0, to_step=3000, started=NOW - 9e5, seconds=3600.0, gpu="T4",
             certified="unknown", ended=NOW - 8.9e5, end="budget used", commits=6),
        Link(epoch=2, account="a" * 64, from_step=3000, to_step=3000, started=NOW - 8e5, seconds=45.0,
             ended=NOW - 7.9e5, end="no sign of life"),
        Link(epoch=3, account="account_3", from_step=3000, to_step=11_750, started=NOW - 5400, seconds=5220.0,
             gpu="H100 80GB HBM3", certified="not-exact", why="another GPU", end=NAMES["ansi"] + NAMES["wide"]),
    )  # fmt: skip
    return sessions_text(links, "", width)


def told(text: str) -> SessionReport:
    """A session's report, with `text` wherever a stranger may have written."""
    return parse({
        "schema": "relay.session/1", "format": 1, "project": "sudoku_pretrain_multiaccount", "run": "sudoku_rotation",
        "run_id": "1" * 32, "epoch": 7, "account": "account_3", "provider": "kaggle", "gpu": "H100 80GB HBM3",
        "environment": {"device": "cuda", "gpu": "NVIDIA H100 80GB HBM3", "python": "3.12.1", "torch": "2.11.0+cu128",
                        "cuda": "12.8", "triton": "3.6.0", "driver": text},
        "code_version": "0.1.0", "config_hash": "c" * 64, "started": NOW - 3000.0, "wall_s": 3000.0, "lease_s": 2980.0,
        "phases": {"import": 9.0, "prepare": 6.0, "acquire": 1.5, "restore": 3.5, "compile": 20.0, "train": 2900.0,
                   "evaluate": 30.0, "snapshot": 0.04, "upload": 20.0, "release": 0.5, "other": 9.46},
        "stall_s": [0.012, 0.04, 0.02], "from_step": 3000, "to_step": 11_750, "steps_per_hour": 10_570.5,
        "goodput": 0.967, "metrics": {"lm_loss": 0.02337, "accuracy": 0.91}, "validated_step": 11_500,
        "validation": 0.875, "checkpoints": [{"step": 11_500, "state_hash": "a" * 64, "bytes": 233_000_000},
                                             {"step": 11_750, "state_hash": "b" * 64, "bytes": 233_000_000}],
        "commits": 18, "certified": "not-exact", "why": text, "follows": 6,
        "incidents": [{"at": NOW - 60.0, "step": 11_600, "cause": "recomputed", "text": text}],
        "exit_code": 75, "end": "budget used", "at_risk_s": 95.0, "next": "account_1",
        "quota": {"left_s": 93_600.0, "of_s": 108_000.0, "source": "official", "read_at": NOW - 7200.0,
                  "resets_at": NOW + 86_400.0},
    })  # fmt: skip


def session(text: str, label: str) -> str:
    command = "ACCOUNT_ID=account_1 RUN_NAME=sudoku_rotation bash multi_account_workflow.sh"
    return markdown(told(text), label, command).rstrip()


def _cases() -> Iterator[tuple[str, Callable[[], str]]]:
    for coding, ascii_only in (("utf8", False), ("ascii", True)):
        for width in WIDTHS:
            yield f"report_{coding}_{width}", partial(report, GUIDE, ascii_only, width)
            yield f"report_long_state_{coding}_{width}", partial(report, ROWS, ascii_only, width)
            yield f"report_hostile_{coding}_{width}", partial(report, hostile(), ascii_only, width)
        yield f"status_{coding}", partial(status, ascii_only)
        for account_id, label in LABELS.items():
            yield f"register_{account_id}_{coding}", partial(register, account_id, label, ascii_only)
        for kind, label in NAMES.items():
            yield f"register_{kind}_{coding}", partial(register, "account_1", label, ascii_only)
    for width in WIDTHS:
        yield f"sessions_{width}", partial(sessions, width)
    yield "sessions_pipe", partial(sessions, None)
    yield "session", partial(session, "another GPU: NVIDIA A100", "Kaggle - Project 1")
    for kind, label in NAMES.items():
        yield f"session_{kind}", partial(session, label, label)
        yield f"account_{kind}", partial(account, label)
    yield "account", partial(account, "Kaggle - Project 1")
    yield from golden_terminal.cases()


CASES = dict(_cases())


@cache
def shown(name: str) -> str:
    """The text of a case, ending with a line's end."""
    with _utc():
        return CASES[name]() + "\n"


def _plain(text: str, ascii_only: bool) -> str:
    return text.encode("ascii", "replace").decode("ascii") if ascii_only else text


@contextmanager
def _utc() -> Iterator[None]:
    with mock.patch.dict(os.environ, {"TZ": "UTC"}):
        time.tzset()
        yield
    time.tzset()


@contextmanager
def _no_date() -> Iterator[None]:
    """A record's age is told with the day; that is tested where records are."""
    with mock.patch("relay.people.policy.Provider.stale", lambda provider, now: ""):
        yield
