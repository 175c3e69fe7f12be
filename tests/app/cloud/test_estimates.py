"""Times and costs: recomputed by other code, split as sessions split, and dependent on exactly the data they name."""

from __future__ import annotations

import copy
import datetime
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from lm.cost import need as lm_need
from relay.app.cloud import prices, rates, recipes
from relay.app.cloud.estimates import Estimate, estimate, split, with_restarts
from relay.app.cloud.figures import Figure, Mark
from relay.app.cloud.machines import Machine, Machines, data, shipped
from relay.app.cloud.prices import Prices
from relay.app.cloud.rates import Rates
from relay.app.pages import machinesdoc
from relay.app.renting import Misfit, NeverEnds, UnknownMachine
from relay.torch.memory import SLACK, Fit, Need, fewest_parts
from tests.app.cloud.made import ALL, EVERY, phases, rows, tables, work
from tests.facts import raising

GUIDE = shipped().of_guide


# --- The same figures by other code ---------------------------------------------------------------------------------


def flops_by_hand(steps: int, passes: int, d: int, layers: int, context: int, vocabulary: int, rows: int) -> float:
    """Refined decoder: 6 a weight and token in each pass, causal attention, and the head once a step."""
    stack = 6 * (12 * layers * d * d) + 6 * layers * d * context
    return rows * context * float(passes * stack + steps * 6 * vocabulary * d)


@pytest.mark.parametrize(("phase", "steps"), [("fast", 1000), ("extreme", 5000)])
def test_each_row_of_the_guide_is_what_its_data_give(phase: str, steps: int) -> None:
    raw, priced, measured = (data(f"{name}.yaml") for name in ("machines", "prices", "rates"))
    peak = {card["name"]: card["tflops"] * 1e12 for card in raw["cards"]}
    flops = flops_by_hand(4, 12, 768, 12, 2048, 32_768, 256)
    (own_rate,) = [row for row in measured["rates"] if row["task"] == "lm_fast"]
    share = flops / own_rate["ms"] * 1e3 / peak[own_rate["card"]]
    best = max(row["share"] for row in measured["together"])
    found = rows(phases(), GUIDE, tables())
    for machine in ("8xB200", "8xH200", "8xH100", "8xA100", "4xH100", "4xA100"):
        gpus, card = int(machine[0]), machine[2:]
        row = found[machine, phase]
        assert isinstance(row, Estimate) and row.step.mark is Mark.GUESSED
        fast = flops / (share * peak[card] * gpus * best)
        slow = flops / (share * peak[card] * gpus * 0.8)
        assert (row.step.low, row.step.high) == pytest.approx((fast, slow), rel=1e-8)
        assert (row.hours.low, row.hours.high) == pytest.approx((fast * steps / 3600, slow * steps / 3600))
        own = [one["on_demand"] for one in priced["prices"] if (one["card"], one["gpus"]) == (card, gpus)]
        others = [one["on_demand"] / one["gpus"] * gpus for one in priced["prices"] if one["card"] == card]
        price = min(own) if own else min(others)
        assert row.price is not None and row.price.mark is (Mark.MEASURED if own else Mark.SCALED)
        assert row.price.low == pytest.approx(price)
        assert row.on_demand is not None and row.per_exaflop is not None
        assert row.on_demand.high == pytest.approx(slow * steps / 3600 * price)
        assert row.per_exaflop.low == pytest.approx(fast * price / 3600 / flops * 1e18)
        spots = [one["spot"] / one["gpus"] for one in priced["prices"] if one["card"] == card and one["spot"]]
        assert (row.spot is None) == (not spots)
        if row.spot is not None and row.spot_price is not None:
            cold, gap = [minutes / 60 for minutes in raw["starts"]["cold"]["minutes"]], raw["spot"]["hours"]
            lost = [
                start + min(0.25, hours) / 2 for start, hours in zip(cold, (row.hours.low, row.hours.high), strict=True)
            ]
            assert row.spot_hours.low == pytest.approx(row.hours.low / (1 - lost[0] / gap[1]))
            assert row.spot_hours.high == pytest.approx(row.hours.high / (1 - lost[1] / gap[0]))
            assert row.spot.high == pytest.approx(row.spot_hours.high * row.spot_price.high)


def test_four_gpus_cost_what_eight_do_and_a_phase_is_the_same_function_everywhere() -> None:
    found = [row for row in rows(phases(), GUIDE, tables()).values() if isinstance(row, Estimate)]
    assert len(found) == 12
    for phase in ("fast", "extreme"):
        assert len({(row.work.hash, row.work.batch, row.work.steps) for row in found if row.work.name == phase}) == 1
        eight, four = (
            next(r for r in found if (r.machine.name, r.work.name) == (m, phase)) for m in ("8xA100", "4xA100")
        )
        assert eight.on_demand and four.on_demand and four.hours.low == pytest.approx(2 * eight.hours.low)
        assert four.on_demand.low == pytest.approx(eight.on_demand.low)


