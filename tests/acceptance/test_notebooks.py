"""The notebooks as a person runs them, cell by cell in a real kernel: each goes on where the last ended, without loss.

The services' own modules are doubled (tests/app/notebook_desk.py); store, sessions and pages are real, and sessions
are forked (warm.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from relay.core.clock import RealRuntime
from relay.core.ledger.frozen import INTERRUPTED, TARGET_REACHED, UNTIL_REACHED
from relay.core.ledger.ledger import RunLedger
from relay.core.ledger.state import RunState
from storage.local import LocalStore
from tests.acceptance.processes import PROJECT, Warm
from tests.app.notebook_desk import Service, said

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


def state_of(store: Path) -> RunState:
    view = RunLedger(LocalStore(store, read_only=True), PROJECT, "sudoku_rotation", RealRuntime()).peek()
    assert view is not None
    return view.state


async def run(client: NotebookClient, document: nbformat.NotebookNode, number: int) -> str:
    """Execute one cell and return its output. Raises CellExecutionError."""
    await client.async_execute_cell(document.cells[number], number)
    return said(document.cells[number])


async def interrupted(client: NotebookClient, document: nbformat.NotebookNode, number: int) -> str:
    """Execute a cell, press stop once steps are made, and return its output."""
    cell = document.cells[number]
    cell.outputs = []
    running = asyncio.ensure_future(client.async_execute_cell(cell, number))
    while not re.search(r"step [1-9][\d,]*/", said(cell)):
        assert not running.done(), said(cell)
        await asyncio.sleep(0.1)
    await client.km.interrupt_kernel()
    with pytest.raises(CellExecutionError):
        await running
    return said(cell)


def inside(cell: nbformat.NotebookNode) -> str:
    """The page that a cell shows."""
    return str(
        next(out.data["text/html"] for out in cell.outputs if "srcdoc=" in out.get("data", {}).get("text/html", ""))
    )


@pytest.fixture
def sockets() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder)


def test_colab_is_interrupted_goes_on_shows_the_curves_and_gives_the_machine_back(
    tmp_path: Path, sockets: Path, warm: Warm
) -> None:
    store = tmp_path / "store"
    service = Service(
        "colab", tmp_path / "machine", sockets, {"RELAY_STORE": f"file://{store}"}, {"RELAY_EPHEMERAL": "1"}
    )
    service.start_by(*warm.python(tmp_path / "bin"))
    document = service.cells(RELEASE_RUNTIME="True", YOUR_NAME='"Ana"')
    train = document.cells[3].source

    async def person() -> int:
        client = service.client(document)
        async with client.async_setup_kernel(env=service.surroundings):
            assert "1,000" in await run(client, document, 1), "the puzzles"
            assert "RELAY_STORE" in await run(client, document, 2), "of the secrets"
            document.cells[3].source = train.replace("earlier=EARLIER", "target_steps=100_000")
            await interrupted(client, document, 3)
            reached = state_of(store).step
            document.cells[3].source = train.replace("earlier=EARLIER", f"until_step={reached + 10}")
            await run(client, document, 3)
            assert not service.released and state_of(store).links[-1].end == UNTIL_REACHED
            await run(client, document, 4)
            return reached

    reached = asyncio.run(person())
    assert "ana-colab" in inside(document.cells[4]) and "http-equiv" in inside(document.cells[4])
    assert service.released
    first, second = state_of(store).links
    assert (first.end, first.to_step, second.from_step) == (INTERRUPTED, reached, reached)
    assert second.to_step == reached + 10


def test_kaggle_names_a_secret_that_is_not_ticked_then_trains_and_is_kept(
    tmp_path: Path, sockets: Path, warm: Warm
) -> None:
    store = tmp_path / "store"
    environ = {"RELAY_EPHEMERAL": "1", "RELAY_TARGET_STEPS": "20"}
    service = Service("kaggle", tmp_path / "machine", sockets, {}, environ)
    service.start_by(*warm.python(tmp_path / "bin"))
    document = service.cells(I_CO_AUTHOR_THIS_RUN="True", YOUR_NAME='"Ben"')

    async def person() -> None:
        client = service.client(document)
        async with client.async_setup_kernel(env=service.surroundings):
            await run(client, document, 1)
            with pytest.raises(CellExecutionError, match="RELAY_STORE"):
                await run(client, document, 2)
            assert "Traceback" not in said(document.cells[2])
            with pytest.raises(CellExecutionError):
                await run(client, document, 3)
            assert not store.exists(), "nothing is trained without settings"
            service.hold(RELAY_STORE=f"file://{store}")
            assert "RELAY_STORE" in await run(client, document, 2)
            await run(client, document, 3)
            assert state_of(store).links[-1].end == TARGET_REACHED
            await run(client, document, 4)

    asyncio.run(person())
    assert "ben-kaggle" in inside(document.cells[4]) and state_of(store).step == 20
