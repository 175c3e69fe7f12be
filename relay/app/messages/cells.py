"""The fixes of errors in a notebook: cells, their fields and checkboxes in place of options and variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relay.app.messages.admitting import one_team, terms
from relay.app.messages.advice import command
from relay.core.lease.blockers import HeldBy, TrainsAnother
from relay.core.ledger.target import LowerTarget, TargetBehind
from relay.core.runs.opening import PassingDisk, RunOfAnotherStore, SimilarName
from relay.core.runs.sources import DataDiffers, DataElsewhere
from relay.people.accounts import IdTaken
from relay.people.admission import AnotherMachine, AnotherOwner, NotInTeam, Unconfirmed
from relay.people.policy import OneTooMany
from relay.people.zones import local

OWN_NAME = "Type your own name in YOUR_NAME of cell 2 and run the cell again: it registers your account."
AGAIN = "Then run cells 2 and 3 again."


def _unconfirmed(error: Unconfirmed) -> str:
    return (
        f"{error} If you own this account and are a co-author of the run, tick I_CO_AUTHOR_THIS_RUN in cell 2. {AGAIN} "
        f"Otherwise train with another provider's notebook. {terms(error.provider)}."
    )


def _not_in_team(error: NotInTeam) -> str:
    slug = error.competition
    return (
        f"{error} {one_team(slug)} If that is so, run this in a new cell: "
        f'notebook.relay("register {error.account} LABEL --competition {slug}")'
    )


def _data_elsewhere(error: DataElsewhere | DataDiffers) -> str:
    prepare = command("prepare", error.run, *(f"{key}=PATH" for key in error.missing))
    return (
        f"{error} Get it from a participant, upload it to this machine, and name its path once in a new cell: "
        f"`{prepare}`. Then run cell 3 again."
    )


def _held_by(error: HeldBy) -> str:
    return (
        f"Run {error.project}/{error.run} is being trained by {error.account} (step {error.step:,}, last heartbeat "
        f"{error.silent_s:.0f} s ago). That session began {local(error.since)}. If its heartbeats stop, another can "
        f"take over in {error.left_s:.0f} s at the earliest."
    )


def _trains_another(error: TrainsAnother) -> str:
    return (
        f"Account {error.account} already trains run {error.run} (since {local(error.since)}). An account trains one "
        f"run at a time. Wait for that session, then run cell 3 again."
    )


def _one_too_many(error: OneTooMany) -> str:
    return (
        f"{error} Retired, renamed and forgotten accounts count too. If you are another person of that name, type a "
        f'longer name in YOUR_NAME of cell 2, e.g. "{error.owner} S.".'
    )


CELLS: dict[type[BaseException], Callable[[Any], str]] = {
    AnotherMachine: lambda error: (
        f"{error} A session here uses the hours of the {error.machine.title} account that is logged in. {OWN_NAME}"
    ),
    AnotherOwner: lambda error: f"{error} {OWN_NAME}",
    Unconfirmed: _unconfirmed,
    NotInTeam: _not_in_team,
    DataElsewhere: _data_elsewhere,
    DataDiffers: _data_elsewhere,
    HeldBy: _held_by,
    TrainsAnother: _trains_another,
    OneTooMany: _one_too_many,
    IdTaken: lambda error: (
        f'{error} If that is not you, type a longer name in YOUR_NAME of cell 2, e.g. "{error.owner} S.".'
    ),
    PassingDisk: lambda error: (
        f"{error} Set STORE in cell 2, or the secret RELAY_STORE, to permanent storage. If the run may be lost, tick "
        f"TRIAL. {AGAIN}"
    ),
    RunOfAnotherStore: lambda error: f"{error} Check STORE in cell 2 and the secret RELAY_STORE. {AGAIN}",
    SimilarName: lambda error: (
        f"{error} Correct the name in the last line of cell 2 (run={error.other!r}), or begin a new run there once: "
        f'notebook.relay("init --run {error.run}")'
    ),
    LowerTarget: lambda error: (
        f"{error} Nothing was changed. To end only your session there, call notebook.train(until_step={error.asked}) "
        f"without target_steps in cell 3."
    ),
    TargetBehind: lambda error: f"{error} The lowest new target is {error.step:,}. Nothing was changed.",
}
"""By error type, the function that returns the whole paragraph; other errors use the table of relay/app/messages."""
