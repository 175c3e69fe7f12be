"""What stands behind a score: what was trained on, how it was counted, and what weakens it."""

from __future__ import annotations

from typing import Any

from storage.wording import counted
from trm.data.arc.source import ArcDatasets
from trm.data.arc.votes import Votes

TRANSDUCTIVE = (
    "transductive: the model was trained on the demonstration pairs of the evaluated tasks, never on their test outputs"
)


def provenance(data: ArcDatasets, votes: Votes, steps: int) -> dict[str, Any]:
    """The block that belongs to every score, as plain JSON values. steps: of recursion."""
    made, score = data.made, votes.score()
    return {
        "training": TRANSDUCTIVE,
        "subsets": dict(made.subsets) or None,
        "trained_tasks": len(made.train.pairs) - 1,
        "evaluated_tasks": len(made.tested),
        "outputs": int(made.test.pairs[-1]),
        "public": made.test.labelled,
        "data": data.pinned_contents(),
        "overlap": [{"task": ours, "with": theirs, "pairs": count} for ours, theirs, count in made.shared],
        "candidates": round(votes.candidates, 3),
        "coverage": round(votes.coverage, 6),
        "rows": votes.rows,
        "rows_without_grid": votes.invalid,
        "steps": steps,
        "checkpoints": 1,
        "scored": None if score is None else {"tasks": score.tasks, "outputs": score.outputs, "right": score.right},
        "warnings": _warnings(data, votes),
    }


def lines(block: dict[str, Any]) -> list[str]:
    """The block as text."""
    subsets = block["subsets"]
    named = f" ({', '.join(f'{name} {count:,}' for name, count in subsets.items())})" if subsets else ""
    tasks = counted(block["evaluated_tasks"], "public task" if block["public"] else "task")
    shown = tasks if block["public"] else f"{tasks} without known outputs: nothing is scored"
    found = [
        f"provenance: {block['training']}",
        f"trained on {counted(block['trained_tasks'], 'task')}{named}; evaluated on {shown}, "
        f"{counted(block['outputs'], 'output')}, data {block['data']['test'][:23]}…, "
        f"list {block['data']['identifiers'][:23]}…",
        f"candidates an input: {block['candidates']:g}; coverage: {block['coverage']:.1%}; "
        f"recursions: {block['steps']}; checkpoints: {block['checkpoints']}",
    ]
    if block["scored"]:
        one, two = block["scored"]["right"]
        outputs = block["scored"]["outputs"]
        found.append(
            f"official (by output): {two} of {outputs} with two attempts, {one} with one; pass@K is a mean over tasks, "
            f"and K above 2 is no score"
        )
    found += [
        f"OVERLAP: pairs of test task {one['task']} that {one['with']} has, too: {one['pairs']}"
        for one in block["overlap"]
    ]
    return [*found, *(f"WARNING: {text}" for text in block["warnings"])]


def _warnings(data: ArcDatasets, votes: Votes) -> list[str]:
    found, score = [], votes.score()
    if score and score.undecided:
        found.append(
            "pass@K is the same for all K: further candidates bring nothing. Is there one variant for each input? Were "
            "the names of the data those that the table was trained with? Before the first right answers all K are 0"
        )
    if votes.rows < votes.data.size:
        found.append(
            f"only {votes.rows:,} of {counted(votes.data.size, 'row')} were evaluated: this is no score of the set"
        )
    if not data.made.subsets:
        found.append("the data came as a built folder, which does not name its subsets or their overlap")
    return found
