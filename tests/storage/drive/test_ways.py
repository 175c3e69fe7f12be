"""Two ways of a log, several accounts, ids bound to a user: what is probed, recorded, and said."""

from __future__ import annotations

import pytest

from storage.base import BadAddress, Corrupt, Exists, Ref, Store
from storage.drive import __main__ as command
from storage.drive.directory import Table, decode
from storage.drive.errors import NotOurs, UsedUp
from storage.drive.members import go_on_by_newest, join, membership
from storage.drive.store import DriveStore
from storage.guides import GUIDES
from storage.log import Log, Lost, Won
from tests.facts import raising
from tests.storage.counting import CountingStore
from tests.storage.drive.handle import Fake, Person
from tests.storage.drive.stores import Drive, connect, holding

PREFIX = "runs/p/r/ledger/"
IDENTITY = "trm-relay.store.json"


def log_on(store: Store) -> Log:
    return Log(store, PREFIX, sleep=lambda _: None)


@pytest.fixture
def friends(fake: Fake) -> tuple[Person, Person]:
    """Two people with tokens of their own accounts, of the whole scope."""
    return fake.person(("drive",)), fake.person(("drive",))


def shared(fake: Fake, friends: tuple[Person, Person]) -> tuple[DriveStore, DriveStore]:
    """One store in a folder that the first shares with the second."""
    ana, ben = friends
    drive = Drive(ana, own=True)
    ana.share(drive.address.split("/")[2], **{ben.name: "writer"})
    return drive.store(), connect(ben, drive.address, own=True)


def test_a_log_changes_over_and_whoever_reads_it_follows(drive: Drive) -> None:
    old = log_on(drive.store())
    for seq in range(5):
        old.append(seq, b"chain %d" % seq)
    go_on_by_newest(drive.store())
    writer = log_on(drive.store())
    assert writer.tail() == 4
    for seq in range(5, 30):
        assert isinstance((writer if seq % 2 else old).append(seq, b"newest %d" % seq), Won)
        assert (old if seq % 2 else writer).append(seq, b"late") == Lost(b"newest %d" % seq)
    reader = log_on(drive.store())
    assert reader.tail() == reader.tail(3) == 29
    assert [reader.read(seq) for seq in (0, 4, 5, 6, 17, 28, 29)] == [
        b"chain 0", b"chain 4", b"newest 5", b"newest 6", b"newest 17", b"newest 28", b"newest 29",
    ]  # fmt: skip
    assert reader.gaps(29) == []
    reader.publish_hint(29, "a" * 64)
    assert log_on(drive.store()).tail() == 29


def test_a_log_that_begins_this_way_costs_few_requests(drive: Drive) -> None:
    go_on_by_newest(drive.store())
    writer = log_on(drive.store())
    for seq in range(40):
        writer.append(seq, b"%d" % seq)
    counting = CountingStore(drive.store())
    reader = log_on(counting)
    assert reader.tail() == 39
    before = counting.reads
    assert reader.read(0) == b"0" and reader.read(39) == b"39" and reader.read(38) == b"38"
    assert counting.reads - before <= 3 * 2 + 7, "a logarithm of the slots between"


def test_a_moved_etag_alone_loses_nothing(drive: Drive, fake: Fake) -> None:
    go_on_by_newest(drive.store())
    log = log_on(drive.store())
    log.append(0, b"genesis")
    log.append(1, b"one")
    fake.control("touch", file=log.ref(1))
    assert isinstance(log.append(2, b"two"), Won)


def test_the_file_of_the_newest_entry_deleted_by_hand_is_damage_and_no_empty_log(drive: Drive, fake: Fake) -> None:
    go_on_by_newest(drive.store())
    log = log_on(drive.store())
    log.append(0, b"genesis")
    log.append(1, b"one")
    fake.control("remove", file=log.ref(1))
    for ask in (log_on(drive.store()).tail, lambda: log.append(2, b"two")):
        with raising(Corrupt):
            ask()


def test_two_accounts_share_a_chain_where_ids_serve_everybody(fake: Fake, friends: tuple[Person, Person]) -> None:
    mine, theirs = shared(fake, friends)
    assert isinstance(log_on(mine).append(0, b"genesis"), Won)
    assert isinstance(log_on(theirs).append(1, b"theirs"), Won)
    assert log_on(mine).append(1, b"late") == Lost(b"theirs")
    found = membership(mine)
    assert sorted(found.accounts.values()) == ["began", "chain"] and found.way == "chain"
    assert "2" in " ".join(found.lines), "accounts"
    assert friends[0].name not in str(found) and "@" not in str(found)
    spare = mine.directory.table().spare
    assert spare is not None
    joined = [f for f in friends[1].look()["files"].values() if "joined-" in f["name"]]
    assert len(joined) == 1, "the file of the probe stays"


