"""`compare`: shows runs of a store side by side; reads all runs for the dashboard's start page. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from relay.app.commands.command import Answer, Call, subcommand
from relay.app.commands.common import App, speaks_utf8
from relay.app.commands.reading import every_link, names_in
from relay.app.commands.stores import accounts, open_stores
from relay.app.dashboard.board import ABSENT, LEAST, MOST, Side, board, run_row, side_by_side
from relay.app.dashboard.history import Commits
from relay.app.messages.wording import counted
from relay.app.nameless import kind_of, public_page
from relay.app.redact import redact, without_secrets
from relay.app.terminal.cells import Column, table
from relay.app.terminal.paragraphs import terminal_width
from relay.core.errors import BadData, UsageError, store_errors
from relay.core.ledger.state import RunState
from relay.core.names import check_name
from relay.core.runs.opening import Pair, check_expected, read_identity, unknown_run
from relay.core.runs.registered import READERS, RegisteredRun, lines_of, standing
from relay.core.runs.salvage import pinned_config
from relay.core.settings.config import Resolved, flat
from relay.core.workload import Measures
from relay.people.status import RunStatus
from storage.parallel import in_parallel

if TYPE_CHECKING:
    from relay.app.commands.looking.source import Source


@dataclass
class Board:
    """All runs of a store, as the dashboard shows them. Each call reads the store; safe in several threads."""

    app: App
    resolved: Resolved[Any]
    redacted: bool

    def stores(self) -> Pair:
        """Return clients that only read; one pair for each call."""
        return open_stores(self.app, self.resolved, read_only=True)

    def runs(self) -> Mapping[str, Any]:
        """Return relay.board/1 with all runs, newest activity first. Raises StorageUnreachable (69)."""
        stores = self.stores()
        check_expected(stores.ledger, stores.expected, read_identity(stores.ledger))
        lines = lines_of(stores)
        with store_errors(stores.ledger):
            now = stores.ledger.now()
        labels = self._labels(stores) if lines else {}
        rows = in_parallel(lambda line: self._row(stores, line, now, labels), lines, READERS)
        rows.sort(key=lambda row: -(row["last"] or 0.0))
        store = redact(stores.ledger.address)
        return self.public(board("All runs of the store", store, now, rows), stores)

    def compare(self, names: Sequence[str]) -> Mapping[str, Any]:
        """Return the comparison of LEAST to MOST runs, each RUN or PROJECT/RUN. Raises UsageError (2), BadConfig."""
        stores = self.stores()
        sides, labels = self.sides(stores, names)
        return self.public(side_by_side(sides, labels), stores)

    def sides(self, stores: Pair, names: Sequence[str]) -> tuple[list[Side], Mapping[str, str]]:
        """Return the runs as they were read, and the accounts' labels. Raises as `compare`."""
        pairs = list(dict.fromkeys(self._named(name) for name in names))
        if not LEAST <= len(pairs) <= MOST:
            raise UsageError(f"Name {LEAST} to {MOST} different runs to compare; {len(pairs)} were given.")
        sides = in_parallel(lambda pair: self._side(stores, *pair), pairs, READERS)
        return sides, self._labels(stores)

    def public(self, document: Mapping[str, Any], stores: Pair) -> Mapping[str, Any]:
        """Return the document without secrets; redacted, also without names of people."""
        found: dict[str, Any] = without_secrets(document, self.app.secrets)
        if not self.redacted:
            return found
        if "store" in found:
            found["store"] = kind_of(found["store"])
        return public_page(found, names_in(stores))

    def source_of(self, project: str, run: str) -> Source:
        """Return the source of one run's page. Raises BadConfig (78) for a bad name."""
        from relay.app.commands.looking.source import Source  # imported here so that the other commands start faster

        check_name("project", project)
        check_name("run", run)
        settings = self.resolved.settings.model_copy(update={"project": project, "run": run})
        return Source(copy(self.app), replace(self.resolved, settings=settings), self.redacted)

    def _labels(self, stores: Pair) -> Mapping[str, str]:
        """Return the accounts' labels by id; none if names are left out."""
        return {} if self.redacted else {key: listed.label for key, listed in accounts(stores).all().items()}

    def _named(self, name: str) -> tuple[str, str]:
        project, _, run = name.rpartition("/")
        project = project or self.resolved.settings.project
        check_name("project", project)
        check_name("run", run)
        return project, run

    def _row(self, stores: Pair, line: RegisteredRun, now: float, labels: Mapping[str, str]) -> dict[str, Any]:
        found = line.found
        state, beat = (found.state, found.heartbeat) if found else (None, None)
        view = RunStatus(line.project, line.run, 0, now, state=state, sign_of_life=beat)
        measures = self._measures(stores, state) if state else None
        return run_row(view, measures.headline if measures else None, labels, trouble=line.trouble is not None)

    def _measures(self, stores: Pair, state: RunState) -> Measures | None:
        """Return the run's metrics; its settings are only read if they are not those of the model at hand."""
        if set(self.app.plugin.measures.first) <= state.metrics.keys():
            return self.app.plugin.measures
        try:
            return self.app.model_of(pinned_config(stores.run_ledger(state.project, state.run))).measures
        except BadData:
            return None

    def _side(self, stores: Pair, project: str, run: str) -> Side:
        ledger = stores.run_ledger(project, run)
        view = ledger.peek()
        if view is None:
            raise unknown_run(stores, project, run, stores.registry().runs())
        commits = Commits(ledger)
        commits.read(view, lambda: True)
        try:
            pinned: Mapping[str, Any] = pinned_config(ledger)
        except BadData:
            pinned = {}
        with store_errors(stores.ledger):
            now, beat = stores.ledger.now(), standing(view.state, stores.ledger).heartbeat
        shown = RunStatus(project, run, 0, now, state=view.state, sign_of_life=beat)
        measures = self.app.model_of(pinned).measures if pinned else self.app.plugin.measures
        return Side(shown, measures, every_link(ledger, view.state)[0], commits.events, dict(flat(pinned)))


