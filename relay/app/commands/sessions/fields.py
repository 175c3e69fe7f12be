"""What may be asked of a session, as options of the command line; knows no session."""

from __future__ import annotations

from typing import Annotated

import typer

Target = Annotated[int | None, typer.Option(help="Train to this step.", show_default=False)]
Budget = Annotated[float | None, typer.Option(help="Minutes from process start to process exit.", show_default=False)]
Every = Annotated[int | None, typer.Option(help="Steps between commits.", show_default=False)]
Wait = Annotated[float, typer.Option(metavar="MINUTES", help="Wait for a lease that is held.")]
Attach = Annotated[
    bool, typer.Option("--attach", help="Look on at this machine's own earlier session, if it still runs.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Have that session commit and end, then go on here.")]
New = Annotated[bool, typer.Option("--new", help="A new run is meant, however its name looks.")]
Cpu = Annotated[bool, typer.Option("--cpu", help="The CPU is meant, also for a task that wants a GPU.")]
Coauthor = Annotated[
    bool, typer.Option("--coauthor", help="I, whose account it is, co-author this run (also RELAY_COAUTHOR=1).")
]
Track = Annotated[
    list[str] | None,
    typer.Option(metavar="TRACKER", help="Also feed wandb, tensorboard or trackio.", show_default=False),
]
ProgressSeconds = Annotated[float, typer.Option(help="Seconds between plain progress lines.")]
Redact = Annotated[bool, typer.Option("--redact", help="RELAY_WEBHOOK is told ids in place of labels.")]
