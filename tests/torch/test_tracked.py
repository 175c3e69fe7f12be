"""Tracked parts come back bit for bit in other objects; a checkpoint that does not fit is refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from relay.core.runs.ownloop import measures_of
from relay.torch.loop import DoesNotFit, LoopWorkload
from relay.torch.loopfiles import StoredTensors, read_node, write
from relay.torch.plain import Misfit
from relay.torch.statefile import StateDocument
from relay.torch.tracked import BadPart, describe, parts_of, stable

ABOUT = StateDocument(step=1, seed=0, config={}, code="", fingerprint={})
Objects = dict[str, Any]


class Net(nn.Module):
    """Tied weights, a buffer, and extra state."""

    def __init__(self, seed: int, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)
        self.out = nn.Linear(width, width)
        self.out.weight = self.inner.weight
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.out(self.norm(self.inner(x)))

    def get_extra_state(self) -> Any:
        return {"calls": self.calls}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]


def made(seed: int, optimizer: Callable[..., Any] = torch.optim.AdamW, **more: Any) -> Objects:
    net = Net(seed)
    opt = optimizer(net.parameters(), lr=0.1, **more)
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    warm = torch.optim.lr_scheduler.LinearLR(opt, total_iters=2)
    steps = torch.optim.lr_scheduler.MultiStepLR(opt, milestones=[2, 4])
    return {
        "model": net,
        "optimizer": opt,
        "ema": ema,
        "scheduler": torch.optim.lr_scheduler.SequentialLR(opt, [warm, steps], milestones=[2]),
        "plateau": torch.optim.lr_scheduler.ReduceLROnPlateau(opt),
        "scaler": torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2),
        "dice": torch.Generator().manual_seed(seed),
        "table": torch.full((3,), float(seed)),
    }


def train(objects: Objects, steps: int) -> None:
    net, opt, scaler = objects["model"], objects["optimizer"], objects["scaler"]
    for _ in range(steps):
        x = torch.randn(8, 4, generator=objects["dice"])
        opt.zero_grad()
        loss = ((net(x) - x) ** 2).mean()
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        objects["scheduler"].step()
        objects["ema"].update_parameters(net)
        objects["table"] += loss.detach()
    objects["plateau"].step(1.0)


def save(objects: Objects, folder: Path) -> None:
    folder.mkdir()
    book, nodes = describe(parts_of(objects))
    write(folder, tuple(objects), book.tensors, nodes, ABOUT)


def load(objects: Objects, folder: Path) -> None:
    parts = parts_of(objects)
    live, _ = describe(parts)
    stored = StoredTensors(folder, tuple(objects))
    applies = [part.fit(read_node(folder, part.name), stored, live.tensors) for part in parts]
    stored.refuse_unclaimed()
    for apply in applies:
        apply()
    stored.close()


def same(a: Objects, b: Objects) -> bool:
    (left, mine), (right, yours) = describe(parts_of(a)), describe(parts_of(b))
    return (
        mine == yours
        and left.tensors.keys() == right.tensors.keys()
        and all(torch.equal(value, right.tensors[name]) for name, value in left.tensors.items())
    )


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop, torch.optim.NAdam])
def test_everything_comes_back_in_place(tmp_path: Path, optimizer: Any) -> None:
    first, second = made(1, optimizer), made(2, optimizer)
    train(first, 3)
    save(first, tmp_path / "s")
    held = second["model"].inner.weight
    load(second, tmp_path / "s")
    assert same(first, second) and second["model"].inner.weight is held is second["model"].out.weight
    assert second["model"].calls == 3
    train(first, 3)
    train(second, 3)
    assert same(first, second), "they train on alike"


def test_lazy_state_keeps_its_type(tmp_path: Path) -> None:
    """torch's own load_state_dict would cast a float32 moment of a bfloat16 parameter."""

    def one(fill: float) -> Objects:
        net = nn.Linear(2, 2).bfloat16()
        opt = torch.optim.AdamW(net.parameters())
        if fill:
            for parameter in net.parameters():
                opt.state[parameter] = {
                    "step": torch.tensor(3.0),
                    "exp_avg": torch.full(parameter.shape, fill),
                    "exp_avg_sq": torch.zeros_like(parameter),
                    "note": 7,
                }
        return {"model": net, "optimizer": opt}

    first, second = one(1 / 3), one(0)
    save(first, tmp_path / "s")
    load(second, tmp_path / "s")
    assert same(first, second)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD])