# --- Where the time of a step comes from ----------------------------------------------------------------------------


def test_a_step_that_was_measured_is_taken_as_it_was() -> None:
    for machine, task, ms in (("1xH200", "sudoku", 71.63), ("1xH100", "sudoku_att", 76.92), ("2xH200", "sudoku", 38.8)):
        row = estimate(work(task), shipped().machine(machine), tables())
        assert (row.step.mark, row.step.low, row.step.high) == (Mark.MEASURED, ms / 1000, ms / 1000)


def test_another_card_reaches_the_same_share_of_its_peak_and_other_arithmetic_is_a_range() -> None:
    a100 = estimate(work("sudoku"), shipped().machine("1xA100"), tables()).step
    assert (a100.mark, a100.low) == (Mark.SCALED, pytest.approx(0.148 * 989 / 312))
    t4 = estimate(work("sudoku"), shipped().machine("1xT4"), tables()).step
    assert t4.mark is Mark.GUESSED and t4.low < t4.high, "float32, and nothing was measured in it"
    small = estimate(work("lm_tiny"), shipped().machine("1xH200"), tables()).step
    assert (small.mark, small.low) == (Mark.GUESSED, 0.0) and small.high == pytest.approx(0.05283), (
        "may wait for launches"
    )


def test_a_step_is_scaled_from_steps_of_its_size_alone() -> None:
    """A small step keeps less of the card busy. With the rate of `lm_small` only, `lm` is a range that holds what was
    measured; `lm_small` alone would say 0.82 s."""
    card = shipped().machine("1xH200")
    every = rates.shipped().rates
    smaller = Rates(rates=tuple(one for one in every if one.task not in ("lm", "lm_fast")))
    step = estimate(work("lm"), card, tables(measured=smaller)).step
    (lm,) = [one for one in every if one.task == "lm"]
    assert step.mark is Mark.GUESSED and step.low < lm.ms / 1000 < step.high


def test_several_gpus_reach_what_was_measured_or_a_range() -> None:
    two = estimate(work("sudoku_att"), shipped().machine("2xH200"), tables()).step
    assert (two.mark, two.low) == (Mark.SCALED, pytest.approx(0.07312 / 2 / 0.9445))
    eight = estimate(work("sudoku"), shipped().machine("8xH200"), tables()).step
    assert eight.mark is Mark.GUESSED
    assert (eight.low, eight.high) == pytest.approx((0.07163 / 8 / 0.9445, 0.07163 / 8 / 0.8))


def test_a_runs_own_steps_count_more_than_records() -> None:
    about = {"task": "sudoku", "card": "H200", "method": "hopper", "torch": "", "triton": "", "record": "run r"}
    own = rates.Rate.model_validate({**about, "ms": 90.0, "step_tflop": 32.8082, "n": 400})
    of = tables(measured=rates.shipped().with_own([own]))
    step = estimate(work("sudoku"), shipped().machine("1xH200"), of).step
    assert (step.mark, step.low) == (Mark.MEASURED, 0.09) and "run r" in step.basis


# --- The split of the batch -----------------------------------------------------------------------------------------


def needed(task: str, machine: Machine) -> Need:
    """A Need that stands for the plug-in's function of rows, for the code that splits a session's batch."""

    class AsSession(Need):
        def session(self, rows: int) -> int:
            one = work(task)
            return one.plugin.on_card(one.config, machine.card.capability).session(rows)

    return AsSession(0, 0, 0, 0)


@pytest.mark.slow
def test_rows_times_parts_times_gpus_is_the_batch_and_a_session_takes_that_split() -> None:
    """Every task on every machine; with the recipe's limit a session finds the same parts by its own code."""
    fitting = 0
    for task in EVERY:
        one = work(task)
        for machine in ALL:
            try:
                found = split(one, machine)
            except Misfit as misfit:
                free = machine.card.memory_gb * 1e9
                single = needed(task, machine).session(1) * SLACK
                assert one.batch % machine.gpus or single > free, misfit
                continue
            fitting += 1
            assert found.rows * found.accumulation * machine.gpus == one.batch
            assert found.memory * SLACK <= machine.card.memory_gb * 1e9
            limit = found.cap or int(machine.card.memory_gb * 1e9)
            session = fewest_parts(needed(task, machine), one.batch, limit, machine.gpus, "cuda")
            assert isinstance(session, Fit) and session.parts == found.accumulation, (task, machine.name)
    assert fitting > 300


