"""How steps are computed on a card, why, and how long they should take: by fakes of what torch says of the card."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.experimental.gluon.language  # loaded while the interpreter is on, as the kernels' language was

from relay.app.checks import doctor
from relay.app.machine import cards
from relay.app.models.trm import Trm
from relay.app.views.sessionstart import About, Forecast, speed_line, start_lines
from relay.torch.faults import TaskError
from tests.app.cli import Desk, ToyPlugin
from tests.facts import raising
from tests.trm import speed_tables
from trm import choosing, compiled, workload
from trm.cards import CARDS, CPU, H100, H200, ROWS, card_of, expected
from trm.choosing import by_kind, choose, kind_of, usable
from trm.compiled import CompiledStep
from trm.kernels.components import fused_components
from trm.kernels.fast_step import FastStep
from trm.kernels.tried import TRIED
from trm.presets import preset
from trm.tasks import sizes_of
from trm.train import EagerStep

RECORDS = Path(__file__).parents[2] / "docs" / "records"
NAMES = {
    "NVIDIA H100 80GB HBM3": (9, 0),
    "NVIDIA H200": (9, 0),
    "NVIDIA A100-SXM4-40GB": (8, 0),
    "NVIDIA A40": (8, 6),
    "Tesla T4": (7, 5),
    "Tesla P100-PCIE-16GB": (6, 0),
}
Card = Callable[..., None]


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Card:
    """card(name, triton, torch): what this process finds. No name: no GPU."""
    fused_components()  # every kernel is imported, for the interpreter, before Triton is told otherwise

    def insert(name: str = "", release: str = "3.6.0", version: str = "2.13.0") -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(name))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: name)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device=None: NAMES[name])
        monkeypatch.setattr(triton, "__version__", release)
        monkeypatch.setattr(triton.knobs.runtime, "interpret", False)
        monkeypatch.setattr(torch, "__version__", version)
        for variable in (choosing.VARIABLE, choosing.DECLINED, "TRM_UNTRIED_TRITON"):
            monkeypatch.delenv(variable, raising=False)

    return insert


def forecast(device: str, task: str = "sudoku", steps: int | None = None, processes: int = 1) -> Forecast:
    found = Trm().forecast(preset(task), device, steps, processes=processes)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("found", "device", "path", "facts", "ms"),
    [
        (("NVIDIA H100 80GB HBM3",), "cuda", "fused-specialized-mixer-attention-channel-graph", ("3.6.0",), 71.8),
        (("NVIDIA H100 80GB HBM3", "3.9.0"), "cuda", "fused-graph", ("3.9.0", "not tried"), 85.15),
        (("NVIDIA A100-SXM4-40GB",), "cuda", "compiled-torch2.13.0-deterministic", ("Hopper", "save"), None),
        (("Tesla T4", "3.7.1"), "cuda", "eager", ("bfloat16", "8.0"), None),
        (("Tesla P100-PCIE-16GB",), "cuda", "eager", ("7.0",), None),
        ((), "cpu", "eager", ("no GPU",), None),
    ],
    ids=["hopper, tried", "hopper, untried", "a100", "t4", "p100", "no gpu"],
)
def test_doctor_and_a_session_name_path_reason_and_time(
    card: Card, found: tuple[str, ...], device: str, path: str, facts: tuple[str, ...], ms: float | None
) -> None:
    card(*found)
    known = forecast(device)
    assert known.path == path and all(fact in known.reason for fact in facts)
    assert known.step_ms is not None and known.measured == (ms is not None)
    assert ms is None or known.step_ms == ms
    shown, *further = doctor.speed(known)
    line = speed_line(known, left_s=600, steps=10**6)
    for text in (shown.text, line):
        assert known.reason in text and known.basis in text
    assert path in shown.text and f"{int(600_000 / known.step_ms):,} step" in line
    assert [one.ok for one in further] == ([False] if known.warning else [])


def test_two_processes_halve_a_step(card: Card) -> None:
    card("Tesla T4")
    alone = forecast("cuda").step_ms
    assert alone and forecast("cuda", processes=2).step_ms == pytest.approx(alone * 0.53)
    card("NVIDIA H200")
    assert forecast("cuda", processes=2).step_ms == 38.8


def test_doctor_foresees_the_session_of_the_run_on_all_cards(card: Card, tmp_path: Path) -> None:
    """Two T4; the run pins another batch than this command's settings."""
    batches = []

    class Forecasting(ToyPlugin):
        def forecast(self, config: Any, device: str, *rest: Any, **named: Any) -> Forecast | None:
            batches.append(config.batch_size)
            return Trm().forecast(preset("sudoku"), "cuda", *rest, **named)

    desk = Desk(tmp_path)
    desk.train(5, "batch_size=4")
    t4 = cards.Card("Tesla T4", (7, 5), 16 << 30)
    desk.plugin, desk.cards = Forecasting(), (t4, t4)
    card("Tesla T4")
    found = {
        one["subject"]: one["text"] for one in desk("doctor", "--run", "r", "--json", "device=cuda").json["findings"]
    }
    assert "2 processes" in found["processes"] and forecast("cuda", processes=2).text in found["step"]
    assert batches == [4]


