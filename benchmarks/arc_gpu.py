"""ARC-AGI at full size on a GPU: steps, commits, losses, a relayed slice of training, its scores, rows, adaptation.

    python benchmarks/arc_gpu.py prepare step losses --source combined --folder work --out results
    python benchmarks/arc_gpu.py slice --source combined --folder work --out results
    python benchmarks/arc_gpu.py scores rows --source combined --folder work --out results
    python benchmarks/arc_gpu.py adapt --source combined --folder work --out results

The calls are limited to 7.5, 8.5, 4 and 8 minutes of one H200 (LIMITS), 28 together; not tried there yet. The source
holds Kaggle's files of all five sets. `work/data` (17 MB) can be made on another machine, which saves a minute:
`rotate_accounts.py prepare task=arc1 data.source=combined data_dir=work/data`. `work/weights` (30 MB) is all that
`adapt` needs on another machine. `--minutes` replaces the limit of each part named. `--small` runs everything at a
small size on a CPU.

prepare  ARC-1's 876,406 identifiers, which later parts read from a file.
step     ms, memory, bytes and stall of a commit at batch 192 and at 768 in four parts; from these the hours of
         both full runs, account-weeks, and the upload an hour with a commit every 15 minutes.
losses   the same batches through our kernels, the plain step, the compiled one, and the plain one in two parts:
         differences of the loss, of which the last two are bfloat16's noise.
slice    two accounts train in turns, on machines with nothing in common but the store; SIGKILL ends the first.
scores   loss, cells, exact answers and pass@2 of kept steps on the first tasks of the evaluation set.
rows     rows solved a second, and minutes for 172 inputs x 256 variants, extrapolated if `complete` is false.
adapt    20 tasks that the slice has not seen, with the mean row alone and after an adaptation. They are the smallest
         ones of training2 that share no pair with ARC-1.

Each part writes OUT/PART.json after each number, and the next parts run after one that failed; exit 1 then.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from participants import ROOT, Participant

sys.path.insert(0, str(ROOT))
import torch
from arc_solve import OTHERS, speed, untrained
from checkpoint_stall import Checkpoint, settle, stalled, trained
from true_run import LOSS, STEP
from true_run import losses as means

from relay.core.workload import Snapshot
from relay.torch.device import settle as settle_torch
from relay.torch.fingerprint import fingerprint
from trm.choosing import Choice
from trm.competition.layout import lay_out
from trm.competition.solver import Options, devices_of
from trm.competition.weights import of_file
from trm.config import TrainConfig
from trm.cost import EVALUATED, forward_flops, step_flops
from trm.data.arc.provenance import provenance
from trm.data.arc.source import ArcDatasets, load
from trm.data.arc.submission import read_tasks
from trm.data.arc.tasks import read_subsets
from trm.data.arc.variants import VOCABULARY, split_of
from trm.data.arc.votes import Votes
from trm.evaluate import evaluate
from trm.kernels.fast_step import unavailable
from trm.model import Sizes
from trm.presets import preset, target_steps
from trm.sharedtable import REPLAYED, SHARE
from trm.tasks import sizes_of
from trm.train import Step, TrainState
from trm.workload import TrmWorkload, strategy_for

RUN, LM_LOSS = "slice", 5
"""Of the relay, and the place of a loss among a step's metrics."""
COMMIT_MINUTES = 15
"""Of the tasks arc1 and arc2."""
LIMITS = {"prepare": 1.5, "step": 3.0, "losses": 3.0, "slice": 8.5, "scores": 2.5, "rows": 1.5, "adapt": 8.0}
"""Minutes of each part."""
SMALL = {
    "arch.hidden_size": 16, "arch.num_heads": 2, "arch.L_layers": 1, "arch.H_cycles": 2, "arch.L_cycles": 1,
    "arch.puzzle_emb_ndim": 16, "arch.puzzle_emb_len": 1, "arch.forward_dtype": "float32", "arch.halt_max_steps": 2,
    "data.num_aug": 2, "data.max_tasks": 12, "data.held_out": 4, "batch_size": 4, "threads": 1,
}  # fmt: skip
SLICE = {"batch_size": 192, "lr_warmup_steps": 200}
"""What the slice changes in the published settings: few steps fit in minutes."""
EVERY = {True: 12, False: 250}
"""Steps between the slice's commits, at a small size and in full."""
Found = dict[str, Any]


