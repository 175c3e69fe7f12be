"""Proposes who trains next, and writes the message to send to them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from relay.app.messages.accounts import why_text
from relay.app.messages.advice import command, session
from relay.app.messages.invitation import notebook_line
from relay.app.messages.resting import rest_of
from relay.app.messages.shared import untested_line
from relay.app.messages.webhook import LONGEST
from relay.app.messages.wording import counted, duration, iso, printable
from relay.app.nameless import names_of
from relay.app.redact import nameless, redact
from relay.core.settings.origins import variable
from relay.people.owners import is_unnamed
from relay.people.participants import Crew
from relay.people.plan import finish_range
from relay.people.policy import NOTEBOOKS, Providers
from relay.people.status import AccountRow, RunStatus
from relay.people.turns import Barred, Candidate, Order, order
from relay.people.zones import wall

PROJECT = variable("project")
"""The one variable of a command that a redacted text keeps."""
RUNNERS = 10
"""How many further accounts the text lists, one a line."""
_CALLS = re.compile(r"[<>@&`*_~|\[\]()]")


@dataclass(frozen=True)
class Reader:
    """The reader of the message: time zone, account if known, and whether names may be shown."""

    zone: str = "UTC"
    account: str | None = None
    redacted: bool = False
    chat: bool = False
    """Whether the text goes to a chat, where characters in a label could mention people or make links."""

    def name(self, row: AccountRow) -> str:
        """The account's label, or its id."""
        return ("" if self.redacted else self.harmless(row.label)) or row.id

    def person(self, row: AccountRow) -> str:
        """The account's owner; "" if the name is unknown or may not be shown."""
        return "" if self.redacted or is_unnamed(row.owner) else self.harmless(row.owner)

    def harmless(self, text: str) -> str:
        """A participant's text, safe to show here."""
        line = printable(text)
        return _CALLS.sub(" ", line).strip() if self.chat else line

    def zone_of(self, row: AccountRow) -> str | None:
        """Time zone for that person. A redacted text uses the reader's, because a zone tells where a person lives."""
        return self.zone if self.redacted else row.zone


@dataclass(frozen=True)
class Turn:
    """A proposal."""

    account: AccountRow | None
    """None if no account can begin now."""
    why: str
    command: str
    message: str
    others: tuple[Candidate, ...] = ()
    """The other accounts, in order."""
    first: Candidate | None = None
    """The first account that will be able to begin, if none can now."""
    free_until: float = math.inf
    reader: Reader = Reader()

    @property
    def you(self) -> bool | None:
        """Whether the proposed account is the reader's; None if their account is unknown."""
        return None if self.reader.account is None else bool(self.account and self.account.id == self.reader.account)

    def document(self) -> dict[str, Any]:
        """relay.next/2, which has every key of relay.next/1."""
        row = self.account
        return {
            "schema": "relay.next/2",
            "account": row.id if row else None,
            "label": self.reader.name(row) if row else None,
            "why": self.why,
            "command": self.command or None,
            "message": self.message,
            "free_until": iso(self.free_until) if self.free_until < math.inf else None,
            "left_s": round(row.quota.left_s) if row and row.quota else None,
            "resets_at": iso(row.quota.resets_at) if row and row.quota else None,
            "first": self._candidate(self.first) if self.first else None,
            "others": [self._candidate(one) for one in self.others],
            "you": self.you,
        }

    def _candidate(self, one: Candidate) -> dict[str, Any]:
        return {
            "account": one.row.id,
            "label": self.reader.name(one.row),
            "can_at": iso(one.at),
            "why_not": bar_text(one, self.reader.zone) or None,
        }

    def text(self) -> str:
        """Plain text: the proposal, the message to send, then the other accounts."""
        lines = [f"Next: {self.account.id} ({self.why})"] if self.account else []
        if self.you is not None:
            lines.append(f"That is {'you' if self.you else 'not you'}, {self.reader.account}.")
        lines.append(self.message)
        lines += [f"  {one.row.id}: {_runner(one, self.reader.zone)}" for one in self.others[:RUNNERS]]
        if len(self.others) > RUNNERS:
            lines.append(f"  and {len(self.others) - RUNNERS:,} more (--json lists all)")
        return "\n".join(lines)


