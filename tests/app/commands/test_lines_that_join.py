"""The lines that `invite` and `next` print, and the notebooks' cells, in fresh clones and homes, for every kind of run.

The joiner types only these lines. Each session trains on the first try, or one message names a command after which the
same line trains.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from relay.app.models.lm import Lm
from relay.app.models.trm import Trm
from relay.app.notebooks import notebook
from relay.app.notebooks.notebook import Notebook, Stopped
from storage.packages import in_cells
from tests.app.cli import Desk, Result
from trm import tasks
from trm.data import hub

pytestmark = pytest.mark.slow
TINY = ("arch.hidden_size=32", "arch.num_heads=2", "arch.H_cycles=1", "arch.L_cycles=1", "arch.L_layers=1",
        "arch.puzzle_emb_ndim=32", "arch.forward_dtype=float32", "batch_size=2")  # fmt: skip
SOLVED = {
    2: "1234341221434321",
    3: "123456789456789123789123456231564897564897231897231564312645978645978312978312645",
}
ASSIGNED = re.compile(r"[A-Z_]+=")
COLAB, KAGGLE = {"COLAB_RELEASE_TAG": "x"}, {"KAGGLE_KERNEL_RUN_TYPE": "Batch"}


def grids(file: Path, box: int, part: int) -> Path:
    """Six puzzles with two hidden cells; the parts share no solution."""
    digits, lines = "123456789"[: box**2], ["source,question,answer,rating"]
    for order in list(permutations(digits))[part * 6 : part * 6 + 6]:
        answer = SOLVED[box].translate(str.maketrans(digits, "".join(order)))
        lines.append(f"own,.{answer[1:-1]}.,{answer},0")
    file.write_text("\n".join(lines) + "\n")
    return file


class World:
    """The creator's clone and a shared store; files that only people hand on are in `theirs`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.theirs, self.shown = folder, {}, ""
        (folder / "given").mkdir()
        self.plugin: Any = Trm()
        self.environ = {"RELAY_STORE": (folder / "store").as_uri(), "RELAY_CPU": "1"}
        self.creator = self.clone("creator", self.environ)
        monkeypatch.setattr(notebook, "follow", self.follow)
        self.clones: dict[Path, Desk] = {}

    def clone(self, name: str, environ: Mapping[str, str]) -> Desk:
        """A fresh clone in a fresh home."""
        return Desk(self.folder / name, {"RELAY_UNTIL_STEP": "1", **environ}, plugin=self.plugin)

    def follow(
        self, words: Sequence[str], environ: Mapping[str, str], folder: Path, line: Any, runtime: Any, document: bool
    ) -> tuple[int, str]:
        """A command of a cell, in this process."""
        with in_cells():
            done = typed_words(Desk(folder, dict(environ), plugin=self.plugin), words)
        self.shown = done.err
        line(done.err)
        return done.code, done.out

    def missing(self, clone: Desk, error: str) -> None:
        """Do what the one message says, with the files that the creator hands on."""
        (command,) = re.findall(r"`([^`]*rotate_accounts.py prepare[^`]*)`", error)
        assert typed(clone, self.brought(command, error)).code == 0

    def missing_in_cells(self, book: Notebook) -> None:
        """The same for a notebook, where the message names a new cell."""
        (cell,) = re.findall(r"`(notebook\.relay\(.*?\))`", self.shown)
        exec(self.brought(cell, self.shown), {"notebook": book})  # noqa: S102 (what the message says)

    def brought(self, advice: str, error: str) -> str:
        """The advice with the paths of the files."""
        for key, path in self.theirs.items():
            assert path.name in error and f"{key}=PATH" in advice, error
            advice = advice.replace(f"{key}=PATH", f"{key}={shlex.quote(str(path))}")
        return advice


def typed(clone: Desk, line: str) -> Result:
    """A shell's line, up to its first failure."""
    done = Result(0, "", "")
    for part in line.split(" && "):
        words, environ = shlex.split(part), {}
        while ASSIGNED.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            environ[name] = value
        if words[0] == "export":
            clone.environ |= dict(word.split("=", 1) for word in words[1:])
            continue
        done = typed_words(clone, words, **environ)
        if done.code not in (0, 75):
            break
    return done