@dataclass(frozen=True)
class Given:
    """What a part works with."""

    source: Path
    folder: Path
    small: bool
    more: dict[str, Any]
    """Further settings."""
    end: float
    """Of the part, on the clock of time.monotonic."""

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.small else "cuda")

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()

    def settings(self, **changes: Any) -> dict[str, Any]:
        """By dotted key, beyond the preset's."""
        size = SMALL if self.small else {}
        return {"data.source": str(self.source), **size, **changes, **self.more}

    @property
    def slice(self) -> dict[str, Any]:
        """Of the relayed run."""
        return self.settings(**({} if self.small else SLICE))

    def config(self, **changes: Any) -> TrainConfig:
        values: Found = preset("arc1").model_dump()
        for key, value in self.settings(**changes).items():
            *groups, name = key.split(".")
            place = values
            for group in groups:
                place = place[group]
            place[name] = value
        return TrainConfig.model_validate(values)

    def data(self) -> ArcDatasets:
        return load(self.config(), self.folder / "data")


def prepare(given: Given) -> Iterator[Found]:
    began = time.monotonic()
    data = given.data()
    yield {
        "seconds": round(time.monotonic() - began, 1), "identifiers": len(data.made.names), "rows": data.train.size,
        "hashes": data.pinned_contents(), "subsets": dict(data.made.subsets),
    }  # fmt: skip


class Commits(Checkpoint):
    """Commits as a session makes them, with the sizes of their files; the table is borrowed where it may be."""

    def __init__(self, work: TrmWorkload) -> None:
        super().__init__(work)
        self.sizes, self.steps, self._lent = list[dict[str, int]](), list[int](), frozenset[str]()

    def __call__(self) -> None:
        self.work.lend(self._lent, False)
        self.steps.append(self.work.step)
        super().__call__()

    def _save(self, snapshot: Snapshot) -> None:
        with tempfile.TemporaryDirectory() as name:
            saved = self._timed("save (thread)", lambda: snapshot.save(Path(name)))
            self.sizes.append({file: (Path(name) / file).stat().st_size for file in saved.files})
            self._lent |= frozenset(saved.lends)


def step(given: Given) -> Iterator[Found]:
    for batch, parts in ((4, 1), (8, 4)) if given.small else ((192, 1), (768, 4)):
        for found in one_size(given, batch, parts):
            yield {f"batch_{batch}": found}
    yield {"runs": {task: whole_run(task, found["ms"]) for task in ("arc1", "arc2")}}


def one_size(given: Given, batch: int, parts: int) -> Iterator[Found]:
    """Steps without and with a commit in turn, the first commit with the table."""
    release()
    config, every = given.config(batch_size=batch), 1 if given.small else 12
    computing = strategy_for(given.device, config, sizes_of(config), 10**6)[1].step
    fewest, computing.parts = computing.parts, parts
    work = TrmWorkload(config, given.folder / "data", given.device, computing, shared_from=1)
    work.start()
    settle(work)
    on_gpu, end, steps = not given.small, min(given.end, time.monotonic() + 60), 2 if given.small else 48 // parts
    ms = 1000 * trained(work, steps, lambda: None) / steps
    tflop = step_flops(config, work.state.sizes) / 1e12
    found: Found = {
        "path": work.path, "parts": parts, "fewest_parts_that_fit": fewest, "ms": round(ms, 2), "steps": steps,
        "tflop_a_second": round(1000 * tflop / ms, 1),
        "memory_gb": round(in_use() / 1e9, 2) if on_gpu else None,
    }  # fmt: skip
    yield found
    commits, stalls = Commits(work), list[float]()
    while len(stalls) < (2 if given.small else 5) and time.monotonic() < end:
        stalls.append(stalled(work, every, commits)[1])
        assert commits.saving is not None, "a commit was made"
        commits.saving.join()
        found |= about_commits(work, commits, ms, stalls)
        yield found


