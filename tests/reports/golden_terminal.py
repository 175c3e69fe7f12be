"""What people see in a terminal, a case a file: at three widths, with and without UTF-8, in Berlin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

from relay.app.checks.doctor import Examination, Finding
from relay.app.machine.skew import ADVICE
from relay.app.messages.handoff import Reader, propose
from relay.app.providers import shipped
from relay.app.terminal.cells import in_ascii
from relay.app.terminal.mishaps import explain
from relay.app.terminal.paragraphs import folded
from relay.app.views.accounts import listing
from relay.app.views.plan import Look
from relay.app.views.plan import draw as draw_plan
from relay.app.views.sessionstable import sessions_text
from relay.app.views.status import status_line
from relay.core.errors import BadConfig
from relay.core.lease.blockers import Held, HeldBy
from relay.core.ledger.state import Link
from relay.people.participants import Assumptions, Crew
from relay.people.plan import Forecast, forecast
from relay.people.quota import Quota
from relay.people.status import AccountRow, RunStatus
from relay.people.zones import reading_in
from storage.base import Denied, StoreError
from tests.app.shown import draw
from tests.people.views import MACHINE, NOW, holder, trained, view
from tests.reports import golden_progress

WIDTHS = (60, 80, 120)
ZONE = "Europe/Berlin"
HOUR = 3600.0
Drawn = Callable[[int, bool], str]
"""Of a width, and whether only ASCII may be used."""
LEFT = Quota(26 * HOUR, 30 * HOUR, "official", NOW - 7200, NOW + 2 * 86_400)
SAID = Quota(2 * HOUR, 5 * HOUR, "declared", NOW - HOUR, NOW + 86_400)


def row(n: int, label: str, state: str, provider: str, owner: str, **more: Any) -> AccountRow:
    """An account that has given an hour and 3,000 steps for each of its number."""
    kept: dict[str, Any] = {
        "session_minutes": 60.0,
        "weekly_hours": 30.0,
        "availability": "mon-sun 00:00-24:00",
        "tier": "free",
    }
    given = (3000 * n, n, HOUR * n)
    return AccountRow(f"account_{n}", label, state, *given, provider=provider, owner=owner, **(kept | more))


ROWS = (
    row(1, "John's Colab", "ready", "colab", "John", gpu="T4", quota=SAID, zone="Europe/Berlin"),
    row(2, "Kaggle - Project 1", "active", "kaggle", "Ann", gpu="T4", quota=LEFT),
    row(3, "Backup Account", "cooling", "lightning", "Ben", gpu="H100", until=NOW + 86_400, zone="Asia/Tokyo"),
    row(4, "日本語の名前がとても長い", "ready", "local", "鈴木", zone="Asia/Tokyo"),
)


def link(n: int) -> Link:
    """An hour's session a day, on one GPU and another."""
    began = NOW - 86_400 * (9 - n)
    return Link(
        epoch=n,
        account=f"account_{1 + n % 4}",
        from_step=2000 * (n - 1),
        to_step=2000 * n,
        started=began,
        seconds=HOUR,
        ended=began + HOUR,
        gpu=("T4", "H100 80GB HBM3")[n % 2],
        commits=4,
        certified="exact" if n > 1 else "unknown",
        end="budget used",
    )


LINKS = tuple(link(n) for n in range(1, 7))


def seen(**changes: Any) -> RunStatus:
    """A run between two sessions."""
    state = trained(**{"updated": NOW, "links": LINKS, "links_total": 6, "holder": None} | changes)
    return view(state, ROWS, store="file:///mnt/shared/relay")


def busy() -> RunStatus:
    """The same while account_2 trains."""
    return seen(holder=holder(account="account_2"))


def accounts(width: int, ascii_only: bool) -> str:
    return listing(ROWS, NOW, width, not ascii_only)