def test_lazy_state_lies_in_memory_as_its_parameter(
    tmp_path: Path, optimizer: Any, layout: torch.memory_format
) -> None:
    """A fused step reads the parameter and its moments by one index."""

    def one(seed: int) -> Objects:
        torch.manual_seed(seed)
        net: Any = nn.Conv2d(3, 4, 2)
        net.to(memory_format=layout)
        more = {} if optimizer is torch.optim.AdamW else {"momentum": 0.9}
        return {"model": net, "optimizer": optimizer(net.parameters(), lr=0.1, fused=True, **more)}

    def steps(objects: Objects, seed: int) -> None:
        torch.manual_seed(seed)
        for _ in range(2):
            objects["optimizer"].zero_grad()
            objects["model"](torch.randn(2, 3, 4, 4)).square().mean().backward()
            objects["optimizer"].step()

    first, second = one(1), one(2)
    steps(first, 3)
    save(first, tmp_path / "s")
    load(second, tmp_path / "s")
    steps(first, 4)
    steps(second, 4)
    assert same(first, second)


def test_wrapped_modules_have_the_names_of_what_they_wrap(tmp_path: Path) -> None:
    assert stable("module._orig_mod.a.module.weight") == "a.weight" and stable("modules.x") == "modules.x"
    first, second = made(1), made(2)
    train(first, 1)
    save({**first, "model": nn.DataParallel(first["model"])}, tmp_path / "s")
    load({**second, "model": Compiled(second["model"])}, tmp_path / "s")
    assert same(first, second)


class Compiled(nn.Module):
    """Has the names that torch.compile gives, without loading the compiler."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner


def vanished(objects: Objects) -> None:
    objects["model"] = nn.Sequential(nn.Linear(4, 4))
    objects["optimizer"] = torch.optim.AdamW(objects["model"].parameters())


def wider(objects: Objects) -> None:
    objects["table"] = torch.zeros(4)


def another_type(objects: Objects) -> None:
    objects["table"] = torch.zeros(3, dtype=torch.float64)


def another_group(objects: Objects) -> None:
    objects["optimizer"].add_param_group({"params": [objects["table"]]})


def another_optimizer(objects: Objects) -> None:
    objects["optimizer"] = torch.optim.SGD(objects["model"].parameters(), lr=0.1, momentum=0.9)


def another_schedule(objects: Objects) -> None:
    objects["plateau"] = torch.optim.lr_scheduler.StepLR(objects["optimizer"], 3)


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (vanished, r"model/"),
        (wider, "table/tensor"),
        (another_type, "table/tensor"),
        (another_group, "optimizer has 1 parameter group, and 2 here"),
        (another_optimizer, "optimizer/group.0."),
        (another_schedule, "plateau/state"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_loaded(
    tmp_path: Path, change: Callable[[Objects], None], where: str
) -> None:
    first, second = made(1), made(2)
    train(first, 1)
    save(first, tmp_path / "s")
    change(second)
    before = {name: value.clone() for name, value in describe(parts_of(second))[0].tensors.items()}
    with pytest.raises(Misfit, match=where):
        load(second, tmp_path / "s")
    after = describe(parts_of(second))[0].tensors
    assert all(torch.equal(value, after[name]) for name, value in before.items())


class Callable_:
    def state_dict(self) -> Any:
        return {"schedule": lambda step: step}

    def load_state_dict(self, state: Any) -> None: ...


class Clashing(nn.Module):
    """Without a wrapper's name, one parameter has the name of another."""

    def __init__(self) -> None:
        super().__init__()
        self.module, self.weight = nn.Linear(1, 1), nn.Parameter(torch.ones(1))


