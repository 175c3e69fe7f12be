"""The study `lm_refinement` on one GPU: trained by several people at once, in slices, on one machine or more.

    python benchmarks/lm_studies.py --text TEXT --people 4 --minutes 20 --out results
    python benchmarks/lm_studies.py --text TEXT --people 4 --minutes 20 --out results --continue results/finished.tar

A step of lm_small is many short launches that leave most of a GPU idle, so several processes share it, and the times
are those of a shared card. With NVIDIA's MPS they compute side by side, without it in turns (docs/reference/speed.md).
Each person takes the study's next free run: of four passes with seeds 0 to 2, without the deep model, then of twelve
passes with seed 0; every second person in the other order, so that the longest runs do not come last.

OUT gets the reports (`relay.study-report/1`), the tables, pictures of the losses, and finished.tar: the store without
checkpoints and without runs that are not finished, from which another machine continues. Exit codes are those of
`study run`: 75 more to do, 0 done.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from participants import ROOT, Participant

sys.path.insert(0, str(ROOT))
from relay.core.errors import Exit

A4 = ("plain", "final", "uniform", "aggressive", "extreme", "plain_tokens", "plain_width")
SWEEPS: dict[str, tuple[str, ...]] = {"a4": (*A4, "--seeds", "0,1,2"), "a12": ("a12", "--seeds", "0")}
ENDS = (Exit.OK, Exit.LEASE_HELD, Exit.HANDOFF)


def work_off(machine: Participant, study: str, words: tuple[str, ...], end: float, number: int) -> list[Any]:
    """One person's runs, sweep after sweep until the end; the sessions."""
    sessions, account = list[Any](), f"person_{number}"
    for sweep in list(SWEEPS.values())[:: 1 if number % 2 else -1]:
        minutes = (end - time.monotonic()) / 60
        if minutes < 0.5:
            break
        given = ("--account", account, "--budget-minutes", f"{minutes:.2f}", "--json")
        text = machine.call("study", "run", study, *sweep, *words, *given, codes=ENDS)
        sessions += json.loads(text)["sessions"]
    return sessions


def unfinished(report: dict[str, Any]) -> list[str]:
    """Runs of a report that are not at their target."""
    return [*(row["run"] for row in report["apart"]), *report["missing"]]


def keep(folder: Path, path: Path, without: set[str]) -> None:
    """Pack the store's small files of finished runs."""

    def chosen(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        left_out = entry.name.endswith(".safetensors") or without.intersection(Path(entry.name).parts)
        return None if left_out else entry

    with tarfile.open(path, "w:gz") as packed:
        packed.add(folder / "store", "store", filter=chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="default: the study's generated stories")
    parser.add_argument("--people", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--folder", type=Path, default=Path("sync/lm_studies"), help="it stays between the calls")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--continue", type=Path, dest="earlier", help="finished.tar of another machine")
    parser.add_argument("--study", default="lm_refinement", help="or a study file with the same experiments")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="more settings of the sessions")
    args = parser.parse_args()
    folder, out, end = args.folder.absolute(), args.out.absolute(), time.monotonic() + 60 * args.minutes
    for path in (folder, out):
        path.mkdir(parents=True, exist_ok=True)
    if args.earlier and not (folder / "store").exists():
        with tarfile.open(args.earlier) as packed:
            packed.extractall(folder, filter="data")
    machine = Participant(folder, "machine")
    words = (*((f"data.train={args.text.absolute()}",) if args.text else ()), *args.set)
    machine.call("prepare", "task=lm_small", *words)
    people = range(1, args.people + 1)
    with ThreadPoolExecutor(args.people) as pool:
        found = list(pool.map(partial(work_off, machine, args.study, words, end), people))
    (out / "sessions.json").write_text(json.dumps(dict(zip(people, found, strict=True)), indent=1))
    left = set[str]()
    for name, sweep in SWEEPS.items():
        report = json.loads(machine.call("study", "report", args.study, *sweep, *words, "--json"))
        left.update(unfinished(report))
        (out / f"report_{name}.json").write_text(json.dumps(report, indent=1))
        (out / f"report_{name}.txt").write_text(machine.call("study", "report", args.study, *sweep, *words))
        machine.call("study", "plot", args.study, *sweep, *words, "--out", str(out / f"loss_{name}.svg"))
        print((out / f"report_{name}.txt").read_text(), flush=True)
    keep(folder, out / "finished.tar", left)
    print(f"Not finished: {', '.join(sorted(left)) or 'nothing'}")
    sys.exit(Exit.HANDOFF if left else Exit.OK)


if __name__ == "__main__":
    main()