def in_use() -> int:
    """Bytes of the card, which this process has alone; the allocator does not count what a captured step uses."""
    free, total = torch.cuda.mem_get_info()
    return total - free


def about_commits(work: TrmWorkload, commits: Commits, ms: float, stalls: list[float]) -> Found:
    """Bytes and stalls so far, and what follows from them for an hour."""
    newest, table = commits.sizes[-1], 4 * work.state.model.inner.puzzle_emb.weights.numel()
    found: Found = {
        "stall_ms": [round(1000 * one, 1) for one in stalls],
        "waits_ms": {part: round(1000 * times[-1], 1) for part, times in commits.parts.items()},
        "commit_files": commits.sizes[:1] + commits.sizes[1:][-1:],
        "commit_bytes": sum(newest.values()),
    }
    if (journal := newest.get("journal.safetensors")) is not None:
        each = journal / (commits.steps[-1] - commits.steps[0])
        found |= {"journal_bytes_a_step": round(each), "an_hour": an_hour(ms, table, newest, each)}
    return found


def an_hour(ms: float, table: int, newest: dict[str, int], each: float) -> Found:
    """Upload and new bases an hour over a day of commits, by the rule of trm/sharedtable.py."""
    fixed = sum(size for name, size in newest.items() if name != "journal.safetensors")
    sent, bases, since, hours = 0.0, 0, 0.0, 24
    for _ in range(hours * 60 // COMMIT_MINUTES):
        since += 60_000 * COMMIT_MINUTES / ms
        if since * each > SHARE * table or since > REPLAYED:
            sent, bases, since = sent + table, bases + 1, 0.0
        sent += fixed + since * each
    return {"commits": 60 // COMMIT_MINUTES, "gb": round(sent / hours / 1e9, 2), "new_bases": round(bases / hours, 2)}


def whole_run(task: str, ms: float) -> Found:
    """Of a training as published, from the time of a step at batch 768."""
    hours = target_steps(task) * ms / 3.6e6
    return {"hours": round(hours, 1), "account_weeks": {"1 h": round(hours, 1), "30 h": round(hours / 30, 2)}}


def release() -> None:
    """Give the memory of what is over back to the device."""
    gc.collect()
    torch.cuda.empty_cache()


def losses(given: Given) -> Iterator[Found]:
    """Each from the same weights on the same batches, as many steps as fit into its share of the time."""
    config, data, steps = (
        given.config(batch_size=4 if given.small else 64, lr_warmup_steps=SLICE["lr_warmup_steps"]),
        given.data(),
        6 if given.small else 200,
    )
    train = data.train.to(given.device)
    sizes = Sizes(train.seq_len, train.vocab_size, train.num_identifiers)
    ways: list[tuple[str, Callable[[], Step], int]] = [
        ("plain", Choice("plain", "").step, 1),
        ("compiled", Choice("compiled", "").step, 1),
        ("plain in two parts", Choice("plain", "").step, 2),
    ]
    if unavailable(given.device, config.arch, sizes) is None:
        ways.insert(0, ("fused", Choice("hopper", "").step, 1))
    curves = dict[str, list[float]]()
    for number, (name, made, parts) in enumerate(ways):
        release()
        settle_torch(config.threads)
        computing, state = made(), TrainState(config, sizes, given.device)
        end = time.monotonic() + given.left / (len(ways) - number)
        computing.parts, curves[name] = parts, []
        while state.step < steps and time.monotonic() < end:
            metrics = computing(state, train.batch_at(config.seed, state.step, config.batch_size))
            curves[name].append(round(float(metrics[LM_LOSS]) / config.batch_size, 6))
        yield {"batch": config.batch_size, "lm_loss": curves, "apart": apart(curves)}


def apart(curves: dict[str, list[float]]) -> dict[str, Found]:
    """Of each two, over their common steps."""
    names, found = list(curves), {}
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            gaps = [a - b for a, b in zip(curves[one], curves[other], strict=False)]
            if not gaps:
                continue  # the time was over
            sizes = [abs(gap) for gap in gaps]
            found[f"{one} - {other}"] = {
                "steps": len(gaps), "mean": round(statistics.fmean(sizes), 6), "largest": round(max(sizes), 6),
                "signed": round(statistics.fmean(gaps), 6),
            }  # fmt: skip
    return found


def slice_of_training(given: Given) -> Iterator[Found]:
    every, log, sessions = EVERY[given.small], list[list[float]](), list[Found]()
    here = {"task": "arc1", "data_dir": given.folder / "data", "device": given.device.type}
    settings = [f"{key}={value}" for key, value in {**here, **given.slice}.items()]
    words = f"--run {RUN} --new --target-steps 10000 --checkpoint-every {every} --progress-seconds 0".split()
    words += [f"checkpoint.keep_every={every}", "evaluation.every_commits=0", "lease.ttl_s=30", *settings]
    for number in (1, 2):
        half = time.monotonic() + (0 if given.small else given.left / 2) if number == 1 else None
        end = ["--until-step", str(3 * every)] if given.small else ["--budget-minutes", f"{(given.left - 15) / 60:.2f}"]
        machine = Participant(given.folder, f"machine{number}")
        sessions.append(session(machine, number, [*words, *([] if half else ["--wait", "3", *end])], log, half, every))
        lost = means(log, every)
        (given.folder / "loss.json").write_text(json.dumps(lost))
        yield {"settings": given.slice, "every": every, "sessions": sessions, "loss": lost}
    status = Participant(given.folder, "judge").status(RUN)
    links = [{key: link[key] for key in ("account", "from_step", "to_step", "certified")} for link in status["links"]]
    yield {"step": status["step"], "links": links, "ok": [link["certified"] for link in links[1:]] == ["exact"]}


def session(
    machine: Participant, number: int, words: list[str], log: list[list[float]], half: float | None, every: int
) -> Found:
    """To its budget; or until SIGKILL after `half`, in the middle between two commits."""
    process = machine.start("run", "--account", f"account_{number}", *words)
    began, said, first = time.monotonic(), list[str](), 0.0
    assert process.stderr is not None
    for line in process.stderr:
        now = time.monotonic() - began
        found, loss = STEP.search(line), LOSS.search(line)
        if not (found and loss):
            if line[:1].isupper():  # not what moves on a terminal
                said.append(f"{now:.1f} s  {line.rstrip()}")
                print(said[-1], flush=True)
            continue
        first, at = first or now, int(found[1].replace(",", ""))
        log.append([number, at, now, float(loss[1])])
        if half is not None and began + now > half and at > every and at % every >= every // 2:
            process.send_signal(signal.SIGKILL)
            break
    code = process.wait()
    if code not in (0, 75, -signal.SIGKILL):
        raise RuntimeError("\n".join(said[-30:]))
    return {
        "account": f"account_{number}", "exit": code, "seconds": round(time.monotonic() - began, 1),
        "first_report_s": round(first, 1), "last_step": int(log[-1][1]), "said": said,
    }  # fmt: skip


def scores(given: Given) -> Iterator[Found]:
    tasks, variants = (4, 3) if given.small else (100, 16)
    some, judge, points = first_tasks(given.data(), tasks, variants), Participant(given.folder, "judge"), list[Found]()
    head, every = judge.status(RUN)["step"], EVERY[given.small]
    kept = sorted({*range(every, head, every), head})
    chosen = sorted({kept[0], min(kept, key=lambda at: abs(2 * at - kept[0] - head)), head})
    lost = json.loads((given.folder / "loss.json").read_text())
    for at in reversed(chosen):  # the last one first: the adaptation needs its weights
        place = given.folder / "exports"
        judge.call("export", "--run", RUN, "--step", str(at), "--out", str(place))
        weights = of_file(place / f"step_{at}", {}, given.config(), lambda: some.made.names)
        if at == chosen[-1]:
            small = given.folder / "weights"
            small.mkdir(exist_ok=True)
            weights.reduced([]).write(small)
        network, votes = weights.network(weights.table, given.device), Votes(some.test)
        began = time.monotonic()
        accuracy = evaluate(network, some.test, chunk=EVALUATED[given.device.type], seen=votes.see)
        points.append({
            "step": at, "lm_loss": lost.get(str(-(-at // every) * every)), **votes.metrics(),
            "exact_accuracy": accuracy.exact_accuracy, "cell_accuracy": accuracy.cell_accuracy, "rows": accuracy.n,
            "rows_a_second": round(accuracy.n / (time.monotonic() - began), 2),
        })  # fmt: skip
        del network
        shutil.rmtree(place)
        yield {
            "points": points, "candidates": variants, "task_names": list(some.made.tested),
            "provenance": provenance(some, votes, weights.arch.halt_max_steps),
        }  # fmt: skip
        if given.left < 0:
            return


def first_tasks(data: ArcDatasets, tasks: int, variants: int) -> ArcDatasets:
    """The same data with fewer tests: the first variants of the first tasks."""
    made = data.made
    split, tested = made.test, dict(islice(made.tested.items(), tasks))
    ids = [split.identifiers[low : low + variants] for low in split.variants[: len(tested)].tolist()]
    own = split_of([task.tests for task in tested.values()], ids, made.side)
    return ArcDatasets(replace(made, test=own, tested=tested), data.train, data.valid)


def rows(given: Given) -> Iterator[Found]:
    """Untrained weights of the slice's network: the time does not depend on them."""
    arch, steps = given.config().arch, given.config().arch.halt_max_steps
    weights, tasks = untrained(arch), given.source / "arc-agi_evaluation2_challenges.json"
    devices = devices_of(given.device.type)
    flops = steps * forward_flops(arch, Sizes(900, VOCABULARY, 1))
    yield {"gpus": len(devices), "tflop_a_row": round(flops / 1e12, 3), "others": OTHERS}
    layout = lay_out(tasks, dict(islice(read_tasks(tasks).items(), 20)), weights, 40)
    for chunk in (None,) if given.small else (None, 256):
        yield {f"chunk_{chunk or 'default'}": speed(layout, weights, Options(40, steps, chunk=chunk), devices)}
    place, variants = given.folder / "untrained", 1 if given.small else 256
    place.mkdir(exist_ok=True)
    weights.reduced([]).write(place)
    end = () if given.small else ("--budget-minutes", f"{max(given.left, 30) / 60:.2f}")
    made = solved(given, place, tasks, "rows", variants, *end)
    each = made["rows_a_second"]
    yield {
        "solve": {key: made[key] for key in ("votes", "planned", "complete", "rows_a_second", "coverage", "devices")},
        "variants": variants, "minutes": round(made["planned"] / each / 60, 2), "times_others": round(each / OTHERS, 2),
        "tflops_a_gpu": round(each * flops / 1e12 / len(devices), 1), "wall_s": made["wall_s"],
    }  # fmt: skip


def solved(given: Given, weights: Path, tasks: Path, name: str, variants: int, *more: str) -> Found:
    """The document of `arc solve`, on a machine without the store; its file is checked."""
    out = given.folder / f"{name}.json"
    for old in given.folder.glob(f"{name}.json*"):
        old.unlink()
    began = time.monotonic()
    words = ("--weights", str(weights), "--tasks", str(tasks), "--out", str(out), "--variants", str(variants), *more)
    text = Participant(given.folder, "solver").call(
        "arc",
        "solve",
        *words,
        f"device={given.device.type}",
        f"threads={given.config().threads}",
        "--json",
        codes=(0, 75),
    )
    found: Found = json.loads(text) | {"wall_s": round(time.monotonic() - began, 1)}
    Participant(given.folder, "solver").call("arc", "check", str(out), "--tasks", str(tasks))
    return found


def adapt(given: Given) -> Iterator[Found]:
    count, variants = (4, 4) if given.small else (20, 32)
    tasks, solutions = unseen(given, count)
    yield {"tasks": list(json.loads(tasks.read_text())), "variants": variants}
    for name in ("mean_row", "adapted"):
        more = ["--adapt-minutes", f"{(given.left - 45) / 60:.2f}", "--budget-minutes", f"{given.left / 60:.2f}"]
        more = ["--adapt-steps", "4"] if given.small else more
        made = solved(given, given.folder / "weights", tasks, name, variants, *(more if name == "adapted" else ()))
        text = Participant(given.folder, "solver").call(
            "arc", "score", str(given.folder / f"{name}.json"), "--solutions", str(solutions), "--json"
        )
        score = {key: json.loads(text)[key] for key in ("score_outputs", "score_tasks", "right", "outputs")}
        kept = ("valid", "complete", "votes", "planned", "coverage", "rows_a_second", "wall_s", "provenance")
        yield {name: score | {key: made[key] for key in kept}}


def unseen(given: Given, count: int) -> tuple[Path, Path]:
    """Challenges and solutions of the smallest tasks of training2 that share no pair with ARC-1."""
    known = [task for tasks in read_subsets(given.source, preset("arc1").data.subsets).values() for task in tasks]
    names, pairs = {task.name for task in known}, {pair for task in known for pair in task.pairs()}
    others = read_subsets(given.source, ("training2",))["training2"]
    free = [task for task in others if task.name not in names and not pairs.intersection(task.pairs())]
    size = {
        task.name: sum(len(grid) * len(grid[0]) for pair in task.pairs() for grid in (pair.input, pair.output) if grid)
        for task in free
    }
    chosen, made = sorted(size, key=lambda name: (size[name], name))[:count], []
    for kind in ("challenges", "solutions"):
        every = json.loads((given.source / f"arc-agi_training2_{kind}.json").read_text())
        made.append(given.folder / f"unseen_{kind}.json")
        made[-1].write_text(json.dumps({name: every[name] for name in chosen}))
    return made[0], made[1]


PARTS: dict[str, Callable[[Given], Iterator[Found]]] = {
    "prepare": prepare, "step": step, "losses": losses, "slice": slice_of_training, "scores": scores, "rows": rows,
    "adapt": adapt,
}  # fmt: skip


def main() -> None:
    """Run the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--source", type=lambda text: Path(text).resolve(), required=True)
    parser.add_argument("--folder", type=lambda text: Path(text).resolve(), default=ROOT / ".cache" / "arc_gpu")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, help="of each part named")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="further settings of the run")
    parser.add_argument("--small", action="store_true")
    args = parser.parse_args()
    if not args.small and not torch.cuda.is_available():
        parser.exit(69, "torch sees no GPU here; --small takes the CPU\n")
    for folder in (args.folder, args.out):
        folder.mkdir(parents=True, exist_ok=True)
    more = {key: json.loads(value) for key, _, value in (one.partition("=") for one in args.set)}
    failed = False
    for name in args.parts:
        began = time.monotonic()
        given = Given(args.source, args.folder, args.small, more, began + 60 * (args.minutes or LIMITS[name]))
        document: Found = {"part": name, **fingerprint(given.device)}
        try:
            for found in PARTS[name](given):
                document |= found | {"seconds_so_far": round(time.monotonic() - began, 1)}
                print(f"{name}: {json.dumps(found)[:2000]}", flush=True)
                (args.out / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")
            failed |= document.get("ok") is False
        except (Exception, SystemExit):  # noqa: BLE001 - the next parts are worth their minutes
            failed = True
            traceback.print_exc()
    sys.exit(failed)


if __name__ == "__main__":
    main()