class Adding(nn.Module):
    """Its state_dict has something that is neither parameter nor buffer."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}value"] = self.value() if callable(self.value) else self.value


def expanded() -> nn.Module:
    net = nn.Linear(1, 1)
    net.register_buffer("table", torch.ones(1).expand(3))
    return net


class Leaving(nn.Linear):
    """Saves its bias only."""

    def state_dict(self, *args: Any, **more: Any) -> Any:
        return {key: value for key, value in super().state_dict(*args, **more).items() if key != "weight"}


def scheduled(net: nn.Module, **more: Any) -> Objects:
    """An optimizer whose schedule is not tracked; the one of another optimizer does not count."""
    objects, other = sgd(net), sgd(net)["optimizer"]
    torch.optim.lr_scheduler.StepLR(objects["optimizer"], 3)
    return objects | {"other": torch.optim.lr_scheduler.StepLR(other, 3)} | more


def sgd(net: nn.Module) -> Objects:
    return {"model": net, "optimizer": torch.optim.SGD(net.parameters(), lr=0.1)}


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ({"model": Clashing()}, "model/weight is also the name of module.weight"),
        ({"model": Adding(lambda: torch.ones(2))}, "value is a copy"),
        ({"model": Adding(3)}, "model/value is no tensor"),
        ({"model": expanded()}, "model/table has elements in one place"),
        ({"table": torch.ones(1).expand(3)}, "table/tensor has elements in one place"),
        ({"model": 3}, "int has no state_dict"),
        ({"Model": nn.Linear(1, 1)}, "name"),
        ({"random": nn.Linear(1, 1)}, "name"),
        ({"thing": Callable_()}, r"thing/state.schedule is a callable object"),
        ({"optimizer": torch.optim.SGD([nn.Parameter(torch.zeros(1))])}, "parameter 0 of group 0 is in no tracked"),
        ({"model": nn.LazyLinear(3)}, "no shape yet"),
        (sgd(Leaving(2, 2)), "trains model/weight, which"),
        (scheduled(nn.Linear(1, 1)), "scheduler"),
        (scheduled(nn.Linear(1, 1), scaler=torch.amp.GradScaler("cpu")), "scheduler"),
        ({"model": nn.Linear(1, 1, dtype=torch.complex64)}, "model/weight has the type torch.complex64"),
    ],
)
def test_what_cannot_be_stored_is_refused_when_it_is_tracked(objects: Objects, why: str) -> None:
    with pytest.raises(BadPart, match=why):
        parts_of(objects)


def test_state_that_a_later_session_could_not_check_is_refused() -> None:
    net = nn.Linear(3, 3)
    opt = torch.optim.Adafactor(net.parameters())
    net(torch.ones(1, 3)).sum().backward()
    opt.step()
    with pytest.raises(BadPart, match=r"optimizer/model/weight/row_var is neither"):
        parts_of({"model": net, "optimizer": opt})


SHARED = torch.tensor(3.0)
LOST: dict[str, Callable[[nn.Linear], dict[Any, Any]]] = {
    "two parameters share it": lambda net: {net.weight: {"step": SHARED}, net.bias: {"step": SHARED}},
    "it is the parameter": lambda net: {net.weight: {"before": net.weight}},
    "a list shares it": lambda net: {net.weight: {"step": SHARED, "all": [SHARED]}},
    "its key is a number": lambda net: {net.weight: {0: SHARED}},
    "its key is a path": lambda net: {net.weight: {"a/b": SHARED}},
    "it is of no parameter": lambda net: {"all": {"step": 3}},
}


@pytest.mark.parametrize("how", LOST)
def test_state_of_an_optimizer_that_would_not_come_back_is_refused(how: str) -> None:
    net = nn.Linear(3, 3)
    objects = sgd(net)
    objects["optimizer"].state.update(LOST[how](net))
    with pytest.raises(BadPart, match=r"optimizer/(model|state)"):
        parts_of(objects)


def test_a_frozen_module_is_tracked_without_its_state() -> None:
    """Only what an optimizer trains must be in a state_dict."""
    net = Leaving(2, 2)
    assert parts_of({"model": net, "optimizer": torch.optim.SGD([net.bias])})


def test_a_schedule_may_be_in_an_object_of_the_user_s_own() -> None:
    assert parts_of(scheduled(nn.Linear(1, 1), mine=Keeping(last_epoch=0)))


LATER: dict[str, Callable[[nn.Linear, Any], Any]] = {
    "optimizer/group.1": lambda net, opt: opt.add_param_group({"params": [nn.Parameter(torch.zeros(1))]}),
    "optimizer/group.0": lambda net, opt: opt.add_param_group({"params": [opt.param_groups[0]["params"].pop()]}),
    "model/mean": lambda net, opt: net.register_buffer("mean", torch.zeros(1)),
    "model/weight": lambda net, opt: prune.l1_unstructured(net, "weight", 0.5),  # type: ignore[no-untyped-call]
    "model/bias": lambda net, opt: net.register_parameter("bias", None),
}


@pytest.mark.parametrize("where", LATER)
def test_what_a_later_session_would_not_find_is_named_before_it_is_stored(where: str) -> None:
    """The script's own parts would not fit its checkpoint."""
    net = nn.Linear(3, 3)
    objects = sgd(net)
    parts = parts_of(objects)
    LATER[where](net, objects["optimizer"])
    with pytest.raises(BadPart, match=re.escape(where)):
        describe(parts)


