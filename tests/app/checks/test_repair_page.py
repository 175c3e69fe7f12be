"""Every command of the repair page mends the fault of its section; the page has no section without a test."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.app.cli import Desk
from tests.app.repairs import leave_unsent, live, slot, spoil, stored, tail
from tests.core.toy import hash_of, state_at
from tests.damage.healed import heal

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "mend.md"
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
SECTIONS.pop("Exit codes")  # tests/app/pages/test_clidoc.py


def commands(text: str) -> list[list[str]]:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [shlex.split(line)[2:] for line in lines if line.startswith("python rotate_accounts.py ")]


class Case(NamedTuple):
    """The damage to a run, and the expected state after the section's commands."""

    harm: Callable[[Desk], object]
    after: Callable[[Desk], object]
    first_code: int = 0
    """Of a plain `run` before the repair."""


def head_is(step: int, run: str = "r") -> Callable[[Desk], object]:
    def check(desk: Desk) -> None:
        assert desk.held(run) == hash_of(step, state_at(step))

    return check


def lose_an_entry(desk: Desk) -> None:
    slot(desk, 4).unlink()


def damage_the_newest(desk: Desk) -> None:
    spoil(stored(desk, "step_30.e3/state.json"))
    shutil.rmtree(desk.folder / "sync")


def halt(desk: Desk) -> None:
    desk.plugin.made = {"nan_at": 31}
    for _ in range(2):
        desk.train(40, code=65)
    desk.plugin.made = {}


def part(desk: Desk) -> None:
    """A store that a healed slot has hit, in place of the practice run's."""
    hit = heal(desk.folder.parent / "hit").desk.folder
    shutil.rmtree(desk.folder / "sync")
    shutil.rmtree(desk.folder / "relay_store")
    shutil.copytree(hit / "relay_store", desk.folder / "relay_store")


def roll_back(desk: Desk) -> None:
    store = desk.folder / "relay_store"
    shutil.copytree(store, desk.folder / "older")
    desk.train(40)
    shutil.rmtree(store)
    shutil.copytree(desk.folder / "older", store)


def stray_file(desk: Desk) -> None:
    slot(desk, 0).with_name(f"{80:020d}.json").write_text("hello")


def moved_away(desk: Desk) -> None:
    slot(desk, 80).rename(desk.folder / "kept.json")
    mended(desk)


def goes_on_to(step: int) -> Callable[[Desk], object]:
    def check(desk: Desk) -> None:
        assert desk("verify", "--json").json["ok"]
        desk.train(step)
        head_is(step)(desk)

    return check


def chosen(desk: Desk) -> None:
    """The page names the command within its text: a person types it once they have looked."""
    assert "`repair --choose A`" in SECTIONS["The ledger holds two histories"]
    desk("repair", "--choose", "A")
    goes_on_to(75)(desk)


def mended(desk: Desk) -> None:
    desk.train(48)
    head_is(48)(desk)


def nothing(desk: Desk) -> None:
    return None


CASES = {
    "A checkpoint is damaged or missing": Case(damage_the_newest, head_is(40)),
    "The ledger has lost an entry": Case(lose_an_entry, head_is(50, "practice_2"), 65),
    "A void or damaged entry": Case(lambda desk: slot(desk, tail(desk) + 1).write_text("hello"), mended),
    "The ledger holds two histories": Case(part, chosen),
    "The store holds less than was seen of it": Case(roll_back, goes_on_to(48), 65),
    "A strange file in the ledger's folder": Case(stray_file, moved_away, 65),
    "The run is halted": Case(halt, mended, 65),
    "The last checkpoint is only on this machine": Case(lambda desk: leave_unsent(desk, 35), head_is(35)),
    "Somebody trains already": Case(nothing, head_is(45)),
    "The store or a disk is full": Case(nothing, mended),
    "You want an older state back": Case(lambda desk: desk.train(40), head_is(40, "practice_3")),
    "The clock of a machine is wrong": Case(nothing, mended),
}


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the page's own practice run has them."""
    return live(tmp_path_factory.mktemp("lived"))


@pytest.mark.parametrize("title", sorted({*SECTIONS, *CASES}))
def test_the_commands_of_the_section_mend_the_run(title: str, lived: Path, tmp_path: Path) -> None:
    assert title in SECTIONS and title in CASES
    case = CASES[title]
    desk = Desk(Path(shutil.copytree(lived, tmp_path / "desk")), {"RUN_NAME": "r", "RELAY_LEASE_TTL_S": "1"})
    case.harm(desk)
    if case.first_code:
        desk.train(50, code=case.first_code)
    for words in commands(SECTIONS[title]):
        desk(*words, code=65 if words == ["repair"] else 0)  # it shows that there is something to decide
    case.after(desk)


def test_every_command_that_the_page_shows_has_a_section() -> None:
    typed = {words[0] for words in commands(PAGE.read_text())}
    assert typed == {"doctor", "verify", "run", "fork", "unhalt", "push", "stop", "gc", "repair"}
