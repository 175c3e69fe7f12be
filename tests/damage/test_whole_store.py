"""A few random changes anywhere in a small store, then the commands people type: codes of the table, never a lie."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from relay.core.errors import RelayError
from tests.core.toy import hash_of, state_at
from tests.damage.scene import Picture, Scene, content
from tests.damage.test_restoring import mutate
from tests.rehash import held

KINDS = ("change", "cut", "insert", "leave out", "swap", "remove", "copy")
CHANGE = st.tuples(
    st.integers(0, 10_000),
    st.sampled_from(KINDS),
    st.floats(0, 1),
    st.binary(min_size=1, max_size=30),
    st.integers(0, 99),
)


def change(scene: Scene, which: int, kind: str, at: float, junk: bytes, other: int) -> None:
    """One change to one object; `swap` and `copy` take the bytes of another."""
    names = [stat.name for stat in scene.store.list("") if not stat.name.startswith("selftest/")]
    one, two = names[which % len(names)], names[other % len(names)]
    mine, theirs = (scene.store.get(scene.store.ref(name)) for name in (one, two))
    if kind == "remove":
        scene.store.delete(scene.store.ref(one))
    elif kind in ("swap", "copy"):
        scene.store.put(one, theirs)
        scene.store.put(two, mine if kind == "swap" else theirs)
    else:
        scene.store.put(one, mutate(mine, kind, at, junk))


@settings(
    max_examples=20,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(CHANGE, min_size=1, max_size=4))
def test_whatever_is_changed_commands_end_by_the_table_and_no_wrong_state_is_called_good(
    picture: Picture, changes: list[tuple[int, str, float, bytes, int]]
) -> None:
    with TemporaryDirectory() as folder:
        here = Scene.of(picture, Path(folder) / "desk", "memory")
        for one in changes:
            change(here, *one)
        before = content(here.store)
        for words in (("status", "--json"), ("report",), ("verify",)):
            here.command(*words)
        assert content(here.store) == before, "readers write nothing"
        done = here.train(40)
        here.check_kept(before)
        good_states(here)
        assert done.code != 0 or here.state().step == 40


def good_states(scene: Scene) -> None:
    """Every checkpoint that the run may go on from, and whose files verify, is the state of an unbroken run."""
    try:
        state = scene.state()
    except RelayError:
        return
    if state.run != "hurt":
        return  # another run's ledger under this name: no command believes it
    rows = {(row["step"], row["epoch"]): row["ok"] for row in scene.verify().get("checkpoints", [])}
    for one in state.undamaged:
        assert not rows.get(one.key) or held(scene.store, one) == hash_of(one.step, state_at(one.step))