Runs = Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Two to eight runs, or PROJECT/RUN.")]
Export = Annotated[
    Path | None,
    typer.Option("--export", metavar="FILE", help="Also write a page with their curves.", show_default=False),
]


@subcommand("config redact")
def compare(call: Call, runs: Runs, export_to: Export = None) -> Answer:
    """Runs side by side: progress, best metric, cost, and the settings that differ."""
    return compared(Board(call.app, call.resolved, call.redact), runs, export_to)


def compared(of: Board, names: Sequence[str], export_to: Path | None) -> Answer:
    """Compare runs, as text, as relay.compare/1 and, if wanted, as a page."""
    stores = of.stores()
    sides, labels = of.sides(stores, names)
    found = of.public(side_by_side(sides, labels), stores)
    runs = [{key: value for key, value in side.items() if key != "curves"} for side in found["sides"]]
    document: dict[str, Any] = {
        "schema": "relay.compare/1",
        "runs": runs,
        "differences": found["differences"],
        "same": found["same"],
        "file": None,
    }
    text = compare_text(document, terminal_width() or 100, speaks_utf8())
    if export_to:
        from relay.app.dashboard.page import BOARD, export

        title = " and ".join(side.view.run for side in sides[:2]) + (f" and {len(sides) - 2} more" * (len(sides) > 2))
        page = {**of.public(board(title, redact(stores.ledger.address), sides[0].view.now, ()), stores), **found}
        document["file"] = export(page, of.app.cwd / export_to, BOARD)
        text += f"\n{document['file']['path']}: {document['file']['bytes']:,} bytes. Any browser opens it."
    return Answer(document, text)


def compare_text(document: Mapping[str, Any], width: int, utf8: bool) -> str:
    """Return two tables: the runs, and the settings that differ."""
    runs = document["runs"]
    many = len({row["project"] for row in runs}) > 1
    titles = [f"{row['project']}/{row['run']}" if many else row["run"] for row in runs]
    shared = [name for name in runs[0]["metrics"] if all(name in row["metrics"] for row in runs)]
    lines = {
        "state": [row["state"] for row in runs],
        "step": [f"{row['step']:,}/{row['target']:,}" for row in runs],
        "best": [_best(row["best"]) for row in runs],
        **{name: [f"{row['metrics'][name]:.4g}" for row in runs] for name in shared},
        "sessions": [f"{row['sessions']:,}" for row in runs],
        "hours": [f"{row['hours']:.1f}" for row in runs],
        "GPUs": [", ".join(row["gpus"]) or "unknown" for row in runs],
    }
    told = _side_table("", lines, titles, width, utf8)
    if not document["differences"]:
        return f"{told}\n{counted(document['same'], 'setting')}, all equal."
    apart = {row["key"]: row["values"] for row in document["differences"]}
    settings = _side_table("setting", apart, titles, width, utf8)
    return (
        f"{told}\n\n{settings}\n{counted(document['same'], 'other setting')} equal; {ABSENT} means that a run has none."
    )


def _best(found: Mapping[str, Any] | None) -> str:
    return f"{found['text']} at {found['step']:,}" if found else "unknown"


def _side_table(head: str, lines: Mapping[str, Sequence[str]], titles: Sequence[str], width: int, utf8: bool) -> str:
    columns = [Column(head, [*lines], whole=True)]
    columns += [Column(title, [cells[n] for cells in lines.values()]) for n, title in enumerate(titles)]
    return table(columns, width, utf8)