def next_turn(width: int, ascii_only: bool) -> str:
    stores = {"RELAY_STORE": "s3://our-bucket/relay?endpoint=https://accountid.r2.cloudflarestorage.com"}
    turn = propose(seen(), stores, shipped(), Reader(ZONE, "account_1"))
    return folded(turn.text(), width)


@cache
def forecast_once() -> Forecast:
    course = Crew(seen(), shipped(), Assumptions()).course()
    found = forecast(course) if course else None
    assert found is not None
    return found


def plan(width: int, ascii_only: bool) -> str:
    title, notes = "Run sudoku_rotation: step 11,750 of 50,000.", ["account_2: zone unknown, UTC assumed."]
    return draw_plan(forecast_once(), title, ZONE, notes, Look(ascii_only, width))


STOP = "`python rotate_accounts.py stop --run sudoku_rotation`"
FINDINGS = (
    Finding("machine", True, "colab, 10 h 55 min left of its known limit, device cuda (Tesla T4)"),
    Finding("machine", False, "any value of WANDB_DISABLED, even false, turns W&B off", "Unset it if you want it."),
    Finding("clock", False, f"this machine's clock is 7 min ahead of the store's. {ADVICE}", ADVICE),
    Finding("lease", False, "the lease of run sudoku_rotation is held by account_2", f"Wait, or ask it: {STOP}."),
)


def doctor(width: int, ascii_only: bool) -> str:
    return Examination(list(FINDINGS)).text(width)


def errors() -> Iterator[str]:
    """One of most exit codes, each as it is told."""
    state = busy().state
    assert state is not None and state.holder is not None
    kinds: tuple[Exception, ...] = (
        HeldBy(state, Held(state.holder, 30.0, 150.0, False)),
        StoreError("s3://our-bucket/relay: no answer within 60 s (connect timeout)"),
        Denied("s3://our-bucket/relay: 403 AccessDenied"),
        ValueError("list index out of range"),
        BadConfig(
            f"Run sudoku_rotation still trains. End it with {STOP[:-1]} --config /mnt/shared/config.yaml` first."
        ),
    )
    for error in kinds:
        code, text = explain(error)
        yield f"{text} [{code}]"


DRAWN: dict[str, Drawn] = {
    "status": lambda width, ascii_only: folded(f"{status_line(busy())}\n{status_line(seen())}", width),
    "report": lambda width, ascii_only: draw(busy(), MACHINE, ascii_only, width),
    "sessions": lambda width, ascii_only: sessions_text(LINKS, "", width, not ascii_only),
    "accounts": accounts,
    "next": next_turn,
    "plan": plan,
    "doctor": doctor,
    "errors": lambda width, ascii_only: "\n\n".join(folded(text, width) for text in errors()),
}


def variants(draw_one: Drawn) -> str:
    """Every width in both codings, in one text."""
    parts = []
    for width in WIDTHS:
        for ascii_only in (False, True):
            with reading_in(ZONE):
                text = draw_one(width, ascii_only)
            coding = "ASCII" if ascii_only else "UTF-8"
            parts += [f"== {width} columns, {coding} ==", in_ascii_lines(text, ascii_only), ""]
    return "\n".join(parts).rstrip("\n")


def in_ascii_lines(text: str, ascii_only: bool) -> str:
    """As a terminal without UTF-8 gets it."""
    return "\n".join(in_ascii(line) for line in text.split("\n")) if ascii_only else text


def progress() -> str:
    """All variants of a session's progress, with color and without."""
    colored = [f"== {w} columns, UTF-8, in color ==\n{golden_progress.moving(w, False, True)}" for w in WIDTHS]
    return "\n\n".join(
        [variants(golden_progress.moving), *colored, f"== where nothing moves ==\n{golden_progress.plain()}"]
    )


def cases() -> Iterator[tuple[str, Callable[[], str]]]:
    """By the name of the file."""
    yield "terminal_progress", progress
    for name, draw_one in DRAWN.items():
        yield f"terminal_{name}", partial(variants, draw_one)