def test_a_probe_that_was_made_and_deleted_bars_nobody(fake: Fake, friends: tuple[Person, Person]) -> None:
    mine, theirs = shared(fake, friends)
    spare = mine.directory.table().spare
    assert spare is not None
    mine.delete(mine.create(spare, "directory/joined-somebody", b"joined"))
    assert isinstance(log_on(theirs).append(0, b"genesis"), Won)


def test_where_ids_are_bound_a_newcomer_is_told_what_a_member_can_do(
    fake: Fake, friends: tuple[Person, Person], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = shared(fake, friends)
    with fake.ways(ids="owner"):
        log = log_on(mine)
        log.append(0, b"genesis")
        for write in (lambda: log_on(theirs).append(1, b"theirs"), theirs.describe):
            with raising(BadAddress, f"python -m storage.drive newest {mine.address}"):
                write()
        (ref,) = mine.reserve(1)
        with raising(NotOurs, GUIDES["drive"]):
            theirs.create(ref, "a", b"")
        for name, value in holding(friends[0], own=True).items():
            monkeypatch.setenv(name, value)
        assert command.main(["newest", mine.address + "#id=" + "0" * 32]) == 0
        assert command.main(["newest", mine.address]) == 0, "twice is once"
        member = connect(friends[0], mine.address, own=True)
        assert membership(member).way == "newest"
        assert isinstance(log_on(member).append(1, b"a member's next entry closes the chain"), Won)
        newcomer = connect(friends[1], mine.address, own=True)
        assert log_on(newcomer).tail() == 1
        assert isinstance(log_on(newcomer).append(2, b"theirs"), Won)
        assert log_on(member).read(2) == b"theirs"
        assert isinstance(Log(newcomer, "runs/p/new/ledger/", sleep=lambda _: None).append(0, b"genesis"), Won)
        assert sorted(membership(member).accounts.values()) == ["began", "bound"]


def test_the_default_is_one_account_and_says_so(drive: Drive, monkeypatch: pytest.MonkeyPatch) -> None:
    for client in (drive.store(), drive.store()):
        assert join(client) == "began"
    assert drive.store().describe() == drive.store(read_only=True).describe()
    found = membership(drive.store(read_only=True))
    assert (found.way, list(found.accounts.values()), found.source) == ("chain", ["began"], "RELAY_DRIVE_TOKEN")


def test_the_command_refuses_wrong_words_and_tells_errors(drive: Drive, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["members"]) == 2 and command.main(["other", drive.address]) == 2
    assert command.main(["members", drive.address]) == 69
    assert "RELAY_DRIVE_TOKEN" in capsys.readouterr().err


def test_names_are_bound_once_whoever_asks_first(drive: Drive) -> None:
    a, b = drive.store(), drive.store()
    ref = a.put_if_absent(IDENTITY, b"first")
    with pytest.raises(Exists):
        b.put_if_absent(IDENTITY, b"second")
    assert b.ref(IDENTITY) == ref and b.get(ref) == b"first"
    a.delete(ref)
    with raising(UsedUp):
        b.put_if_absent(IDENTITY, b"third")


def test_an_address_that_leads_nowhere_says_so(drive: Drive, fake: Fake) -> None:
    folder = drive.address.split("/")[2]
    (unused,) = drive.store().reserve(1)
    with raising(BadAddress, unused):
        connect(drive.person, f"drive://{folder}/{unused}").ref("a")
    stranger = fake.person()
    with raising(BadAddress, drive.address):
        connect(stranger, drive.address).ref("a")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"[" * 9999, b'{"format":1}'])
def test_a_table_is_strict(data: bytes) -> None:
    assert decode(data) is None
    good = Table({"a": "x" * 20}, {"m": "began"}, None, None, "newest")  # type: ignore[dict-item]
    assert decode(good.encode()) == good
    assert decode(good.encode().replace(b'"a"', b'"../a"')) is None
    assert decode(good.encode().replace(b'"spare": null', b'"spare": "!!"')) is None
    assert decode(good.encode().replace(b"newest", b"other!")) is None


def test_a_table_that_is_full_says_so(drive: Drive) -> None:
    directory = drive.store().directory
    most = Table({f"{'run' * 60}/{n}": Ref("x" * 33) for n in range(1200)})
    with raising(BadAddress, drive.address):
        directory.change(lambda table: most)
    assert directory.way == "chain" and not directory.table().names
