"""The shipped studies are sound, and every fault of a file is found, with its line and the nearest name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from relay.app.models.registry import MODELS
from relay.app.models.trm import Trm
from relay.app.studies.experiments import Design, NotYours, UnknownExperiment, resolve
from relay.app.studies.studyfile import BadStudy, NoStudy, load, shipped
from relay.core.settings.config import flat
from tests.app.studies.made import TOYS, design
from tests.facts import raising

GUIDE = [
    "e1_1_baseline",
    "e1_3_batch_512",
    "e1_3_batch_1024",
    "e2_1_ema_off",
    "e2_2_t2_n2",
    "e2_2_t2_n6",
    "e2_2_t3_n4",
    "e2_2_t3_n6",
    "e2_2_t4_n6",
    "e2_3_attention",
    "e2_4_nsup_8",
    "e3_1_large_model",
    "e3_2_more_data",
    "e4_1_lr_search",
    "e4_2_longer_training",
    "e4_3_deeper_model",
    "e4_4_no_warmup",
    "e4_5_larger_batch",
]
"""The 18 names of the guide."""


NOWHERE = Path("/nowhere")


@pytest.fixture(scope="module")
def scaling() -> Design:
    return resolve(load("trm_scaling", NOWHERE), Trm())


def test_the_guide_s_names_are_sixteen_different_trainings(scaling: Design) -> None:
    points = scaling.chosen(GUIDE)
    assert [point.name for point in points] == sorted(GUIDE, key=list(scaling.points).index) and len(points) == 18
    trained = [point for point in points if point.trained]
    assert len(trained) == 16
    assert len({(json.dumps(point.values, sort_keys=True), point.steps) for point in trained}) == 16
    assert set(scaling.study.sweeps) == {"tn_sweep", "batch_sweep", "all_ablations", "paper", "lr_sweep", "scaling"}
    assert len(scaling.runs(scaling.points.values())) <= 200


@pytest.mark.parametrize("name", list(shipped()))
def test_each_experiment_differs_from_its_control_in_the_named_settings_alone(name: str) -> None:
    """The file, read and applied here anew, gives the same configurations."""
    plain = yaml.safe_load(shipped()[name].read_text())
    plugin = MODELS.of_task(plain["task"])
    found = resolve(load(name, NOWHERE), plugin)
    base = dict(flat(plugin.preset(plain["task"]).model_dump(mode="json"))) | plain.get("set", {})
    first = next(iter(plain["experiments"]))

    def settings(experiment: str) -> dict[str, object]:
        written = plain["experiments"][experiment] or {}
        if experiment == first:
            return base
        values = settings(written.get("control", first)) | written.get("set", {})
        if written.get("same_samples"):
            values |= {"lr_warmup_steps": 2000 * 768 // values["batch_size"] if name == "trm_scaling" else 50}
        return values

    for experiment, point in found.points.items():
        own = point.values
        assert {
            key: float(value) if isinstance(value, str) and key == "lr" else value
            for key, value in settings(experiment).items()
        } == own, experiment
        if point.control:
            theirs = found.points[point.control].values
            named = set((plain["experiments"][experiment] or {}).get("set", {}))
            named |= {"lr_warmup_steps"} if point.experiment.same_samples else set()
            assert {key for key in own if own[key] != theirs[key]} == named == set(point.changes)
        if point.experiment.same_samples:
            control = found.points[str(point.control)]
            assert point.steps * own["batch_size"] == control.steps * control.values["batch_size"]


def test_runs_come_seed_by_seed_controls_first_and_with_what_their_relations_need() -> None:
    found = design()
    assert [run.name for run in found.runs(found.points.values())] == [
        f"{name}-s{seed}" for seed in (1, 2) for name in ("base", "big", "longer", "huge")
    ]
    assert [run.name for run in found.runs(found.chosen(["raw", "twin"]))] == ["base-s1", "base-s2"]
    assert {run.name for run in found.runs(found.chosen(["longer"]))} == {
        "base-s1",
        "base-s2",
        "longer-s1",
        "longer-s2",
    }
    assert [point.name for point in found.chosen(["sizes"])] == ["base", "big", "huge"]


def test_a_shorter_study_has_its_own_project_and_all_steps_in_proportion() -> None:
    found = design(steps=10, seeds=(7,))
    assert (found.project, found.seeds) == ("toys-10", (7,))
    assert {name: point.steps for name, point in found.points.items()} | {"longer": 15} == {
        name: 15 if name == "longer" else 10 for name in found.points
    }


def test_a_grid_adds_experiments_and_uses_those_that_exist() -> None:
    text = TOYS + "  grid:\n    grid: {batch_size: [4, 8, 32]}\n"
    found = design(text)
    assert [point.name for point in found.chosen(["grid"])] == ["grid_4", "grid_8", "grid_32"]
    assert found.points["grid_4"].experiment.same_as == "base" and found.points["grid_8"].experiment.same_as == "big"
    assert found.points["grid_32"].changes == {"batch_size": 32} and found.points["grid_32"].trained


@dataclass(frozen=True)
class Bad:
    """A change of the study that is a fault."""

    old: str
    new: str
    at: str | None
    """The beginning of the line that the fault names; None for no line."""
    facts: tuple[str, ...]
    near: str | None = None


ALIASES = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}' if n else 'a'] * 10)}]\n" for n in range(9))
"""A thousand million values in nine lines."""
BAD = {
    "unknown experiment": Bad("[base, big, huge]", "[base, bog]", "  sizes:", ("bog",), "big"),
    "control missing": Bad("control: big", "control: bigg", "    control:", ("bigg",), "big"),
    "unknown setting": Bad(
        "set: {batch_size: 8}", "set: {bach_size: 8}", "    set: {bach", ("bach_size",), "batch_size"
    ),
    "the seed": Bad("set: {batch_size: 8}", "set: {seed: 8}", "    set: {seed", ("seed",)),
    "invalid value": Bad("set: {batch_size: 8}", "set: {batch_size: many}", "    set: {batch_size: many", ("many",)),
    "control's value": Bad("set: {batch_size: 8}", "set: {batch_size: 4}", "    set: {batch_size: 4", ("batch_size",)),
    "equal settings": Bad("16}\n    control: big", "8}", "  huge:", ("same_as: big",)),
    "not the same": Bad("twin: {same_as: base}", "twin: {same_as: big}", "  twin:", ("batch_size",)),
    "circular": Bad("{why: the control", "{control: huge, why: the control", "  base:", ("base → huge → big → base",)),
    "itself": Bad("twin: {same_as: base}", "twin: {same_as: twin}", "  twin:", ("twin → twin",)),
    "two relations": Bad("raw: {reads: raw}", "raw: {reads: raw, same_as: base}", "  raw:", ("same_as",)),
    "no reading": Bad("raw: {reads: raw}", "raw: {reads: ema}", "  raw:", ("ema",)),
    "read of a name": Bad("raw: {reads: raw}", "raw: {reads: raw, of: twin}", "  raw:", ("twin",)),
    "not longer": Bad("steps: 60", "steps: 40", "  longer:", ("base",)),
    "no steps": Bad("{continues: base, steps: 60}", "{continues: base}", "  longer:", ("steps",)),
    "no whole steps": Bad(
        "set: {batch_size: 8}", "set: {batch_size: 7}\n    same_samples: true", "    set: {batch_size: 7", ("7 rows",)
    ),
    "unknown key": Bad("about: a study", "abuot: a study", "abuot", ("abuot",), "about"),
    "key of an experiment": Bad("control: big", "controll: big", "    controll", ("controll",), "control"),
    "bad name": Bad("  twin:", "  Twin:", "  Twin", ("Twin",)),
    "unknown task": Bad("task: sudoku4", "task: sudoku5", "task", ("sudoku4",)),
    "twice": Bad("  twin: {same_as: base}\n  raw", "  raw: {same_as: base}\n  raw", "  raw: {reads", ("raw",)),
    "not YAML": Bad("seeds: [1, 2]", "seeds: [1, 2", None, ("line",)),
    "no experiment": Bad("T4: {base: 100}", "T4: {bose: 100}", "  T4", ("bose",), "base"),
    "a bad seed": Bad("seeds: [1, 2]", "seeds: [1, -2]", "seeds", ("seeds",)),
    "a large seed": Bad("seeds: [1, 2]", "seeds: [1, 2147483648]", "seeds", ("seeds",)),
    "empty": Bad(TOYS, "", None, ("study",)),
    "nested deeply": Bad("about: a study of toys", f"about: {'[' * 5000}{']' * 5000}", None, ("deeply",)),
    "in itself": Bad("about: a study of toys", "about: &about [*about]", None, ("more than",)),
    "aliases of aliases": Bad("about: a study of toys", f"about: a study\n{ALIASES}", None, ("more than",)),
    "batch of 0": Bad(
        "set: {batch_size: 8}",
        "set: {batch_size: 0}\n    same_samples: true",
        "    set: {batch_size: 0",
        ("batch_size",),
    ),
    "batch that is no number": Bad(
        "set: {batch_size: 8}", "set: {batch_size: x}\n    same_samples: true", "    set: {batch_size: x", ("whole",)
    ),
    "a large grid": Bad(
        "huge]\n", f"huge]\n  g:\n    grid: {{lr: {[*range(15)]}, seed: {[*range(15)]}}}\n", "  g:", ("225",)
    ),
    "points of one name": Bad("huge]\n", "huge]\n  g:\n    grid: {lr: [1e-3, 1e+3]}\n", "  g:", ("g_1e-3",)),
    "a value twice": Bad("huge]\n", "huge]\n  g:\n    grid: {lr: [1e-3, 1e-3]}\n", "  g:", ("g_1e-3",)),
    "a point of other settings": Bad(
        "sweeps:\n",
        "  g_32:\n    set: {batch_size: 64}\nsweeps:\n  g:\n    grid: {batch_size: [32]}\n",
        "  g:",
        ("g_32",),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_fault_is_named_with_its_line_and_the_nearest_name(name: str) -> None:
    bad = BAD[name]
    assert TOYS.count(bad.old) == 1
    text = TOYS.replace(bad.old, bad.new)
    lines = [n for n, line in enumerate(text.splitlines(), 1) if bad.at and line.startswith(bad.at)]
    with raising(BadStudy, "toys.yaml") as caught:
        design(text)
    found = [one for one in caught.value.faults if all(fact in one.text for fact in bad.facts)]
    assert found, caught.value.faults
    assert (found[0].line, found[0].near) == (lines[0] if bad.at else None, bad.near)


def test_all_faults_are_found_at_once() -> None:
    with pytest.raises(BadStudy) as caught:
        design(TOYS.replace("control: big", "control: bigg").replace("T4: {base", "T4: {bose"))
    assert len(caught.value.faults) == 2


def test_names_and_settings_that_the_command_line_may_not_have() -> None:
    found = design()
    with raising(UnknownExperiment, "siezs", "sizes"):
        found.chosen(["siezs"])
    with raising(NoStudy, "trm_scalling", "trm_scaling"):
        load("trm_scalling", NOWHERE)
    given = ["device=cpu", "data.train=x"]
    assert found.split(found.points.values(), given) == (["device=cpu"], ["data.train=x"])
    for text in ("batch_size=3", "run=x", "project=x", "target_steps=3", "evaluation.test_rows=3", "seed=1"):
        with raising(NotYours, text.partition("=")[0]):
            found.split(found.points.values(), [text])