def typed_words(clone: Desk, words: Sequence[str], **environ: str) -> Result:
    """One command; the workflow script prepares, and trains unless told `setup`."""
    if words[0].endswith("bash"):
        done = clone("prepare", code=None, **environ)
        return done if done.code or "setup" in words else clone("run", "--wait", "5", code=None, **environ)
    return clone(*words[words.index("trm_relay") + 1 if "trm_relay" in words else 2 :], code=None, **environ)


def begun_default(world: World) -> tuple[str, ...]:
    return ()


def begun_changed(world: World) -> tuple[str, ...]:
    return (*TINY, "data.train_rows=8", "lr=0.01")


def begun_csv(world: World) -> tuple[str, ...]:
    given = world.folder / "given"
    world.theirs = {f"data.{part}": grids(given / f"{part}.csv", 3, n) for n, part in enumerate(("train", "test"))}
    return ("task=sudoku", *TINY, *(f"{key}={path}" for key, path in world.theirs.items()), "data.train_rows=4")


def begun_maze(world: World) -> tuple[str, ...]:
    return ("task=maze", *TINY, "data.train_rows=2")


def begun_arc(world: World) -> tuple[str, ...]:
    """Its number of variants is the preset's, which a run does not pin."""
    return ("task=arc_small", *TINY)


def begun_text(world: World) -> tuple[str, ...]:
    """A tokenizer is made from a text that the joiner has to bring; the preset's is the hub's."""
    world.plugin = world.creator.plugin = Lm()
    text = world.folder / "given" / "text.txt"
    text.write_text("\n\n".join(f"On day {n} the relay went on to step {n * n}." for n in range(300)))
    world.theirs = {"data.train": text}
    shape = ("arch.depth=1", "arch.width=32", "arch.heads=1", "arch.context=16", "batch_size=2")
    return ("task=lm_fast", *shape, "data.vocab_size=300", f"data.train={text}", "--target-steps", "9")


def begun_folder(world: World) -> tuple[str, ...]:
    folder = world.folder / "given" / "tiny-1k"
    world.creator("prepare", "--folder", str(folder), "data.train_rows=8")
    shutil.rmtree(world.creator.folder / "data", ignore_errors=True)
    world.theirs = {"data.train": folder, "data.test": folder}
    return (*TINY, "data.train_rows=6", *(f"{key}={path}" for key, path in world.theirs.items()))


def begun_hub(world: World) -> tuple[str, ...]:
    return ("task=sudoku", *TINY, "data.train=hub", "data.test=hub", "data.train_rows=4")


def begun_elsewhere(world: World) -> tuple[str, ...]:
    """In another project, and in two stores."""
    stores = {f"RELAY_{part}_STORE": (world.folder / part.lower()).as_uri() for part in ("LEDGER", "CHECKPOINT")}
    world.creator.environ = {"RELAY_CPU": "1", "RELAY_UNTIL_STEP": "1", "RELAY_PROJECT": "lab", **stores}
    return begun_changed(world)


KINDS = [
    begun_elsewhere,
    begun_default,
    begun_changed,
    begun_csv,
    begun_maze,
    begun_arc,
    begun_text,
    begun_folder,
    begun_hub,
]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(tasks, "VALID_ROWS", 2)
    monkeypatch.setattr(tasks, "TEST_ROWS", 2)
    monkeypatch.setattr(hub, "download", lambda repo, path, fetching, instead: (
        path.parent.mkdir(parents=True, exist_ok=True), grids(path, 3, path.name == "test.csv"))[0])  # fmt: skip
    return World(tmp_path, monkeypatch)


def after_one_message(world: World, clone: Desk, line: str, until: int) -> None:
    """Type the line; if the run's data has to be brought, once more after what the message says."""
    clone.environ["RELAY_UNTIL_STEP"] = str(until)
    done = typed(clone, line)
    if world.theirs:
        assert done.code == 78, "the data is not here"
        if "RELAY_STORE" in clone.environ:
            assert clone("doctor", "--run", "ours", code=78).out.count("PATH"), "doctor says the same"
        world.missing(clone, done.err)
        done = typed(clone, line)
    assert done.code == 75, done


