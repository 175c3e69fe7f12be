"""Builds a plan's input from a view of a run: accounts, speeds, session lengths, hours. Reads no store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from relay.people.accountstate import ENDLESS
from relay.people.availability import Unsure, Windows, open_part, read
from relay.people.history import PastSessions, history, speeds
from relay.people.periods import NEVER, WEEK_S, Periods, Reset
from relay.people.policy import Provider, Providers
from relay.people.status import AccountRow, RunStatus
from relay.people.team import Member, OpenSession, Scenario, Speeds

GAP_S = 600.0
ENOUGH_GAPS = 3
STARTUP_S = 120.0
SESSION_S = 3600.0
ENOUGH_SESSIONS = 3
"""With this many sessions, the longest is a better estimate than a limit that no session reaches."""


class LeftOutReason(StrEnum):
    """Why an account cannot be planned."""

    UNCONFIRMED = "unconfirmed"
    BY_HAND = "by hand"
    """Its state ends by hand only."""
    UNMEASURED = "unmeasured"
    """No session of its own was measured, and none on its declared GPU."""


@dataclass(frozen=True)
class LeftOut:
    """An account that cannot be planned, and why."""

    row: AccountRow
    why: LeftOutReason


class Assumed(StrEnum):
    """Assumptions of a plan. The last five apply to the accounts that the note names."""

    GAPS = "gaps"
    """GAP_S between two sessions, because too few were measured."""
    STARTUP = "startup"
    """STARTUP_S from machine start to the lease."""
    FAILURES = "failures"
    """One session in twenty dies, because none has ended yet."""
    SPEED = "speed"
    """One session measured: how speeds differ is unknown."""
    STARTUP_ONLY = "startup only"
    """No session is longer than the start-up."""
    HOURS = "hours"
    """Weekly hours are unknown: planned around the clock."""
    RESET = "reset"
    """The reset is unknown: the week begins now."""
    LENGTH = "length"
    """SESSION_S, because the length of its sessions is unknown."""


@dataclass(frozen=True)
class PlanNote:
    """An assumption that the reader of a plan should know, and the accounts it concerns."""

    about: Assumed | Unsure
    accounts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Assumptions:
    """Values that the person who plans assumes or sets."""

    steps_per_hour: float | None = None
    startup_s: float | None = None
    failure_rate: float | None = None
    every_steps: int = 500
    every_s: float = 600.0


@dataclass
class Crew:
    """The accounts of a view as members; equal windows, resets and speeds are one object each."""

    view: RunStatus
    providers: Providers
    wish: Assumptions = field(default_factory=Assumptions)
    members: list[Member] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    notes: list[PlanNote] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    """Accounts whose speed is the assumed one."""

    def __post_init__(self) -> None:
        self.past: PastSessions = history(self.view.state.links if self.view.state else (), self.view.now)
        self._longest = self.past.longest
        self._windows: dict[tuple[str | None, str | None], tuple[Windows, Unsure | None]] = {}
        self._periods: dict[object, Periods] = {}
        self._speeds: dict[str, Speeds | None] = {}
        self._records: dict[str, Provider] = {}
        for row in self.view.accounts:
            why = self._add(row)
            if why:
                self.left_out.append(LeftOut(row, why))
        self._sum_up()

    def course(self) -> Scenario:
        """The run as planning sees it."""
        view, wish, gaps = self.view, self.wish, self._gaps()
        if self.assumes_gaps:
            self.notes.append(PlanNote(Assumed.GAPS))
            gaps = (GAP_S,)
        if wish.startup_s is None:
            self.notes.append(PlanNote(Assumed.STARTUP))
        if wish.failure_rate is None and self.past.died + self.past.lived == 0:
            self.notes.append(PlanNote(Assumed.FAILURES))
        return Scenario(
            now=view.now,
            step=view.step,
            target=view.target,
            members=tuple(self.members),
            gaps=gaps,
            startup_s=self.startup_s,
            interval_s=self._interval(),
            died=self.past.died,
            lived=self.past.lived,
            failure_rate=wish.failure_rate,
            ttl_s=view.holder.ttl_s if view.holder else 180.0,
            open=self._open(),
        )

    @property
    def assumes_gaps(self) -> bool:
        """Whether too few gaps were measured."""
        return len(self.past.gaps) < ENOUGH_GAPS

    @property
    def startup_s(self) -> float:
        """As set, otherwise assumed: ledgers do not record it."""
        return STARTUP_S if self.wish.startup_s is None else self.wish.startup_s

    def speed_of(self, row: AccountRow) -> Speeds | None:
        """From its own sessions, otherwise from other accounts on its declared GPU; None if not measured."""
        own = f"account {row.id}"
        if own not in self._speeds:
            self._speeds[own] = speeds(self.past.of_account(row.id))
        kind = f"gpu {row.gpu}"
        if self._speeds[own] is None and row.gpu and kind not in self._speeds:
            self._speeds[kind] = speeds(self.past.on_gpu(row.gpu))
        return self._speeds[own] or (self._speeds.get(kind) if row.gpu else None)

    def windows_of(self, row: AccountRow) -> tuple[Windows, Unsure | None]:
        """When its person is available, and doubts about it."""
        key = row.availability, row.zone
        if key not in self._windows:
            self._windows[key] = read(*key)
        return self._windows[key]

    def record_of(self, row: AccountRow) -> Provider:
        """Its provider's record."""
        if row.provider not in self._records:
            self._records[row.provider] = self.providers.named(row.provider)
        return self._records[row.provider]

    def resets_of(self, row: AccountRow) -> Periods:
        """By its rule, otherwise every seven days from the next known reset or from now."""
        rule, known = self._rule_of(row), row.quota.resets_at if row.quota else None
        if row.weekly_hours is None and row.quota is None:
            return NEVER
        first = self.view.now + WEEK_S if known is None else known
        if rule and (known is None or rule.week(self.view.now)[1] == known):
            return self._periods.setdefault(rule, Periods(rule, first))
        return self._periods.setdefault(first, Periods(None, first))

    def session_s(self, row: AccountRow) -> float:
        """Seconds of its longest session: its limit, or less if its own sessions were shorter; an hour if unknown."""
        count, longest = self._longest.get(row.id, (0, 0.0))
        limit = row.session_minutes * 60 if row.session_minutes else None
        if longest and (limit is None or count >= ENOUGH_SESSIONS):
            longest += self.startup_s
            return longest if limit is None else min(limit, longest)
        return limit or SESSION_S

    def _add(self, row: AccountRow) -> LeftOutReason | None:
        """Add it as a member. Returns why it cannot be planned, None if it was added."""
        if not row.confirmed:
            return LeftOutReason.UNCONFIRMED
        if row.state in ENDLESS or (row.state not in ("ready", "active", "cooling") and row.until is None):
            return LeftOutReason.BY_HAND
        found = self.speed_of(row)
        if found is None and self.wish.steps_per_hour is None:
            return LeftOutReason.UNMEASURED
        if found is None and self.wish.steps_per_hour is not None:
            self.assumed.append(row.id)
            found = self._speeds.setdefault("assumed", Speeds((self.wish.steps_per_hour / 3600,), 1))
        if found:
            self.members.append(self._member(row, found))
        return None

    def _member(self, row: AccountRow, found: Speeds) -> Member:
        weekly = row.quota.of_s if row.quota and row.quota.of_s else None
        weekly = row.weekly_hours * 3600 if row.weekly_hours else weekly
        gpu = self.past.gpu_of(row.id) or row.gpu
        return Member(
            id=row.id,
            speeds=found,
            session_s=self.session_s(row),
            weekly_s=weekly if weekly or not row.quota else row.quota.left_s,
            left_s=row.quota.left_s if row.quota else None,
            resets=self.resets_of(row),
            windows=self.windows_of(row)[0],
            given_s=row.seconds,
            sessions=row.sessions,
            fills=self.record_of(row).may_fill_hours,
            not_before=self._not_before(row),
            kind=f"{row.provider}, {gpu}" if gpu else row.provider,
        )

    def _not_before(self, row: AccountRow) -> float:
        """Assumes that an account which trains another run does so for one session."""
        holder = self.view.holder
        if row.state == "active" and not (self.view.training and holder and holder.account == row.id):
            return self.view.now + self.session_s(row)
        return row.until or 0.0 if row.state != "ready" else 0.0

    def _open(self) -> OpenSession | None:
        """The session that trains now, until its latest end or for one session's length."""
        holder = self.view.holder
        if not self.view.training or holder is None:
            return None
        length = next((m.session_s for m in self.members if m.id == holder.account), SESSION_S)
        return OpenSession(holder.account, holder.latest_end or max(self.view.now, holder.since + length))

    def _gaps(self) -> tuple[float, ...]:
        """The part of each measured gap in which someone was available: the calendar already counts sleep."""
        people = list({id(member.windows): member.windows for member in self.members}.values())
        return tuple(open_part(gap, people) for gap in self.past.gaps)

    def _interval(self) -> float:
        """Seconds between commits at the usual speed; a slow upload is waited for."""
        metrics = self.view.state.metrics if self.view.state else {}
        upload = min(max(0.0, metrics.get("upload_s", 0.0)), 86400.0)
        usual = sorted(member.speeds.usual for member in self.members)
        by_steps = self.wish.every_steps / usual[len(usual) // 2] if usual else self.wish.every_s
        return max(1.0, min(self.wish.every_s, by_steps), upload)

    def _sum_up(self) -> None:
        """Note the assumptions that the reader must know."""
        rows = {row.id: row for row in self.view.accounts}
        planned = [rows[member.id] for member in self.members]
        unsure: dict[Unsure, list[str]] = {}
        for row in planned:
            if kind := self.windows_of(row)[1]:
                unsure.setdefault(kind, []).append(row.id)
        resets = (row for row in planned if self.resets_of(row) is not NEVER and not self._knows_reset(row))
        lengths = (row for row in planned if row.session_minutes is None and row.id not in self._longest)
        self._note(
            Assumed.SPEED, (m.id for m in self.members if len(m.speeds.samples) == 1 and m.id not in self.assumed)
        )
        self._note(Assumed.STARTUP_ONLY, (m.id for m in self.members if m.session_s <= self.startup_s))
        for kind, accounts in unsure.items():
            self._note(kind, accounts)
        self._note(Assumed.HOURS, (m.id for m in self.members if m.weekly_s is None and m.windows.always))
        self._note(Assumed.RESET, (row.id for row in resets))
        self._note(Assumed.LENGTH, (row.id for row in lengths))

    def _note(self, about: Assumed | Unsure, accounts: Iterable[str]) -> None:
        """Add a note, unless it concerns no account."""
        if found := tuple(accounts):
            self.notes.append(PlanNote(about, found))

    def _knows_reset(self, row: AccountRow) -> bool:
        return bool(self._rule_of(row) or (row.quota and row.quota.resets_at))

    def _rule_of(self, row: AccountRow) -> Reset | None:
        return row.reset or self.record_of(row).reset
