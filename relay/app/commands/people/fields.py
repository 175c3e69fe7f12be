"""The fields of an account as options of the command line; knows no account."""

from __future__ import annotations

from typing import Annotated

import typer

Details = dict[str, str | float | None]

AccountId = Annotated[str, typer.Argument(metavar="ID", help="Id of the account.")]
Owner = Annotated[str | None, typer.Option("--owner", help="The person whose account it is.", show_default=False)]
AtProvider = Annotated[str | None, typer.Option("--provider", help="colab, kaggle, local …", show_default=False)]
Tier = Annotated[str | None, typer.Option("--tier", help="free, pro …", show_default=False)]
Gpu = Annotated[str | None, typer.Option("--gpu", help="e.g. T4.", show_default=False)]
Minutes = Annotated[
    float | None,
    typer.Option("--session-minutes", help="Longest session, where it is not the provider's.", show_default=False),
]
Hours = Annotated[
    float | None,
    typer.Option("--weekly-hours", help="Hours a week, where it is not the provider's.", show_default=False),
]
WeekReset = Annotated[
    str | None,
    typer.Option("--reset", metavar="WHEN", help="When its week begins, e.g. 'sat 00:00 UTC'.", show_default=False),
]
Zone = Annotated[
    str | None, typer.Option("--zone", help="Time zone of the person, e.g. Europe/Berlin.", show_default=False)
]
Availability = Annotated[
    str | None,
    typer.Option(
        "--availability", help="When the person can, in that zone: 'mon-fri 18:00-23:00'.", show_default=False
    ),
]
Contact = Annotated[
    str | None,
    typer.Option("--contact", help="How to reach the person; `accounts forget` removes it.", show_default=False),
]
Until = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="When that ends by itself, e.g. 2026-12-05.", show_default=False),
]


def details(
    tier: str | None,
    gpu: str | None,
    session_minutes: float | None,
    weekly_hours: float | None,
    reset: str | None,
    zone: str | None,
    availability: str | None,
    contact: str | None,
) -> Details:
    """By the names of the account's fields; None where nothing was given."""
    return {
        "tier": tier,
        "gpu": gpu,
        "session_minutes": session_minutes,
        "weekly_hours": weekly_hours,
        "reset": reset,
        "zone": zone,
        "availability": availability,
        "contact": contact,
    }
