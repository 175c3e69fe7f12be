"""`prepare` and `export`: prepare data for a session, and write a checkpoint's weights as files for other programs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, say
from relay.app.commands.joining import join, joined_if_there
from relay.app.commands.weights.subject import RawOption, StepOption, bring
from relay.app.terminal.transfers import downloading
from relay.app.views.modelcard import CARD, Told, card
from relay.core.checkpoint.restore import choose, role
from relay.core.errors import BadConfig, BadData, UsageError
from relay.core.folders import scratch_folder
from relay.core.ledger.state import Checkpoint, RunState
from relay.core.runs.opening import ABSENT, CONTENT, Pair, RunHandle, difference
from relay.core.runs.ownloop import refuse_own_loop
from relay.core.wholefile import write_whole


@subcommand()
def prepare(
    call: Call,
    folder: Annotated[
        Path | None, typer.Option(help="Also write it as a dataset folder of the reference.", show_default=False)
    ] = None,
    num_aug: Annotated[int, typer.Option(min=0, help="Variants of each training row in that folder.", metavar="N")] = 0,
) -> Answer:
    """Make, read and check the data: of the run if it exists, otherwise of these settings. Needs no GPU."""
    if num_aug and folder is None:
        raise UsageError("--num-aug writes variants into a dataset folder. Give --folder, too.")
    app, resolved = call.app, call.settle(store=False, joins=True)
    joined = joined_if_there(app, resolved)
    if joined and joined.another_task:
        joined = None  # data of another task is asked for, whatever the run trains
    if joined:
        joined.check()
        resolved = joined.resolved
    data = resolved.path(resolved.settings.data_dir)
    target = app.cwd / folder if folder else None
    with downloading(say, app.runtime) as fetching:
        lines = list(app.plugin.prepare(resolved.workload, data, target, num_aug, fetching))
    if joined and joined.content:
        joined.check_content(app.plugin.build(resolved.workload, "cpu", data).config())
        joined.keep()
        lines.append(f"This is the data of run {joined.run}.")
    return Answer({"schema": "relay.prepare/1", "ok": True, "lines": lines}, "\n".join(lines))


class Form(Enum):
    """Formats that `export` writes."""

    safetensors = "safetensors"
    reference = "reference"
    plain = "reference-plain"
    hub = "hub"


@subcommand()
def export(
    call: Call,
    out: Annotated[Path | None, typer.Option(help="Folder; default ./export.", show_default=False)] = None,
    step: StepOption = None,
    raw: RawOption = False,
    form: Annotated[
        Form,
        typer.Option(
            "--format",
            metavar="FORM",
            help="safetensors; hub: the same with a model card, ready for the Hugging Face hub; or the reference's own "
            "file step_N: reference, reference-plain.",
        ),
    ] = Form.safetensors,
) -> Answer:
    """Write a checkpoint's weights as step_N/ with safetensors under the reference's names, or as its own step_N."""
    app, (opened, stores) = call.app, call.require()
    if form is Form.hub:
        refuse_own_loop(opened.ledger.genesis().config, "write its model card")
    chosen = choose(opened.view.state, step)
    place = app.cwd / (out or Path("export")) / f"step_{chosen.step}"
    with scratch_folder() as scratch:
        folder, manifest = bring(app, chosen, opened, stores, scratch)
        pinned, hub = opened.ledger.genesis().config, form is Form.hub
        try:
            files = list(app.plugin.export(folder, place, pinned, raw, "safetensors" if hub else form.value))
            files += write_companions(call, opened, stores, place)
            if hub:
                files.append(str(write_card(app, opened.view.state, chosen, pinned, raw, place, manifest.metrics)))
        except OSError as error:
            why = f"Cannot write {place}: {error.strerror or error}"
            raise BadConfig(f"{why}. Choose another folder with --out.") from error
    document = {"schema": "relay.export/1", "step": chosen.step, "files": files, "exact": False}
    note = "Weights only: training cannot go on exactly from these files; `fork` does that."
    return Answer(document, "\n".join([*files, note]))


def write_companions(call: Call, opened: RunHandle, stores: Pair, place: Path) -> list[str]:
    """Write the files that exported weights need next to them; print why if the run's data is not on this machine."""
    app, data, written = call.app, call.resolved.path(call.settings.data_dir), list[str]()

    def config() -> BaseModel:
        return join(app, call.settle(joins=True), opened, stores.ledger).resolved.workload

    for name, made in app.plugin.companions(opened.ledger.genesis().config, config, data).items():
        path = (place if place.is_dir() else place.parent) / name
        try:
            content = made()
            if path.is_file() and path.read_bytes() != content:
                raise BadConfig(f"{path} belongs to other weights. Choose another folder with --out.")
        except (BadConfig, BadData) as error:
            say(f"WARNING: {name}, which these weights need next to them, was not written. {error}")
            continue
        write_whole(path, content)
        written.append(str(path))
    return written


def write_card(
    app: App,
    state: RunState,
    chosen: Checkpoint,
    pinned: dict[str, Any],
    raw: bool,
    place: Path,
    metrics: Mapping[str, float],
) -> Path:
    """Write the model card of an exported folder."""
    preset = app.plugin.preset(str(pinned.get("task"))).model_dump(mode="json")
    published = app.plugin.published
    network = [c for c in difference(preset, pinned) if c.key.startswith(published.network) and c.mine != ABSENT]
    beside = [(c.key, app.plugin.carried[c.key] if c.mine.startswith(CONTENT) else c.mine) for c in network]
    overrides = [f"task={pinned.get('task')}", *(f"{key}={value}" for key, value in beside)]
    averaged = not raw and published.averages and bool(pinned.get("ema", True))
    told = Told(
        state,
        chosen,
        role(state, chosen),
        pinned,
        averaged,
        metrics,
        overrides,
        app.plugin.measures,
        published,
    )
    path = place / CARD
    path.write_text(card(told), encoding="utf-8")
    return path