def test_an_untried_triton_costs_milliseconds_and_one_line_says_so(card: Card) -> None:
    card("NVIDIA H100 80GB HBM3", "3.9.0")
    for fact in ("3.9.0", "85 ms", "72", TRIED[-1].torch):
        assert fact in forecast("cuda").warning
    card("NVIDIA H100 80GB HBM3")
    assert forecast("cuda").warning == ""


def test_without_the_deterministic_mode_a_session_says_that_links_may_be_inexact(card: Card) -> None:
    card("NVIDIA A100-SXM4-40GB", version="2.9.1+cu128")
    assert forecast("cuda").path == "compiled-torch2.9.1+cu128" and "not exact" in forecast("cuda").warning
    card("NVIDIA A100-SXM4-40GB", version="2.10.0a0+git1")
    assert forecast("cuda").warning == ""


def test_few_steps_do_not_repay_compiling(card: Card) -> None:
    """Half of the plain step's time a step must add up to more than a minute; of an unknown card, an H100's."""
    for name in ("NVIDIA A100-SXM4-40GB", "NVIDIA A40"):
        card(name)
        plain = expected(name.removeprefix("NVIDIA "), *sudoku(), "plain") or expected(H100, *sudoku(), "plain")
        assert plain is not None
        needed = int(2 * 60_000 / plain.ms) + 1
        assert choose("cuda", *sudoku(), needed - 1).how == "plain"
        assert choose("cuda", *sudoku(), needed).how == "compiled"
    assert choose("cuda", *sudoku(), needed).expected is None, "nothing is known about an A40"


def test_where_both_were_measured_their_difference_counts(card: Card) -> None:
    """Learned positions are not for our kernels, so that a Hopper card takes torch's."""
    card("NVIDIA H200")
    config, sizes = sudoku()
    config = config.model_copy(update={"arch": config.arch.model_copy(update={"pos_encodings": "learned"})})
    saved = {row.how: row.ms for row in ROWS if (row.card, row.task, row.processes) == (H200, "sudoku", 1)}
    needed = int(60_000 / (saved["plain"] - saved["compiled"])) + 1
    assert [choose("cuda", config, sizes, steps).how for steps in (needed - 1, needed)] == ["plain", "compiled"]


def test_a_card_that_torch_compiles_nothing_for_in_bfloat16_compiles_float32(card: Card) -> None:
    config, sizes = sudoku()
    wide = config.model_copy(update={"arch": config.arch.model_copy(update={"forward_dtype": "float32"})})
    card("Tesla T4")
    assert [choose("cuda", one, sizes, 50_000).how for one in (config, wide)] == ["plain", "compiled"]


