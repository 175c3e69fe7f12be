"""How many processes share a session's steps: by this machine's GPUs, by a number, or by another launcher."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from relay.app.commands.common import App
from relay.app.commands.processes import CannotShare, Sharing, sharing
from relay.app.machine import cards
from relay.app.machine.cards import Card, visible_cards
from relay.app.models.trm import Trm
from relay.core.settings.origins import LEADER
from relay.torch import launch
from tests.app.cli import Desk
from tests.facts import raising

T4 = Card("Tesla T4", (7, 5), 15_843_721_216, 300 << 20)
BUSY = Card(T4.name, T4.capability, T4.memory, T4.memory // 2)
P100 = Card("Tesla P100-PCIE-16GB", (6, 0), 17_059_545_088)


def of_session(*found: Card, task: str = "sudoku", words: Sequence[str] = (), **environ: str) -> Sharing:
    """Of the real model."""
    app = App(plugin=Trm(), environ=environ, cwd=Path("/nowhere"), cards=lambda: found)
    return sharing(app, app.settle([f"task={task}", *words], store=False))


def test_both_cards_of_a_kaggle_notebook_are_used() -> None:
    found = of_session(T4, T4, KAGGLE_KERNEL_RUN_TYPE="Interactive")
    assert (found.gpus, found.card, found.note) == ((0, 1), T4, "")


@pytest.mark.parametrize(
    ("found", "words", "gpus", "names"),
    [
        ([], [], (0,), []),
        ([T4], [], (0,), []),
        ([T4, P100], [], (0,), [1, 2, "T4", "P100"]),
        ([T4, BUSY], [], (0,), [1, 2, "GPU 1"]),
        ([T4, BUSY, T4, T4], [], (0, 2, 3), [3, 4, "GPU 1"]),
        ([BUSY, T4], [], (0, 1), []),
        ([T4, T4, T4], ["batch_size=8"], (0, 1), [2, 3, 8]),
        ([T4, T4], ["batch_size=7"], (0,), [1, 2, 7]),
        ([T4, T4], ["device=cpu"], (0,), []),
        ([T4, T4], ["device=cuda:1"], (0,), []),
        ([T4, T4], ["device=cuda"], (0, 1), []),
        ([T4, T4], ["device=xla"], (0,), []),
    ],
)
def test_auto_takes_every_equal_idle_card_and_says_why_it_takes_fewer(
    found: list[Card], words: list[str], gpus: tuple[int, ...], names: list[object]
) -> None:
    chosen = of_session(*found, words=words)
    assert chosen.gpus == gpus
    assert bool(chosen.note) is bool(names) and all(str(name) in chosen.note for name in names)
    assert len(chosen.note.splitlines()) <= 1


@pytest.mark.parametrize(
    ("found", "count", "words", "gpus"),
    [
        ([], 2, [], (0, 1)),
        ([T4, T4], 1, [], (0,)),
        ([T4, BUSY, T4], 3, [], (0, 1, 2)),
        ([T4, T4, P100], 2, [], (0, 1)),
        ([T4], 2, ["device=cpu"], (0, 1)),
    ],
)
def test_a_number_is_taken_as_it_is(found: list[Card], count: int, words: list[str], gpus: tuple[int, ...]) -> None:
    chosen = of_session(*found, words=words, RELAY_PROCESSES=str(count))
    assert (chosen.gpus, chosen.note) == (gpus, "")


@pytest.mark.parametrize(
    ("found", "count", "words", "fits"),
    [
        ([T4], 2, [], 1),
        ([T4, T4], 5, [], 2),
        ([T4, P100], 2, [], 1),
        ([T4, T4], 2, ["device=cuda:0"], 1),
        ([], 2, ["device=xla"], 1),
        ([], 3, ["batch_size=8"], 2),
        ([T4] * 8, 5, ["batch_size=8"], 4),
    ],
)
def test_a_number_that_is_not_possible_is_refused_with_one_that_is(
    found: list[Card], count: int, words: list[str], fits: int
) -> None:
    with raising(CannotShare, count, fits) as error:
        of_session(*found, words=words, RELAY_PROCESSES=str(count))
    assert (error.value.exit_code, error.value.fits) == (78, fits)


@pytest.mark.parametrize("text", ["0", "two", "-1", "1.5", "100"])
def test_a_number_that_is_none_is_refused(desk: Desk, text: str) -> None:
    done = desk("run", "--run", "r", "--new", "--json", code=78, RELAY_PROCESSES=text)
    assert "processes" in done.json["message"]


@pytest.mark.parametrize(
    "environ",
    [
        {"TORCHELASTIC_RUN_ID": "x", "WORLD_SIZE": "1", "RANK": "0"},
        {"WORLD_SIZE": "4", "RANK": "1"},
        {"SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "1"},
        {"OMPI_COMM_WORLD_SIZE": "2"},
    ],
)
@pytest.mark.parametrize("asked", ["auto", "2"])
def test_another_launcher_s_processes_start_none(environ: dict[str, str], asked: str) -> None:
    assert of_session(T4, T4, **environ, RELAY_PROCESSES=asked).size == 1


def test_one_task_of_slurm_takes_all_its_cards() -> None:
    assert of_session(T4, T4, SLURM_JOB_ID="1", SLURM_NTASKS="1", SLURM_STEP_NUM_TASKS="1").size == 2


@pytest.fixture
def left() -> list[float]:
    """Seconds that processes had to meet."""
    return []


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch, left: list[float]) -> list[tuple[int, ...]]:
    """Instead of processes that start."""
    found: list[tuple[int, ...]] = []

    def gather(
        words: Sequence[str],
        environ: Mapping[str, str],
        gpus: Sequence[int],
        cwd: Path,
        log: Path | None,
        deadline: float,
    ) -> None:
        assert log is not None and log.parent.is_dir()
        assert "AWS_SECRET_ACCESS_KEY" not in environ and environ["PATH"]
        found.append(tuple(gpus))
        left.append(deadline - time.monotonic())
        monkeypatch.setenv(LEADER, str(os.getpid()))
        monkeypatch.setenv("WORLD_SIZE", str(len(gpus)))

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "verysecretvalue")
    for name in (LEADER, "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launch, "gather", gather)
    return found


def test_a_session_starts_them_and_says_how_many(desk: Desk, gathered: list[tuple[int, ...]]) -> None:
    desk.cards = (T4, T4)
    done = desk.train(5, "device=cuda")
    assert gathered == [(0, 1)] and ", 2 processes, " in next(x for x in done.err.splitlines() if "Device: " in x)


@pytest.mark.usefixtures("gathered")
def test_they_have_to_meet_before_the_session_ends(desk: Desk, left: list[float]) -> None:
    desk.cards = (T4, T4)
    desk.train(5, "device=cuda", "budget_minutes=2")
    desk.environ |= {"SLURM_JOB_ID": "1", "SLURM_JOB_START_TIME": "1000", "SLURM_JOB_END_TIME": "4600"}
    launch.disband()
    done = desk.train(6, "device=cuda")
    assert 0 < left[0] <= 120 and left[1] == math.inf, "a job that is older than its limit has none"
    assert len([line for line in done.err.splitlines() if "slurm" in line and "60 minutes" in line]) == 1


def test_a_torch_that_uses_no_gpu_trains_in_one_process(desk: Desk, gathered: list[tuple[int, ...]]) -> None:
    """As the toy does. It is found out after the others have started."""
    desk.cards = (T4, T4)
    assert "1 process, " in desk.train(5).err
    assert gathered == [(0, 1)] and launch.launched() == 1 and not {LEADER, "WORLD_SIZE"} & os.environ.keys()


def test_a_session_with_nothing_to_train_starts_none(desk: Desk, gathered: list[tuple[int, ...]]) -> None:
    desk.train(5)
    desk.cards = (T4, T4)
    desk.train(5, "device=cuda")
    desk("report", "--run", "r")
    assert gathered == []


def test_the_run_s_own_batch_decides(desk: Desk, gathered: list[tuple[int, ...]]) -> None:
    """Another session of the run needs no setting for it."""
    desk.train(5, "batch_size=3")
    desk.cards = (T4, T4)
    done = desk.train(8, "device=cuda")
    assert gathered == [] and "1 of 2 GPUs" in done.err and "batch of 3" in done.err
    desk.train(9, "device=cuda", "processes=2", code=78)
    desk.cards = (T4, T4, T4)
    desk.train(9, "device=cuda", "processes=3")
    assert gathered == [(0, 1, 2)]


def test_doctor_names_the_number(desk: Desk) -> None:
    def told(*words: str, code: int = 0) -> dict[str, object]:
        found = desk("doctor", "--run", "r", "device=cuda", *words, "--json", code=code).json["findings"]
        return next(one for one in found if one["subject"] == "processes")

    desk.cards = (T4, T4)
    found = told()
    assert found["ok"] and all(word in str(found["text"]) for word in ("2 processes", "Tesla T4"))
    desk.train(5, "batch_size=3", "processes=1")
    found = told()
    assert not found["ok"] and all(word in str(found["text"]) for word in ("1 process", "batch of 3"))
    assert told("processes=2", code=78)["ok"] is False


def test_doctor_names_it_also_without_a_store(desk: Desk) -> None:
    desk.cards = (T4, T4)
    (desk.folder / "file").touch()
    at = (desk.folder / "file").as_uri()
    done = desk("doctor", "--run", "r", "device=cuda", "--json", code=None, RELAY_STORE=at).json
    texts = {one["subject"]: one["text"] for one in done["findings"]}
    assert not done["ok"] and "run" not in texts and "2 processes" in texts["processes"]


class Driver:
    """NVIDIA's two libraries on a machine with two cards."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def __getattr__(self, name: str) -> object:
        def call(*given: object) -> int:
            if name == self.fails:
                return 999
            out = [getattr(one, "_obj", one) for one in given]  # byref holds its object
            match name:
                case "cuDeviceGetCount":
                    out[0].value = 2
                case "cuDeviceGetName":
                    out[0].value = b"Tesla T4"
                case "cuDeviceTotalMem_v2":
                    out[0].value = T4.memory
                case "cuDeviceGetAttribute":
                    out[0].value = {75: 7, 76: 5}[given[1]]
                case "cuDeviceGetPCIBusId":
                    out[0].value = f"0000:0{given[2]}:00.0".encode()
                case "nvmlDeviceGetHandleByPciBusId_v2":
                    out[1].value = int(given[0].value[6:7]) + 1
                case "nvmlDeviceGetMemoryInfo":
                    out[1][0], out[1][1], out[1][2] = T4.memory, 0, given[0].value * 1000
            return 0

        return call


@pytest.mark.parametrize(
    ("fails", "used"),
    [
        ("", [1000, 2000]),
        ("nvmlInit_v2", [0, 0]),
        ("nvmlDeviceGetHandleByPciBusId_v2", [0, 0]),
        ("cuInit", []),
        ("cuDeviceGetCount", []),
    ],
)
def test_cards_are_read_from_the_driver(monkeypatch: pytest.MonkeyPatch, fails: str, used: list[int]) -> None:
    monkeypatch.setattr(cards, "_library", lambda name: Driver(fails))
    assert visible_cards() == tuple(Card("Tesla T4", (7, 5), T4.memory, one) for one in used)


def test_a_machine_without_the_driver_has_no_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards.ctypes, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    assert visible_cards() == ()