def test_the_memory_is_that_of_the_models_own_prediction() -> None:
    one = work("lm_fast")
    found = split(one, shipped().machine("8xH100"))
    assert (found.rows, found.accumulation) == (4, 8)
    assert found.memory == lm_need(one.config).session(4)  # type: ignore[arg-type]


def test_what_does_not_fit_is_refused_with_what_would() -> None:
    with raising(Misfit, "1xT4", "lm_fast", "55 GB", "16 GB"):
        split(work("lm_fast"), shipped().machine("1xT4"))
    one = work("sudoku")
    odd = one.plugin.preset("sudoku").model_copy(update={"batch_size": 12})
    with raising(Misfit, "12") as refused:
        split(replace(one, config=odd), shipped().machine("8xH100"))
    assert "4xH100" in refused.value.instead


def test_unknown_machines_are_refused_with_the_nearest() -> None:
    for text, near in (("8xH10", "8xH100"), ("3xH200", "8xH200"), ("8H100", "8xH100"), ("8xh100", None)):
        if near is None:
            assert shipped().machine(text).name == "8xH100"
            continue
        with raising(UnknownMachine, text) as refused:
            shipped().machine(text)
        assert refused.value.near in (near, "1xH200", "2xH200", "4xH200")


# --- Spot machines --------------------------------------------------------------------------------------------------


def simulated(hours: float, start: float, interval: float, gap: float, dice: random.Random) -> float:
    """Hours of one training on machines that end at random moments."""
    done, spent = 0.0, 0.0
    while True:
        alive = dice.expovariate(1 / gap)
        starting = 0.0 if spent == 0 else start
        left = hours - done
        if alive >= starting + left:
            return spent + starting + left
        spent += alive
        done += max(0.0, alive - starting) // interval * interval


@pytest.mark.parametrize(
    ("hours", "start", "interval", "gap"), [(20.0, 0.13, 0.25, 6.0), (40.0, 0.05, 0.17, 3.0), (10.0, 0.17, 0.25, 24.0)]
)
def test_restarts_cost_what_a_simulation_says(hours: float, start: float, interval: float, gap: float) -> None:
    def exactly(value: float) -> Figure:
        return Figure(value, value, Mark.GUESSED, "given")

    said = with_restarts(*map(exactly, (hours, start, interval, gap)))
    dice = random.Random(7)
    mean = sum(simulated(hours, start, interval, gap, dice) for _ in range(1500)) / 1500
    assert said.low == said.high == pytest.approx(mean, rel=0.05)


def test_a_machine_that_ends_before_its_first_commit_is_refused() -> None:
    with raising(NeverEnds, "0.1"):
        estimate(work("sudoku"), shipped().machine("1xH200"), tables(between=Figure(0.1, 0.1, Mark.GUESSED, "given")))


# --- Each datum changes what depends on it, and nothing else --------------------------------------------------------

TASKS = ("sudoku", "sudoku_att", "lm_small", "lm_fast")
HOSTS = ("1xH200", "2xH200", "1xH100", "8xB200", "1xA100", "4xA100", "1xL40S", "1x4090", "1xT4")


@cache
def works() -> list[Any]:
    return [work(task) for task in TASKS]