def test_disable_compile_keeps_torch_compile_out_but_not_our_kernels(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The language model has the same test. A step that is asked for by name is taken."""
    for value, how in (("1", "plain"), ("true", "plain"), ("0", "compiled"), ("", "compiled")):
        monkeypatch.setenv("DISABLE_COMPILE", value)
        card("NVIDIA A100-SXM4-40GB")
        assert choose("cuda", *sudoku(), 50_000).how == how
        card("NVIDIA H200")
        assert choose("cuda", *sudoku(), 50_000).how == "hopper"
    monkeypatch.setenv("DISABLE_COMPILE", "1")
    card("NVIDIA A100-SXM4-40GB")
    monkeypatch.setenv(choosing.VARIABLE, "compiled")
    assert choose("cuda", *sudoku(), 50_000).how == "compiled"


def test_a_step_can_be_asked_for_by_name(card: Card, monkeypatch: pytest.MonkeyPatch) -> None:
    card("NVIDIA H100 80GB HBM3")
    for wanted, how in (("plain", "plain"), ("compiled", "compiled"), ("fused", "hopper"), ("auto", "hopper")):
        monkeypatch.setenv(choosing.VARIABLE, wanted)
        assert choose("cuda", *sudoku()).how == how
    monkeypatch.setenv(choosing.VARIABLE, "fastest")
    with raising(TaskError, "TRM_STEP=fastest", "compiled"):
        choose("cuda", *sudoku())
    monkeypatch.delenv(choosing.VARIABLE)
    monkeypatch.setenv(choosing.DECLINED, "0")
    assert choose("cuda", *sudoku()).how == "plain"
    card("Tesla P100-PCIE-16GB")
    for wanted in ("compiled", "fused"):
        monkeypatch.setenv(choosing.VARIABLE, wanted)
        with raising(TaskError, f"TRM_STEP={wanted}"):
            choose("cuda", *sudoku())


def test_a_machine_on_which_torch_compile_fails_takes_the_plain_step_and_says_so(
    card: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    card("NVIDIA A100-SXM4-40GB")
    monkeypatch.setattr(compiled, "broken", lambda device: "no C compiler")
    found = usable(choose("cuda", *sudoku(), 50_000), torch.device("cuda"))
    assert found.how == "plain" and "no C compiler" in found.warning
    assert usable(choose("cuda", *sudoku(), 1), torch.device("cuda")).warning == ""


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        (("NVIDIA H100 80GB HBM3", "3.9.0"), None),
        (("NVIDIA A100-SXM4-40GB", "3.6.0", "2.9.1"), None),
        (("NVIDIA A100-SXM4-40GB",), "no C compiler"),
    ],
    ids=["untried triton", "no deterministic mode", "no compiler"],
)
def test_a_session_prints_what_a_choice_costs_before_its_first_step(
    card: Card, monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...], fault: str | None
) -> None:
    card(*found)
    monkeypatch.setattr(compiled, "broken", lambda device: fault)
    monkeypatch.setattr(workload, "free_bytes", lambda device: None)
    monkeypatch.setattr(workload, "slow_bf16", lambda device: False)
    choice, computed = workload.strategy_for(torch.device("cuda"), *sudoku(), 50_000)
    assert choice.warning and computed.remarks == (choice.warning,)


def test_followers_take_the_leaders_kind_of_step() -> None:
    for step in (EagerStep(), FastStep(), CompiledStep(backend="eager")):
        other = by_kind(kind_of(step), 3, peers=None)  # type: ignore[arg-type]
        assert (type(other), other.parts, other.name) == (type(step), 3, step.name)


def test_every_measured_row_is_in_the_record_that_it_names() -> None:
    for row in (*ROWS, *TRIED):
        page = (RECORDS / row.record / "README.md").read_text()
        assert any(f"{row.ms:{form}}" in page for form in ("g", ".1f", ".2f")), row


def test_the_page_shows_the_lines_of_a_session(card: Card) -> None:
    card("NVIDIA H200")
    known, page = forecast("cuda"), speed_tables.PAGES[0].read_text()
    about = About("", 768, "", path=f"{known.path} cuda bfloat16 batch=768")
    for line in (start_lines("", 0, 0, about, "NVIDIA H200", 1, "...")[-1], speed_line(known, 3000, 50_000)):
        assert f"{line}\n" in page


def test_the_pages_have_the_tables_of_the_code() -> None:
    """`python -m tests.trm.speed_tables` writes them."""
    texts = [page.read_text() for page in speed_tables.PAGES]
    assert [speed_tables.page(text) for text in texts] == texts
    assert sorted(re.findall(r"<!-- end of (\w+) -->", "".join(texts))) == ["estimated", "measured", "releases"]


def test_the_estimate_is_within_a_fifth_where_it_can_be_compared() -> None:
    """An H200 that has no row is scaled from an H100's; the H200 that has one shows by how much that is wrong."""
    compared = []
    for row in ROWS:
        like = [one for one in ROWS if (one.card, one.task, one.how) == (H100, row.task, row.how)]
        if row.card == H200 and row.processes == 1 and like and row.task != "arc":
            config = preset(row.task)
            found = expected("H200 NVL", config, sizes_of(config), row.how)
            assert found is not None and not found.measured
            compared.append(found.ms / row.ms)
    assert len(compared) >= 4 and all(0.8 < ratio < 1.2 for ratio in compared)


def test_cards_are_found_by_their_drivers_names() -> None:
    for name, model in {
        "A100-SXM4-40GB": "A100", "L40S": "L40S", "L4": "L4", "RTX 4090": "4090", "V100-SXM2-16GB": "V100", "T4": "T4",
    }.items():  # fmt: skip
        found = card_of(name)
        assert found is not None and found.model == model
    assert card_of("A40") is None and len({one.model for one in CARDS}) == len(CARDS)


def test_nothing_is_expected_of_a_small_network_on_a_gpu() -> None:
    small = preset("sudoku4")
    assert expected(H100, small, sizes_of(small), "plain") is None
    assert expected(CPU, small, sizes_of(small), "plain") is not None


def test_a_session_prints_the_forecast_and_doctor_finds_it(tmp_path: Path) -> None:
    class Forecasting(ToyPlugin):
        def forecast(self, config: Any, device: str, steps: int | None, *rest: Any, **named: Any) -> Forecast:
            return Forecast(
                "toy-path", f"{steps} steps are few", 50.0, "measured: a toy, n = 3", True, "TOY: slow. Wait."
            )

    desk = Desk(tmp_path)
    desk.plugin = Forecasting()
    said = desk.train(7).err
    assert "Speed: 50 ms a step (measured: a toy, n = 3)" in said and "7 steps are few" in said and "PACE" not in said
    found = json.loads(desk("doctor", "--run", "r", "--json").out)["findings"]
    assert [(one["ok"], "toy-path" in one["text"]) for one in found if one["subject"] == "step"] == [
        (True, True),
        (False, False),
    ]


@pytest.mark.parametrize(
    ("left_s", "fact"),
    [(10.0, "200 steps in 10 s"), (100.0, "15 s to go"), (math.inf, "15 s to go"), (-1.0, "0 steps")],
)
def test_steps_that_fit_or_the_time_that_is_left(left_s: float, fact: str) -> None:
    assert fact in speed_line(Forecast("p", "why", 50.0), left_s, 300)
    assert "PACE" in speed_line(Forecast("p", "why"), left_s, 300)


def sudoku():  # type: ignore[no-untyped-def]
    config = preset("sudoku")
    return config, sizes_of(config)
