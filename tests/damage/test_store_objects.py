"""Damage to objects other than checkpoints: slots of logs, identity, accounts, heartbeats, notes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from relay.core.errors import BadData
from relay.core.lease.heartbeat import read_stop_request
from relay.core.ledger import rules
from relay.core.runs.opening import read_identity
from storage.memory import MemoryStore
from tests.app.cli import Desk
from tests.damage.harms import HARMS, HOSTILE_JSON, PICKLE, Harm
from tests.damage.scene import BACKENDS, NAMES, OTHER, PROJECT, Scene, content, paint, slot

IDENTITY = "trm-relay.store.json"
ALL = ("middle", "emptied", "huge", "missing")
REGISTRY = "registry/ledger/{:020d}.json"
ONE_OF_EACH: dict[str, Harm] = {
    **{name: HARMS[name] for name in ("first byte", "middle", "last byte lost", "emptied", "zeros more", "huge")},
    "another slot's": lambda data: data.replace(b'"seq":', b'"sex":'),
    "a pickle": lambda data: PICKLE,
    "deep": lambda data: HOSTILE_JSON["deep lists"],
}
MakeScene = Callable[[str], Scene]


@pytest.mark.parametrize(
    ("seq", "harm"), [*((5, harm) for harm in ONE_OF_EACH), (0, "middle"), (0, "emptied"), (1, "huge"), (8, "middle")]
)
def test_a_damaged_entry_below_an_intact_one_costs_nothing_and_verify_names_its_slot(
    scene: MakeScene, seq: int, harm: str
) -> None:
    here = scene("memory")
    here.harm(slot(NAMES, seq), ONE_OF_EACH[harm])
    before = content(here.store)
    assert any(f"slot {seq} " in one["text"] for one in here.verify(code=65)["incidents"])
    here.train(40, code=0)
    assert here.check_sound(before).step == 40


@pytest.mark.parametrize("seq", [0, 4, 8])
@pytest.mark.parametrize("backend", BACKENDS)
def test_i1_a_missing_entry_stops_every_command_and_is_named(scene: MakeScene, backend: str, seq: int) -> None:
    here = scene(backend)
    here.harm(slot(NAMES, seq), HARMS["missing"])
    before = content(here.store)
    for words in (("status",), ("report",), ("verify",), ("run", "--account", "account_1", "--target-steps", "40")):
        refused = here.command(*words, code=65)
        assert f"{seq:020d}.json" in refused.err + refused.out
    assert content(here.store) == before


@pytest.mark.parametrize("seq", range(6))
@pytest.mark.parametrize("harm", ["middle", "emptied"])
def test_a_damaged_entry_of_the_registry_stops_nobody(scene: MakeScene, seq: int, harm: str) -> None:
    here = scene("memory")
    here.harm(REGISTRY.format(seq), HARMS[harm])
    before = content(here.store)
    here.train(40, code=0)
    assert here.check_sound(before).step == 40


@pytest.mark.parametrize("harm", ["middle", "emptied", "another slot's"])
@pytest.mark.parametrize("seq", [0, 2, 4])
def test_verify_names_a_damaged_slot_of_the_registry(scene: MakeScene, seq: int, harm: str) -> None:
    here = scene("memory")
    assert here.verify(code=0)["ok"]
    here.harm(REGISTRY.format(seq), ONE_OF_EACH[harm] if harm in ONE_OF_EACH else HARMS[harm])
    found = here.verify(code=65)
    assert [(one["cause"], one["slot"]) for one in found["incidents"]] == [("registry", seq)]
    assert found["incidents"][0]["file"] == REGISTRY.format(seq) and found["incidents"][0]["advice"]
    assert f"registry slot {seq}" in here.command("verify", code=65).out


@pytest.mark.parametrize("seq", [0, 2])
def test_verify_names_a_missing_slot_of_the_registry(scene: MakeScene, seq: int) -> None:
    here = scene("memory")
    here.harm(REGISTRY.format(seq), HARMS["missing"])
    found = here.verify(code=65)
    assert [(one["cause"], one["slot"], one["file"]) for one in found["incidents"]] == [
        ("registry", seq, REGISTRY.format(seq))
    ]
    assert "backup" in found["incidents"][0]["advice"]


@pytest.mark.parametrize("seq", [0, 2])
def test_i1_a_missing_entry_of_the_registry_stops_and_is_named(scene: MakeScene, seq: int) -> None:
    here = scene("memory")
    here.harm(REGISTRY.format(seq), HARMS["missing"])
    before = content(here.store)
    assert REGISTRY.format(seq) in here.train(40, code=65).err
    here.check_kept(before)


class Told(NamedTuple):
    """The output of every command, and its exit code."""

    code: int
    parts: tuple[str, ...]


IDENTITIES: dict[str, tuple[Harm, Told]] = {
    **{name: (HARMS[name], Told(65, (IDENTITY, "backup"))) for name in ("first byte", "half", "emptied", "huge")},
    "missing": (HARMS["missing"], Told(78, ("without an identity", "RELAY_STORE"))),
    "another's": (lambda data: b'{"format":1,"id":"' + b"0" * 32 + b'"}', Told(78, ("0" * 32, "RELAY_STORE"))),
}


@pytest.mark.parametrize("what", IDENTITIES)
def test_a_store_whose_identity_is_damaged_is_not_written_to(scene: MakeScene, what: str) -> None:
    here = scene("memory")
    harm, told = IDENTITIES[what]
    here.harm(IDENTITY, harm)
    before = content(here.store)
    refused = here.train(40, code=told.code)
    assert all(part in refused.err for part in told.parts)
    assert content(here.store) == before


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_identity_is_damage(what: str) -> None:
    store = MemoryStore()
    store.put(IDENTITY, HOSTILE_JSON[what])
    with pytest.raises(BadData, match=IDENTITY):
        read_identity(store)


def account_object(here: Scene, account: str) -> str:
    (name,) = [name for name in here.picture.store if name.startswith(f"registry/accounts/{account}/")]
    return name


@pytest.mark.parametrize("harm", [*ALL, "twice"])
def test_a_damaged_account_stops_only_itself_until_it_is_registered_again(scene: MakeScene, harm: str) -> None:
    here = scene("memory")
    here.harm(account_object(here, "account_1"), HARMS[harm])
    before = content(here.store)
    refused = here.train(40, code=65)
    assert "account_1" in refused.err and "register account_1" in refused.err
    here.command("report", code=0)
    here.desk("run", "--run", "hurt", "--account", "account_2", "--target-steps", "40", code=0)
    here.desk("register", "account_1", "John's Colab", code=0)
    here.train(50, code=0)
    assert here.check_sound({n: d for n, d in before.items() if "registry/accounts/" not in n}).step == 50


@pytest.mark.parametrize(
    "what", ["deep lists", "huge integer", "NaN", "not UTF-8", "lone surrogate", "10 MB", "pickle"]
)
def test_a_hostile_account_object_is_shown_as_unreadable(scene: MakeScene, what: str) -> None:
    here = scene("memory")
    here.store.put(account_object(here, "account_2"), HOSTILE_JSON[what])
    assert "account_2" in here.command("report", code=0).out
    assert "account_2" in here.desk("accounts", "list", code=0).out


ADVISORY = {
    "the hint": NAMES.home + "ledger.hint",
    "the registry's hint": "registry/ledger.hint",
    "a heartbeat": NAMES.heartbeat(3),
    "a request to stop": NAMES.stop(3),
    "a session's report": NAMES.session(3),
    "another run's newest entry": slot(OTHER, 3),
    "another run's genesis": slot(OTHER, 0),
    "another run's checkpoint": OTHER.checkpoint(20, 1) + "state.json",
    "the note of a fork": NAMES.checkpoints.replace("/hurt/", "/branch/") + "fork",
}


@pytest.mark.parametrize("harm", ["middle", "missing"])
@pytest.mark.parametrize("what", ADVISORY)
def test_what_is_only_advice_or_another_runs_is_passed_over(scene: MakeScene, what: str, harm: str) -> None:
    here = scene("memory")
    here.harm(ADVISORY[what], HARMS[harm])
    before = content(here.store)
    here.train(40, code=0)
    assert here.check_sound(before).step == 40
    assert here.verify(code=0)["ok"]


@pytest.mark.parametrize("harm", [*ALL, "zeroed"])
def test_a_damaged_report_of_a_session_hides_nothing_that_the_ledger_tells(scene: MakeScene, harm: str) -> None:
    here = scene("memory")
    here.harm(NAMES.session(3), HARMS[harm])
    told = here.command("report", "--session", "3", "--json").json
    assert told["report"] is None and told["why"] and told["link"]["to_step"] == 30
    assert here.command("report", "--session", "2", "--json").json["report"]["epoch"] == 2
    assert here.command("report", "--sessions", "--json").json["missing"] is None


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_report_of_a_session_is_left_aside(scene: MakeScene, what: str) -> None:
    here = scene("memory")
    here.store.put(NAMES.session(3), HOSTILE_JSON[what])
    assert here.command("report", "--session", "3", "--json").json["report"] is None


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_request_to_stop_stops_nobody(what: str) -> None:
    store = MemoryStore()
    store.put(NAMES.stop(4), HOSTILE_JSON[what])
    assert read_stop_request(store, NAMES, 4) is None


def test_a_heartbeat_of_an_epoch_that_never_was_is_evidence_of_a_lost_entry(scene: MakeScene) -> None:
    here = scene("memory")
    here.store.put(NAMES.heartbeat(9), b"{}")
    before = content(here.store)
    refused = here.train(40, code=65)
    assert NAMES.heartbeat(9) in refused.err
    assert content(here.store) == before


@pytest.mark.parametrize("harm", [*ALL, "first byte"])
def test_a_damaged_note_of_a_fork_refuses_that_name_only(scene: MakeScene, harm: str) -> None:
    """The note claims a name while files are copied; the fork broke off before its run began."""
    here = scene("memory")
    branch = NAMES.checkpoints.replace("/hurt/", "/third/")
    here.store.put(branch + "fork", here.picture.store[ADVISORY["the note of a fork"]])
    here.harm(branch + "fork", HARMS[harm])
    refused = here.command("fork", "--to", "third", code=0 if harm == "missing" else 78)
    assert harm == "missing" or "--to" in refused.err
    here.command("fork", "--to", "fourth", code=0)


def test_a_damaged_history_hides_only_the_oldest_sessions(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two links fill a state here, so that the oldest is moved out."""
    monkeypatch.setattr(rules, "MAX_LINKS", 2)
    picture = paint(tmp_path_factory.mktemp("history"))
    name = max(name for name in picture.store if name.startswith(NAMES.home + "history/"))
    for harm in (*ALL, "zeroed"):
        here = Scene.of(picture, tmp_path_factory.mktemp("hurt"), "memory")
        here.harm(name, HARMS[harm])
        before = content(here.store)
        assert any(name in one["text"] for one in here.verify(code=65)["incidents"])
        here.train(40, code=0)
        assert here.check_sound(before).step == 40


