"""submission.json: every fault is placed, the fallback is deterministic, and the file works alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trm.data.arc import submission
from trm.data.arc.submission import attempts, fallback, faults, read_tasks, score

TASKS = {
    "a": {"train": [{"input": [[1]], "output": [[2, 2], [3, 0]]}], "test": [{"input": [[5, 6]]}, {"input": [[2]]}]},
    "b": {"train": [{"input": [[1]], "output": [[4]]}], "test": [{"input": [[4]]}]},
}
GOOD = {name: fallback(task) for name, task in TASKS.items()}


def changed(**parts: object) -> dict[str, object]:
    return json.loads(json.dumps(GOOD)) | parts


def output(first: object = ((1,),), **more: object) -> list[dict[str, object]]:
    return [{"attempt_1": first, "attempt_2": [[1]]} | more]


@pytest.mark.parametrize(
    ("made", "place"),
    [
        ([], (None, None, None)),
        (changed(c=[]), ("c", None, None)),
        ({"a": GOOD["a"]}, ("b", None, None)),
        (changed(b=[]), ("b", None, None)),
        (changed(b={}), ("b", None, None)),
        (changed(b=[[]]), ("b", 1, None)),
        (changed(b=output([])), ("b", 1, "attempt_1")),
        (changed(b=output([[]])), ("b", 1, "attempt_1")),
        (changed(b=output([[1], [1, 2]])), ("b", 1, "attempt_1")),
        (changed(b=output([[10]])), ("b", 1, "attempt_1")),
        (changed(b=output([[-1]])), ("b", 1, "attempt_1")),
        (changed(b=output([[1.0]])), ("b", 1, "attempt_1")),
        (changed(b=output([[float("nan")]])), ("b", 1, "attempt_1")),
        (changed(b=output([[True]])), ("b", 1, "attempt_1")),
        (changed(b=output([[None]])), ("b", 1, "attempt_1")),
        (changed(b=output([[1]] * 31)), ("b", 1, "attempt_1")),
        (changed(b=output([[1] * 31])), ("b", 1, "attempt_1")),
        (changed(b=output([[1]], attempt_3=[[1]])), ("b", 1, "attempt_3")),
        (changed(b=[{"attempt_1": [[1]]}]), ("b", 1, "attempt_2")),
        (changed(a=[GOOD["a"][0], {**GOOD["a"][1], "attempt_2": "x"}]), ("a", 2, "attempt_2")),
    ],
)
def test_a_fault_is_placed(made: object, place: tuple[str | None, int | None, str | None]) -> None:
    (fault,) = faults(made, TASKS)
    assert (fault.task, fault.test, fault.attempt) == place
    assert not faults(GOOD, TASKS) and not faults(changed(b=output([[0, 9]])), TASKS)


def test_all_faults_are_listed() -> None:
    assert len(faults({"a": [{}, {"attempt_1": [[1]], "attempt_2": []}], "c": []}, TASKS)) == 5


def test_the_fallback_is_the_input_and_the_commonest_color() -> None:
    assert GOOD["a"][0] == {"attempt_1": [[5, 6]], "attempt_2": [[2, 2]]}
    assert GOOD["a"][1] == {"attempt_1": [[2]], "attempt_2": [[2]]}, "there is no other grid"
    tie = {"train": [{"input": [[1]], "output": [[7, 3]]}], "test": [{"input": [[0]]}]}
    assert fallback(tie)[0]["attempt_2"] == [[3]], "the lowest color of equally common ones"


@given(st.lists(st.sampled_from([[[5, 6]], [[2, 2]], [[7]], [[8]]]), max_size=4))
def test_attempts_differ_and_keep_the_order_of_candidates(candidates: list[list[list[int]]]) -> None:
    found = attempts(candidates, TASKS["a"], 0)
    order = [grid for at, grid in enumerate(candidates) if grid not in candidates[:at]]
    assert found["attempt_1"] != found["attempt_2"] and found["attempt_1"] == (order or [[[5, 6]]])[0]
    assert len(order) < 2 or found["attempt_2"] == order[1]


def test_the_score_counts_outputs_and_tasks() -> None:
    solutions = {"a": [[[9]], [[2]]], "b": [[[9]]]}
    made = {"a": [output([[9]])[0], output([[1]], attempt_2=[[2]])[0]], "b": output([[8]])}
    found = score(made, solutions)  # type: ignore[arg-type]
    assert (found.tasks, found.right, found.outputs) == ({"a": (1, 2, 2), "b": (0, 0, 1)}, (1, 2), 3)
    assert (found.by_output, found.by_task(1), found.by_task(2)) == (pytest.approx(2 / 3), 0.25, 0.5)


def test_solutions_come_from_either_kind_of_file(tmp_path: Path) -> None:
    solved = {"a": {"train": [], "test": [{"input": [[1]], "output": [[2]]}, {"input": [[1]], "output": [[3]]}]}}
    for number, content in enumerate(({"a": [[[2]], [[3]]]}, solved)):
        (tmp_path / f"{number}.json").write_text(json.dumps(content))
        assert submission.read_solutions(tmp_path / f"{number}.json") == {"a": [[[2]], [[3]]]}
    for bad in (TASKS, {"a": []}, {"a": [[[31]]]}, {"a": {"test": 1}}):
        (tmp_path / "bad.json").write_text(json.dumps(bad))
        with pytest.raises(submission.Unreadable):
            submission.read_solutions(tmp_path / "bad.json")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"a": 1}', "[" * 100_000, "\xef\xbb\xbf{}", '{"a": ' + "1" * 5000 + "}",
     '{"a": {"train": [], "test": []}}', '{"a": 1, "a": 1}', "\xff",
     '{"a": {"train": [{"input": [[1]], "output": [[31]]}], "test": [{"input": [[1]]}]}}',
     '{"a": {"train": [{"input": [[1]], "output": [[3]]}], "test": [{}]}}'],
)  # fmt: skip
def test_an_unusable_tasks_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    path.write_bytes(text.encode("latin-1"))
    for use in (read_tasks, submission.read_solutions):
        with pytest.raises(submission.Unreadable) as caught:
            use(path)
        assert str(path) in str(caught.value) or '"a"' in text
    assert [fault.task for fault in submission.check(path, TASKS)]


def test_a_name_that_the_system_refuses_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / ("x" * 300), tmp_path / "none", tmp_path):
        with pytest.raises(submission.Unreadable, match=str(path)):
            read_tasks(path)


@pytest.mark.parametrize("name", ["x\nsubmission.json is valid.", "\x1b[2K", "\ud800", "\u202e", "\u2028"], ids=ascii)
def test_a_task_s_name_stays_in_its_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    (tmp_path / "bad.json").write_text(json.dumps({name: 1}))
    (tmp_path / "s.json").write_text(json.dumps(changed(**{name: output([[1]], **{name: []})})))
    for made, tasks in (("s", "tasks"), ("s", "bad"), ("bad", "tasks")):
        assert submission.main([str(tmp_path / f"{made}.json"), str(tmp_path / f"{tasks}.json")]) == 65
        shown = "".join(capsys.readouterr())
        assert name not in shown and all(line.isprintable() for line in shown.splitlines())


@pytest.mark.slow
def test_the_file_works_alone(tmp_path: Path) -> None:
    """Copied to an empty folder, under an interpreter without packages."""
    alone = tmp_path / "submission.py"
    alone.write_bytes(Path(submission.__file__).read_bytes())
    (tmp_path / "tasks.json").write_text(json.dumps(TASKS))
    for made, code in ((GOOD, 0), (changed(c=[]), 65)):
        (tmp_path / "s.json").write_text(json.dumps(made))
        words = [sys.executable, "-I", "-S", str(alone), str(tmp_path / "s.json"), str(tmp_path / "tasks.json")]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == code and (code == 0 or "task c" in done.stdout), done.stderr
