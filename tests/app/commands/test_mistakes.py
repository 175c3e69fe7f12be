"""What newcomers mistype: the exit code, the facts of the message, an unchanged store, and a fix that works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from relay.app.commands.mistyped import MEANT
from tests.app.cli import Desk, Result, parse

pytestmark = pytest.mark.slow

PLACEHOLDERS = {
    "ID": "ana-lab",
    "LABEL": "Ana's workstation",
    "NAME": "Maria",
    "PROVIDER": "kaggle",
    "KEY=VALUE": "batch_size=4",
}
"""What a person types where advice has a placeholder."""


def quoted(words: list[str]) -> str:
    return shlex.join(PLACEHOLDERS.get(word, word) for word in words)


def advised(done: Result) -> str:
    """The first command that the message tells people to type."""
    return quoted(done.advised()[0])


@dataclass(frozen=True)
class Mistake:
    """A line of a shell, variables first."""

    typed: str
    code: int
    says: tuple[str, ...]
    """Facts in the message."""
    fix: str | Callable[[Result], str] = advised
    """The line that a person types after reading it."""


MISTAKES = [
    Mistake("raport", 2, ("report",), "report"),
    Mistake("train", 2, ()),
    Mistake("continue", 2, ()),
    Mistake("list", 2, ()),
    Mistake("runs ls", 2, ()),
    Mistake("accounts add ana", 2, ()),
    Mistake("config set batch_size=4", 2, ()),
    Mistake("resume", 0, ()),
    Mistake("run --budget 50", 2, ("--budget-minutes",), "run --budget-minutes 50"),
    Mistake("run --budget-minutes 50min", 2, ("--budget-minutes",), "run --budget-minutes 50"),
    Mistake("run --batch-size 4", 2, ("batch_size=VALUE",), "run batch_size=4"),
    Mistake("run --store relay_store", 2, ("storage.url=VALUE",), "run storage.url=relay_store"),
    Mistake("run batch_size 4", 78, ("batch_size=64",), "run batch_size=4"),
    Mistake("run batchsize=4", 78, ("batch_size",), "run batch_size=4"),
    Mistake("run keep-last=2", 78, ("checkpoint.keep_last",), "run checkpoint.keep_last=2"),
    Mistake("run device=gpu", 78, ("cuda", "cpu"), "run device=cpu"),
    Mistake("run task=soduku", 78, ("task=sudoku4",), "run task=sudoku4"),
    Mistake("run batch_size=8", 78, ("the run has 4",)),
    Mistake("run --replace --attach", 2, ("--attach", "--replace"), "run --replace"),
    Mistake("run --run our", 78, ("RUN_NAME=ours", "--new"), "run --run ours"),
    Mistake("report --run our", 78, ("ours", "--run"), "report --run ours"),
    Mistake("report ours", 78, ("--run NAME",), "report --run ours"),
    Mistake('RUN_NAME="my run" run', 78, ("my_run", "RUN_NAME"), "RUN_NAME=my_run run"),
    Mistake('run --account "my account"', 78, ("my_account",), "run --account my_account"),
    Mistake("run --target-steps 900", 78, ("--until-step 900", "--new-target 900"), "run --until-step 900"),
    Mistake("run --run other --new-target 1", 78, ("--new-target 3",), "run --run other --new-target 3"),
    Mistake("run --run big --new task=sudoku", 78, ("device=cpu",), "run --run big --new task=sudoku device=cpu"),
    Mistake("run --run mine data.train=a.csv", 65, ("a.csv", "data.train"), "run --run mine data.train=HERE/b.csv"),
    Mistake("prepare --run my data.train=a.csv", 65, ("data.train",), "prepare --run my data.train=HERE/b.csv"),
    Mistake("run --run resting", 77, ()),
    Mistake("runs delete other", 0, ()),
    Mistake("evaluate --run empty", 65, ()),
    Mistake('register "John\'s Colab"', 2, ()),
    Mistake('register account_4 "Maria\'s Kaggle"', 78, ("Cem",)),
    Mistake('register more "Ana\'s Colab 2"', 77, ("account_2", '"John S."'), 'register more Colab --owner "Ana S."'),
    Mistake("accounts pause acount_2", 78, ("account_2",), "accounts pause account_2"),
    Mistake("accounts mark account_2 redy", 2, ("'ready'",), "accounts mark account_2 ready"),
    Mistake("status --account account_22", 78, ("account_2",), "status --account account_2"),
    Mistake("RELAY_STORE=\"'relay_store'\" report", 78, ("RELAY_STORE",), "RELAY_STORE=relay_store report"),
    Mistake("RELAY_STOER=relay_store report", 78, ("RELAY_STORE",), "RELAY_STORE=relay_store report"),
    Mistake("fork", 2, ("--to",), "fork --to second"),
    Mistake("fork --to ours", 78, ("--to",), "fork --to third"),
    Mistake("report --session 99", 78, ("--session last",), "report --session last"),
    Mistake("export --out x --step 99", 65, ("99",), lambda done: f"export --out x --step {retained(done)}"),
    Mistake("examples --rows 0", 2, ("1 to 100",), "examples --rows 1"),
]  # fmt: skip


def retained(done: Result) -> str:
    (steps,) = re.findall(r"retains ([\d, ]+)\.", done.err)
    return str(steps.split(",")[-1].strip())


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Desk:
    """A machine that trains the run `ours`; it knows three more runs."""
    desk = Desk(tmp_path_factory.mktemp("desk"), {"RUN_NAME": "ours"})
    desk("run", "--until-step", "3", "--target-steps", "100000", code=75)
    desk("register", "account_2", "Ana's Colab", "--owner", "Ana")
    desk("register", "account_4", "Cem's workstation", "--provider", "lab")
    desk("run", "--run", "other", "--new", "--target-steps", "3")
    desk("run", "--run", "resting", "--new", "--until-step", "3", code=75)
    desk("runs", "archive", "resting")
    desk("init", "--run", "empty")
    (desk.folder / "b.csv").write_text("puzzle,solution\n")
    return desk


def typed(desk: Desk, line: str, **environ: str) -> Result:
    words = shlex.split(line.replace("HERE", str(desk.folder)))
    while re.match(r"[A-Z_]+=", words[0]):
        name, _, environ[name] = words.pop(0).partition("=")
    return desk(*words, code=None, **environ)


def stored(desk: Desk) -> dict[str, bytes]:
    """Every file of the store, without signs of life."""
    folder = desk.folder / "relay_store"
    return {
        str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and "/selftest/" not in str(path)
    }


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.typed)
def test_a_mistake_changes_nothing_and_its_message_names_a_fix_that_works(mistake: Mistake, desk: Desk) -> None:
    before = stored(desk)
    done = typed(desk, mistake.typed)
    assert done.code == mistake.code, done
    assert stored(desk) == before and "Traceback" not in done.err
    assert not [word for word in mistake.says if word not in done.out + done.err], done
    fix = mistake.fix if isinstance(mistake.fix, str) else mistake.fix(done)
    one_more = str(desk.status("ours")["step"] + 1)
    fixed = typed(desk, fix, RELAY_UNTIL_STEP=one_more)
    assert fixed.code in (0, 75), f"{fix}: {fixed}"


def test_help_and_version_are_words_too(desk: Desk) -> None:
    assert desk("help").out == desk("--help").out and desk("help", "run").out == desk("run", "--help").out
    assert desk("version").out == desk("--version").out


def test_every_word_of_another_program_stands_for_a_command_that_exists() -> None:
    for words in MEANT.values():
        parse(words.split())