def propose(
    view: RunStatus, stores: Mapping[str, str], providers: Providers, reader: Reader | None = None, ends: bool = True
) -> Turn:
    """The first account that can begin now.

    `stores`: project and addresses by variable, which other participants must set. `ends`: whether to forecast the
    run's end.
    """
    reader = reader or Reader()
    stores = {name: value for name, value in stores.items() if name == PROJECT} if reader.redacted else stores
    if rest := rest_of(view.state):
        return Turn(None, f"the run is {view.phase}", "", f"Run {view.run}: {rest}", reader=reader)
    if view.phase == "halted":
        why = (view.state and view.state.halted) or ""
        why = str(nameless(why, names_of(view.accounts))) if reader.redacted else why
        text = f"Run {view.run} is halted: {reader.harmless(why)}"
        return Turn(None, "the run is halted", "", text, reader=reader)
    if view.step >= view.target > 0:
        lacks = untested_line(view.untested)
        text = f"Run {view.run} has reached its target of {counted(view.target, 'step')}. {lacks}".rstrip()
        return Turn(None, "the target is reached", "", text, reader=reader)
    crew = Crew(view, providers)
    found = order(crew)
    if not found.now:
        return _none_now(view, found, stores, reader)
    chosen, *others = found.all
    words = command_for(chosen.row.id, view.run, stores, view.by_script)
    return Turn(
        account=chosen.row,
        why=_why(chosen, found.now),
        command=words,
        message=_message(view, chosen, _how(view, chosen, words, stores), reader, crew if ends else None),
        others=tuple(others),
        free_until=chosen.free_until,
        reader=reader,
    )


def _none_now(view: RunStatus, found: Order, stores: Mapping[str, str], reader: Reader) -> Turn:
    """The first account that can begin later, and when; or the command that adds an account."""
    if not found.all:
        why = "no account is registered"
        return Turn(None, why, "", f"{why.capitalize()}: {command('register account_1 LABEL')}", reader=reader)
    first = next(iter(found.later), None)
    if first is None or first.at is None:
        why = "no account is ready"
        if view.training and view.holder:
            text = f"{view.holder.account} is training now. No other account can take over."
        else:
            text = "No account can begin now, and none becomes ready by itself."
        text = f"{text} To add one: {command('register ID LABEL')}"
        return Turn(None, why, "", text, others=found.never, reader=reader)
    why = f"no account can begin now; {first.row.id} is first, {wall(first.at, reader.zone)}"
    hello = _greeting(view, first, reader, when=True)
    words = command_for(first.row.id, view.run, stores, view.by_script)
    bar = bar_text(first, reader.zone)
    text = f"{why[0].upper()}{why[1:]} ({bar}). To send them:\n{hello} {_how(view, first, words, stores)}"
    return Turn(None, why, "", text, others=found.later[1:] + found.never, first=first, reader=reader)


def _why(chosen: Candidate, now: Sequence[Candidate]) -> str:
    """The reason for the choice, in a form that the other participants can check."""
    row, second = chosen.row, now[1] if len(now) > 1 else None
    given = f"{duration(row.seconds)} given so far"
    if second is None:
        return f"{given}, the only account that can begin now"
    if chosen.rank.saves and not second.rank.saves:
        return f"{duration(chosen.saved_s)} of its quota would expire within a day; {given}"
    if chosen.rank.hours < second.rank.hours:
        return f"{given}, the least of {len(now):,} accounts that can begin now"
    if chosen.rank.speed > second.rank.speed:
        machine = "the fastest machine measured" if second.speed else "a machine of known speed"
        return f"{given}, within an hour of the others, and on {machine}"
    if chosen.rank.seconds < second.rank.seconds:
        return f"{given}, the least of {len(now):,} accounts that can begin now"
    return f"{given}, as much as the others; fewest sessions, or first by id"


def _runner(one: Candidate, zone: str) -> str:
    return bar_text(one, zone) or f"can begin now; {duration(one.row.seconds)} given so far"


