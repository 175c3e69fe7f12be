"""Every file of a checkpoint, hurt in every way: the newest sound one is found, with evidence, and nothing is lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from relay.core.workload import Saved
from storage.base import Ref
from storage.wrapper import Wrapper
from tests.app.cli import wrap_stores
from tests.core.toy import ToySnapshot, hash_of, state_at
from tests.damage.harms import HARMS, PICKLE, ZSTD_BOMB
from tests.damage.scene import BACKENDS, NAMES, OTHER, Scene, content
from tests.rehash import held

FILES = ("state.json", "ema.json", "manifest.json")
SWAPPED: dict[str, Callable[[Scene, str], bytes]] = {
    "another checkpoint's": lambda scene, file: scene.picture.store[NAMES.checkpoint(20, 2) + file],
    "another run's": lambda scene, file: scene.picture.store[OTHER.checkpoint(20, 1) + file],
    "a pickle": lambda scene, file: PICKLE,
    "a zstd bomb": lambda scene, file: ZSTD_BOMB,
    "the ledger's newest entry": lambda scene, file: scene.picture.store[
        max(n for n in scene.picture.store if n.startswith(NAMES.ledger))
    ],
}
HEAD, OLDER = NAMES.checkpoint(30, 3), NAMES.checkpoint(20, 2)


def goes_back(scene: Scene, name: str) -> None:
    """The next session leaves the damaged head by a rewind that names file and session, and trains on exactly."""
    before = content(scene.store)
    rows = {row["step"]: row for row in scene.verify(code=65)["checkpoints"]}
    assert [step for step, row in rows.items() if not row["ok"]] == [30] and name in rows[30]["reason"]
    scene.train(40, code=0)
    state = scene.check_sound(before)
    assert state.step == 40 and [c.key for c in state.retained if c.damaged] == [(30, 3)]
    (told,) = [text for text in scene.incidents() if text.startswith("rewind: ")]
    assert "step_30.e3" in told and name in told


@pytest.mark.parametrize(
    ("file", "harm"),
    [
        *(("state.json", harm) for harm in HARMS),
        *(("manifest.json", h) for h in ("middle", "emptied", "huge", "missing")),
    ],
)
def test_i6_a_damaged_head_is_left_for_the_newest_sound_checkpoint(
    scene: Callable[[str], Scene], file: str, harm: str
) -> None:
    here = scene("memory")
    here.harm(HEAD + file, HARMS[harm])
    goes_back(here, HEAD + file)


@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
@pytest.mark.parametrize("what", SWAPPED)
def test_another_file_in_its_place_is_never_taken_for_it(scene: Callable[[str], Scene], file: str, what: str) -> None:
    here = scene("memory")
    here.store.put(HEAD + file, SWAPPED[what](here, file))
    goes_back(here, HEAD + file)
    assert not list(here.desk.folder.rglob("pickled_marker"))


@pytest.mark.parametrize(
    ("file", "harm"), [("state.json", "middle"), ("ema.json", "missing"), ("manifest.json", "half")]
)
def test_on_a_folder_it_is_the_same(scene: Callable[[str], Scene], file: str, harm: str) -> None:
    here = scene("local")
    here.harm(HEAD + file, HARMS[harm])
    goes_back(here, HEAD + file)


@pytest.mark.parametrize(
    ("file", "harm"), [("state.json", "middle"), ("ema.json", "missing"), ("manifest.json", "half")]
)
def test_damage_behind_the_head_stops_nobody_and_verify_names_it(
    scene: Callable[[str], Scene], file: str, harm: str
) -> None:
    here = scene("memory")
    here.harm(OLDER + file, HARMS[harm])
    before = content(here.store)
    here.train(40, code=0)
    assert here.check_sound(before).step == 40
    (bad,) = [row for row in here.verify(code=65)["checkpoints"] if not row["ok"]]
    assert bad["step"] == 20 and OLDER + file in bad["reason"]


def test_i6_with_every_checkpoint_damaged_it_stops_and_names_them_all(scene: Callable[[str], Scene]) -> None:
    here = scene("memory")
    damaged = [NAMES.checkpoint(step, epoch) + "state.json" for step, epoch in ((10, 1), (20, 2), (30, 3))]
    for name in damaged:
        here.harm(name, HARMS["middle"])
    before = content(here.store)
    refused = here.train(40, code=65)
    assert all(name in refused.err for name in damaged)
    here.check_kept(before)
    assert here.state().step == 30


def test_this_machines_copy_of_a_damaged_head_is_committed_again(scene: Callable[[str], Scene]) -> None:
    here = scene("memory").with_disk()
    here.harm(HEAD + "state.json", HARMS["middle"])
    before = content(here.store)
    here.train(40, code=0)
    state = here.check_sound(before)
    assert state.step == 40 and (30, 4) in {one.key for one in state.undamaged}, "step 30 once more, in a new epoch"
    assert here.verify(code=0)["ok"], "damage that a rewind has left behind is known"


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_whole_checkpoint_of_another_run_in_its_place_is_damage(scene: Callable[[str], Scene], backend: str) -> None:
    """All files fit each other; only the ledger shows that other ones were committed."""
    here = scene(backend)
    for file in FILES:
        here.store.put(HEAD + file, here.picture.store[OTHER.checkpoint(20, 1) + file])
    goes_back(here, HEAD + "manifest.json")


@pytest.mark.parametrize("command", ["export", "evaluate", "fork"])
def test_what_reads_one_checkpoint_refuses_a_damaged_one_and_names_it(
    scene: Callable[[str], Scene], command: str
) -> None:
    here = scene("memory")
    here.harm(HEAD + "state.json", HARMS["middle"])
    words = {"export": (), "evaluate": (), "fork": ("--to", "second")}[command]
    refused = here.command(command, *words, code=65)
    assert HEAD + "state.json" in refused.err
    assert not (here.desk.folder / "export").exists() and not here.picture.store.keys() - content(here.store).keys()
    done = here.command(command, *words, "--from-step" if command == "fork" else "--step", "20", code=0)
    assert "20" in done.out
    older = next(c for c in here.state().retained if c.step == 20)
    assert hash_of(20, state_at(20)) == held(here.store, older)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("file", ["state.json", "manifest.json"])
def test_what_lies_where_a_session_would_store_its_checkpoint_stays(
    scene: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, backend: str, file: str
) -> None:
    """It comes while the session runs: of a later epoch it would have been evidence of a lost entry."""
    here, folder = scene(backend), NAMES.checkpoint(40, 4)

    class Meddling(Wrapper):
        def put_new(self, name: str, data: bytes | Path) -> Ref:
            if name == folder + file:
                here.store.put(name, b"a stranger's")
            return self.inner.put_new(name, data)

    before = content(here.store)
    with monkeypatch.context() as patch:
        wrap_stores(patch, Meddling)
        here.train(40, code=0)
    state = here.check_sound(before)
    assert state.head is not None and state.head.aside and state.head.key == (40, 4)
    assert here.store.get(here.store.ref(folder + file)) == b"a stranger's"
    assert here.verify(code=0)["ok"]
    here.train(50, code=0)
    assert here.check_sound(before).step == 50


@pytest.mark.parametrize("what", ["the hash", "the files"])
def test_i9_a_head_whose_files_hold_another_state_than_it_names_is_left(
    scene: Callable[[str], Scene], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each file is as it was stored: only loading it shows."""
    here, real = scene("memory"), ToySnapshot.save

    def save(snapshot: ToySnapshot, folder: Path) -> Saved:
        saved = real(snapshot, folder)
        if what == "the hash":
            return replace(saved, state_hash="0" * 64)
        path = folder / "state.json"
        path.write_text(path.read_text().replace(str(snapshot.values[0]), str(snapshot.values[0] ^ 1)))
        return saved

    with monkeypatch.context() as patch:
        patch.setattr(ToySnapshot, "save", save)
        here.train(40, code=0)
    assert here.verify(code=0)["ok"], "every byte is as it was written"
    found = json.loads(here.command("verify", "--deep", "--json", code=65).out)
    loaded = [(row["step"], row["loaded"]) for row in found["checkpoints"]]
    assert loaded == [(20, True), (30, True), (40, False)]
    before = content(here.store)
    here.train(50, code=0)
    assert here.check_sound(before).step == 50
    (told,) = [line for line in here.incidents() if line.startswith("rewind: ")]
    assert "step_40.e4" in told
    here.command("verify", "--deep", code=0)