def in_a_notebook(world: World, name: str, machine: Mapping[str, str], line: str, until: int) -> None:
    """The cells: set up, settings with the line of the invitation, one session."""
    clone = world.clone(name, {})
    own = {"HOME": str(clone.folder), "RELAY_CPU": "1", "RELAY_UNTIL_STEP": str(until), **machine}
    book = Notebook(folder=clone.folder, environ=dict(own))
    book.set_up()
    exec(line, {"notebook": book, "YOUR_NAME": name.capitalize()})  # noqa: S102 (what the invitation prints)
    if world.theirs:
        with pytest.raises(Stopped, match="78"):
            book.train()
        world.missing_in_cells(book)
    book.train()
    assert book.ended and book.ended["exit_code"] == 75


@pytest.mark.timeout(280)
@pytest.mark.parametrize("kind", KINDS)
def test_every_line_trains_in_a_fresh_clone(kind: Any, world: World) -> None:
    creator, settings = world.creator, kind(world)
    begun = creator("run", "--run", "ours", *settings, code=75)
    assert "NEW run ours" in begun.err
    invitation = creator("invite", "--run", "ours", "--json").json
    line = invitation["shell"].replace("YOUR NAME", "Ben")
    after_one_message(world, world.clone("shell", {"RELAY_CPU": "1"}), line, 2)
    proposed = creator("next", "--run", "ours", "--json").json["command"]
    after_one_message(world, world.clone("next", {"RELAY_CPU": "1"}), proposed, 3)
    in_a_notebook(world, "colab", COLAB, creator("invite", "--run", "ours", "--json").json["notebook"], 4)
    kaggle = creator("invite", "--run", "ours", "--json").json["notebook"].removesuffix(")") + ", coauthor=True)"
    in_a_notebook(world, "kaggle", KAGGLE, kaggle, 5)
    seen = creator.status("ours")
    assert (seen["step"], len(seen["links"])) == (5, 5)
    again = typed(creator, creator("next", "--run", "ours", "--json").json["command"])
    assert again.code == 0, "who began it needs no setting either; its last step is reached"
    assert creator("doctor", "--run", "ours", "--json", code=None).json


def test_a_run_without_a_note_on_its_data_gets_one_from_whoever_has_the_data(world: World) -> None:
    """Begun by an earlier version: the message cannot name the file until the creator trains again."""
    creator = world.creator
    creator("run", "--run", "ours", *begun_csv(world), code=75)
    (note,) = (world.folder / "store").rglob("ours/data.json")
    written = note.read_bytes()
    note.unlink()
    joiner = world.clone("joiner", {**world.environ, "RELAY_UNTIL_STEP": "2"})
    refused = joiner("run", "--run", "ours", code=78).err
    assert "data.train=PATH" in refused and "train.csv" not in refused
    creator("run", "--run", "ours", "--until-step", "2", code=75)
    assert note.read_bytes() == written
    joiner.environ["RELAY_UNTIL_STEP"] = "3"
    world.missing(joiner, joiner("run", "--run", "ours", code=78).err)
    joiner("run", "--run", "ours", code=75)


def test_data_that_changed_is_never_trained_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub's file today, and a joiner's own file: the content decides, whatever a note or a path says."""
    world.creator("run", "--run", "ours", *begun_hub(world), code=75)
    joiner = world.clone("joiner", {**world.environ, "RELAY_UNTIL_STEP": "2"})
    other = grids(world.folder / "given" / "other.csv", 3, 5)
    refused = joiner("run", "--run", "ours", f"data.train={other}", code=78).err
    assert "data.train: the run has hub" in refused and f"data.train={other}" in refused.partition("fork")[2]
    monkeypatch.setattr(hub, "download", lambda repo, path, fetching, instead: (
        path.parent.mkdir(parents=True, exist_ok=True), grids(path, 3, 4))[0])  # fmt: skip
    assert "hub" in joiner("run", "--run", "ours", code=78).err
    assert world.creator.status("ours")["step"] == 1