def test_a_folder_or_a_link_in_place_of_an_object_is_refused_and_nothing_behind_it_is_read(scene: MakeScene) -> None:
    here = scene("local")
    root, outside = here.desk.folder / "shared", here.desk.folder / "secret"
    outside.write_bytes(here.picture.store[NAMES.checkpoint(30, 3) + "state.json"])
    path = root / NAMES.checkpoint(30, 3) / "state.json"
    path.unlink()
    path.symlink_to(outside)
    refused = here.train(40, code=69)
    assert str(path) in refused.err
    path.unlink()
    path.mkdir()
    before = content(here.store)
    here.train(40, code=0)
    assert here.check_sound(before).step == 40 and outside.read_bytes()


def test_a_store_of_strangers_names_hurts_nobody(scene: MakeScene) -> None:
    """Names no session writes, wherever sessions list: upper case twins, long ones, hidden ones, odd numbers."""
    here = scene("local")
    root = here.desk.folder / "shared"
    for name in (
        "checkpoints/" + PROJECT + "/HURT/step_30.e3/state.json",
        NAMES.checkpoints + "STEP_30.E3/state.json",
        NAMES.checkpoints + "step_030.e3/state.json",
        NAMES.checkpoints + "step_99999999999999999.e1/state.json",
        NAMES.checkpoints + "step_1.e1.e1/x",
        NAMES.checkpoints + "step_30.e3/" + "s" * 199,
        NAMES.checkpoints + "step_30.e3/.hidden",
        NAMES.ledger + "1.json",
        NAMES.ledger + "99999999999999999999.json",
        NAMES.ledger + "00000000000000000002.JSON",
        NAMES.home + "heartbeat.x",
        NAMES.home + "heartbeat." + "²",
        NAMES.home + "stop.",
        "registry/accounts/account_1/../account_1/x",
    ):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"?")
    before = content(here.store)
    here.train(40, code=0)
    assert here.check_sound(before).step == 40
    assert here.verify(code=0)["ok"]


def test_the_desk_of_these_tests_is_a_real_one(scene: MakeScene) -> None:
    """Without any harm every command ends well."""
    here = scene("local")
    for word in ("status", "report", "verify", "doctor"):
        here.command(word, code=0)
    here.train(40, code=0)
    assert isinstance(here.desk, Desk) and here.check_sound(here.picture.store).step == 40