def seen(of: Machines, priced: Prices, measured: Rates) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows as documents."""
    found = rows(works(), [of.machine(name) for name in HOSTS], tables(of, priced, measured))
    return {key: row.document() if isinstance(row, Estimate) else {"why": row} for key, row in found.items()}


def written(of: Machines, priced: Prices, measured: Rates) -> dict[tuple[str, str], str]:
    """The recipes of the rows, both forms."""
    found = rows(works(), [of.machine(name) for name in HOSTS], tables(of, priced, measured))
    warm, texts = of.starts["warm"].figure.times(60).high, dict[tuple[str, str], str]()
    for key, row in found.items():
        if isinstance(row, Estimate):
            budget = recipes.budget_for(row, warm, None)
            one = recipes.Recipe(row, {}, "ana", "r", budget, datetime.date(2026, 1, 2), (), "", ())
            texts[key] = recipes.shell(one) + recipes.sky(one)
    return texts


def dollars(row: dict[str, Any]) -> list[str]:
    """As a recipe shows them."""
    figures = [figure for name in ("usd", "spot_usd") if (figure := row.get(name))]
    return [f"{figure[end]:.2g}" for figure in figures for end in ("low", "high")]


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all numbers."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in pairs:
        if isinstance(one, int | float) and not isinstance(one, bool):
            yield (*path, key)
        yield from leaves(one, (*path, key))


def changed(raw: Any, path: tuple[Any, ...], factor: float = 1.3) -> Any:
    other = copy.deepcopy(raw)
    node = other
    for key in path[:-1]:
        node = node[key]
    old = node[path[-1]]
    node[path[-1]] = old + 1 if isinstance(old, int) else old * factor
    return other


@pytest.mark.slow
def test_each_datum_changes_the_rows_recipes_and_the_page_that_depend_on_it_and_no_other() -> None:
    raw = {name: data(f"{name}.yaml") for name in ("machines", "prices", "rates")}
    kinds = {"machines": Machines, "prices": Prices, "rates": Rates}
    before = {name: kinds[name].model_validate(raw[name]) for name in raw}
    base, page = seen(*before.values()), machinesdoc.page(*before.values())  # type: ignore[arg-type]
    texts = written(*before.values())  # type: ignore[arg-type]
    moved_rows = 0
    for name in raw:
        for path in leaves(raw[name]):
            if path[-2:-1] in (("gpus",), ("capability",)) or path[-1] == "gpus":
                continue  # shapes: tested by name above
            after = {**before, name: kinds[name].model_validate(changed(raw[name], path))}
            assert machinesdoc.page(*after.values()) != page, (name, path)  # type: ignore[arg-type]
            now = seen(*after.values())  # type: ignore[arg-type]
            moved = {key for key in base if base[key] != now[key]}
            moved_rows += bool(moved)
            other = written(*after.values())  # type: ignore[arg-type]
            rewritten = {key for key in texts.keys() | other.keys() if texts.get(key) != other.get(key)}
            if path[:2] == ("starts", "warm"):  # a budget has room for one start
                assert not moved and bool(rewritten) == (path[-1] == 1)
            elif name == "prices":
                assert rewritten == {key for key in base if dollars(base[key]) != dollars(now[key])} <= moved, path
            elif path[-1] == "memory_gb":  # a session's limit is at most the card's memory
                of = raw["machines"]["cards"][path[1]]["name"]
                assert {key[0].partition("x")[2] for key in rewritten} <= {of}, path
            else:
                assert rewritten <= moved, path
            for key in moved:
                assert depends(key, base[key], now[key], name, path, raw), (name, path, key)
            if name == "rates" and path[-1] == "ms":
                direct = _measured_rows(raw["rates"]["rates"][path[1]]) if path[0] == "rates" else set()
                assert direct <= moved & rewritten, path
    assert moved_rows > 40


def _measured_rows(rate: dict[str, Any]) -> set[tuple[str, str]]:
    """Rows that show this measurement itself."""
    used = "compiled" if rate["task"].startswith("lm") else "hopper"
    key = (f"{rate['gpus']}x{rate['card']}", rate["task"])
    return {key} if used == rate["method"] and key[0] in HOSTS and key[1] in TASKS else set()


def depends(
    key: tuple[str, str], old: dict[str, Any], new: dict[str, Any], name: str, path: tuple[Any, ...], raw: Any
) -> bool:
    """Whether a row may change with a datum, by what it says of itself."""
    card = key[0].partition("x")[2]
    fields = {field for field in old.keys() | new.keys() if old.get(field) != new.get(field)}
    if name == "prices":
        return raw["prices"]["prices"][path[1]]["card"] == card and all("usd" in field for field in fields)
    if name == "machines" and path[0] == "spot":
        return all(field.startswith("spot") for field in fields)
    if name == "machines" and path[0] == "starts":
        return all(field.startswith(("setup", "spot")) for field in fields)
    basis = str(old.get("step_s", {})) + str(new.get("step_s", {}))
    if name == "machines":
        of = raw["machines"]["cards"][path[1]]["name"]
        return of == card or f"on {of}" in basis or "as all measured" in basis
    rate = raw["rates"][path[0]][path[1]]
    return rate["record"] in basis or "as all measured" in basis or "of each of" in basis


def test_the_page_and_the_rates_are_current() -> None:
    text = machinesdoc.PAGE.read_text(encoding="utf-8")
    assert text == machinesdoc.page(shipped(), prices.shipped(), rates.shipped()), (
        "python -m relay.app.pages.machinesdoc"
    )
    from benchmarks.rates import rates as written

    assert written() == rates.shipped(), "run python benchmarks/rates.py"


def test_cards_have_the_peaks_by_which_sessions_estimate() -> None:
    from trm.cards import CARDS

    for card in shipped().cards:
        (same,) = [one for one in CARDS if one.model == card.name]
        assert (same.tflops, same.capability) == (card.tflops, card.capability)
    assert math.isfinite(sum(card.tbs for card in shipped().cards))