def test_only_what_is_trained_must_be_finite_from_the_beginning(tmp_path: Path) -> None:
    """A mask and the best loss so far begin with infinity; the checkpoint comes back."""
    inf = float("inf")

    def one() -> Objects:
        net: Any = nn.Linear(2, 2)
        net.mask = nn.Parameter(torch.full((2, 2), -inf).triu(1), requires_grad=False)
        return sgd(net) | {"best": torch.tensor(inf)}

    first, second = one(), one()
    made = loop(first)
    assert made.snapshot().finite.ok
    first["best"].fill_(2.0)
    made.snapshot().save(tmp_path)
    loop(second).load(tmp_path)
    assert same(first, second)
    first["model"].weight.data[0, 0] = inf
    assert "model/weight" in made.snapshot().finite.reason and "model/weight" in loop(first).snapshot().finite.reason


def test_lists_and_arrays_in_an_optimizer_come_back(tmp_path: Path) -> None:
    """Its settings and its lists may hold what is not finite, as when they were saved."""
    inf = float("inf")
    first, second = sgd(nn.Linear(2, 2)), sgd(nn.Linear(2, 2))
    first["optimizer"].state[first["model"].weight] = {
        "history": [torch.full((2, 2), inf), torch.ones(5)],
        "losses": [inf] * 99,
        "array": np.ones(3),
        "moment": torch.ones(2, 2),
    }
    for one in (first, second):
        one["optimizer"].param_groups[0]["best"] = torch.tensor(inf)
    folder = tmp_path / "s"
    folder.mkdir()
    loop(first).snapshot().save(folder)
    loop(second).load(folder)
    assert same(first, second)


def loop(objects: Objects) -> LoopWorkload:
    return LoopWorkload(parts_of(objects), {}, "", measures_of({}))


class Keeping:
    """Loads the state that it names; `kept`: all of it."""

    def __init__(self, *kept: str, **state: Any) -> None:
        self.kept, self.state = kept, state

    def state_dict(self) -> Any:
        return self.state

    def load_state_dict(self, state: Any) -> None:
        self.state |= {name: state[name] for name in self.kept or state}


@pytest.mark.parametrize("value", [7, torch.ones(2), [torch.zeros(1)]])
def test_a_part_that_loads_less_than_it_saved_is_named(tmp_path: Path, value: Any) -> None:
    """It is a fault of the script: the checkpoint is not damaged."""
    empty = torch.zeros(2) if isinstance(value, torch.Tensor) else type(value)()
    loop({"best": Keeping("steps", steps=1, value=value)}).snapshot().save(tmp_path)
    with pytest.raises(DoesNotFit) as caught:
        loop({"best": Keeping("steps", steps=0, value=empty)}).load(tmp_path)
    assert caught.value.where.startswith("best")


def test_tensors_of_a_part_that_are_tied_are_tied_again(tmp_path: Path) -> None:
    one = torch.ones(3)
    first, second = Keeping(a=one, b={"c": one}), Keeping(a=torch.zeros(3), b={})
    loop({"copy": first}).snapshot().save(tmp_path)
    loop({"copy": second}).load(tmp_path)
    assert second.state["a"] is second.state["b"]["c"] and torch.equal(second.state["a"], one)


def hostile(folder: Path, damage: str) -> None:
    """What an attacker may write in place of a checkpoint's files."""
    from safetensors.torch import save_file

    path = folder / "optimizer.safetensors"
    good = dict(StoredTensors(folder, ("optimizer",)).items())
    first = sorted(name for name in good if name.endswith("exp_avg"))[0]
    match damage:
        case "unknown tensor":
            save_file(good | {"optimizer/elsewhere/exp_avg": torch.zeros(1)}, path)
        case "another part's tensor":
            save_file(good | {"model/inner.weight": torch.zeros(4, 4)}, path)
        case "shape":
            save_file(good | {first: torch.zeros(1000)}, path)
        case "padded":
            path.write_bytes(path.read_bytes() + bytes(1 << 21))
        case "cut":
            path.write_bytes(path.read_bytes()[:-5])
        case "json":
            (folder / "optimizer.json").write_text('{"groups": [[["model/inner.weight"], [["lr", {"map": 3}]]]]}')
        case "long json":
            (folder / "optimizer.json").write_text("[" + "1," * 200_000 + "1]")
        case "no json":
            (folder / "optimizer.json").unlink()
        case "link":
            path.rename(folder / "other")
            path.symlink_to(folder / "other")


@pytest.mark.parametrize(
    "damage",
    ["unknown tensor", "another part's tensor", "shape", "padded", "cut", "json", "long json", "no json", "link"],
)
def test_a_checkpoint_of_an_attacker_is_refused(tmp_path: Path, damage: str) -> None:
    first, second = made(1), made(2)
    train(first, 1)
    save(first, tmp_path / "s")
    hostile(tmp_path / "s", damage)
    with pytest.raises(ValueError, match=r"^[^\n]+$"):
        load(second, tmp_path / "s")