def bar_text(one: Candidate, zone: str) -> str:
    """Why the account cannot begin now, with times in `zone`; empty if it can."""
    bar, row = one.why_not, one.row
    if bar is None:
        return ""
    until = f" until {wall(bar.until, zone)}" if bar.until is not None else ""
    match bar.by:
        case Barred.TRAINING:
            return f"training{until or ' now'}"
        case Barred.UNCONFIRMED:
            return "unconfirmed: its owner has not confirmed to be a co-author of this run"
        case Barred.STATE:
            why = "" if until else why_text(row)
            return f"{row.state}{until}{f': {why}' if why else ''}"
        case Barred.HOURS:
            return f"{duration(row.quota.left_s if row.quota else 0.0)} left{until}"
        case Barred.ASLEEP:
            return f"asleep{until}"
        case Barred.SHORT:
            return "its available hours are shorter than a session"


def command_for(account: str, run: str, stores: Mapping[str, str], by_script: bool = False) -> str:
    """The command to type in the project's folder. Secrets in an address are masked."""
    where = {name: redact(value) for name, value in stores.items()}
    return session({"ACCOUNT_ID": account, "RUN_NAME": run, **where}, by_script)


def _how(view: RunStatus, one: Candidate, words: str, stores: Mapping[str, str]) -> str:
    """The line to type: `words` in a shell, another one in the notebook of an account at such a provider."""
    if one.row.provider not in NOTEBOOKS:
        return f"In the project's folder:\n  {words}"
    line = notebook_line(view.run, stores)
    return f"Run cell 3 of your notebook again. In a new notebook the last line of cell 2 is:\n  {line}"


def _message(view: RunStatus, chosen: Candidate, how: str, reader: Reader, crew: Crew | None) -> str:
    """Plain text to send; times are in the person's own zone."""
    parts = [_greeting(view, chosen, reader)]
    if view.training and view.holder:
        parts.append(f"{view.holder.account} is training now; start when that session ends.")
    zone, quota = reader.zone_of(chosen.row), chosen.row.quota
    if chosen.free_until < view.now + 7 * 86400:
        parts.append(f"Your available time ends {wall(chosen.free_until, zone)}.")
    if quota is not None:
        until = f" until {wall(quota.resets_at, zone)}" if quota.resets_at else ""
        parts.append(f"You have {duration(quota.left_s)} of quota left{until} ({quota.source}).")
    if crew and (end := _end(crew, zone)):
        parts.append(end)
    return f"{' '.join(parts)} {how}"


def _end(crew: Crew, zone: str | None) -> str:
    """Forecast of the run's end, with the gaps between sessions; "" if there is no forecast."""
    course = crew.course()
    ends = finish_range(course)
    if ends is None or ends.p50 == math.inf:
        return ""
    assumed = " (assumed)" if crew.assumes_gaps else ""
    between = f" with {duration(median(course.gaps))}{assumed} between sessions" if ends.sessions > 1 else ""
    how = f"after {counted(ends.sessions, 'more session')}{between}"
    return f"Forecast: the run ends around {wall(ends.p50, zone)}, {how}."


def _greeting(view: RunStatus, one: Candidate, reader: Reader, when: bool = False) -> str:
    percent = 100.0 * view.step / view.target if view.target else 0.0
    turn = f"your turn comes {wall(one.at or view.now, reader.zone_of(one.row))}" if when else "it is your turn"
    who, label = reader.person(one.row), reader.name(one.row)
    return (
        f"Hello {who or label}: run {view.run} is at step {view.step:,} of {view.target:,} ({percent:.1f}%) and "
        f"{turn}{f' with {label}' if who else ''}."
    )


def announcement(view: RunStatus, turn: Turn, account: str) -> dict[str, Any]:
    """The chat message after a session of `account`: Slack reads `text`, Discord `content`."""
    text = f"{account} has handed off run {view.run}.\n{turn.message}"[:LONGEST]
    return {
        "text": text,
        "content": text,
        "allowed_mentions": {"parse": []},
        "run": view.run,
        "step": view.step,
        "target": view.target,
        "next": turn.account.id if turn.account else None,
        "state": view.phase,
    }
