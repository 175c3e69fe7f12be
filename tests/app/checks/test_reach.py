"""doctor's findings about a store: credentials' source, promises, clock, speed, room; it leaves nothing there."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from relay.app.checks.doctor import Finding
from relay.app.checks.reach import LONG_ENOUGH_S, SIZES, Reach, reach
from relay.app.checks.space import UNKNOWN_FREE
from relay.app.checks.storetable import document, stores_text
from relay.app.messages.wording import size
from relay.core.clock import RealRuntime
from storage.base import BadAddress, Denied, Ref, Store, Unavailable
from storage.local import LocalStore
from storage.memory import MemoryStore
from storage.retry import RetryStore
from storage.wrapper import Wrapper
from tests.storage.counting import CountingStore
from tests.storage.faulty import Fault, FaultyStore


class Stopwatch(RealRuntime):
    """A clock that only its owner moves."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Far(MemoryStore):
    """Takes a second for so many bytes up, half of that down."""

    def __init__(self, runtime: Stopwatch, bytes_s: float = 1e6, source: str | None = "env", name: str = "") -> None:
        super().__init__(name or None)
        self.runtime, self.bytes_s, self.source = runtime, bytes_s, source
        self.sent: list[bytes] = []

    def credentials_source(self) -> str | None:
        return self.source

    def quota(self) -> tuple[int, int | None]:
        return 3_000_000_000, 5_000_000_000

    def put(self, name: str, data: bytes | Path) -> Ref:
        assert isinstance(data, bytes)
        self.sent.append(data)
        self.runtime.seconds += len(data) / self.bytes_s
        return super().put(name, data)

    def get(self, ref: Ref, *, limit: int | None = None) -> bytes:
        data = super().get(ref, limit=limit)
        self.runtime.seconds += len(data) / self.bytes_s / 2
        return data


class NoQuota(Far):
    """A token that may do everything but ask how much is free."""

    def quota(self) -> tuple[int, int | None]:
        raise Denied("the token lacks the permission account_info.read")


def looked(store: Far) -> tuple[Reach, list[Finding]]:
    found = Reach(store.address, "ledger and checkpoints")
    return found, list(reach(CountingStore(store), store, found, store.runtime))


def test_everything_is_found_out_and_nothing_is_left() -> None:
    store = Far(Stopwatch())
    found, told = looked(store)
    assert all(finding.ok for finding in told)
    assert (found.credentials, found.exclusive, found.free) == ("environment variables", True, 2_000_000_000)
    assert found.upload == pytest.approx(1e6) and found.download == pytest.approx(2e6)
    assert list(store.list("")) == []


@pytest.mark.parametrize(("bytes_s", "sent"), [(1e5, SIZES[:1]), (3e6, SIZES[:2]), (1e9, SIZES)])
def test_the_trial_is_as_long_as_the_line_is_fast(bytes_s: float, sent: tuple[int, ...]) -> None:
    store = Far(Stopwatch(), bytes_s)
    looked(store)
    trials = [data for data in store.sent if len(data) in SIZES]
    assert tuple(map(len, trials)) == sent
    assert sum(sent) / bytes_s < 8 * LONG_ENOUGH_S * 4 or len(sent) == 1
    assert len(set(trials[0][:4096])) > 250, "nothing that a line or a disk could compress"


def test_a_slow_store_missing_credentials_and_an_untold_quota_are_remarks() -> None:
    found, told = looked(NoQuota(Stopwatch(), 1e5, None))
    odd = {finding.subject: finding for finding in told if not finding.ok}
    assert set(odd) == {"credentials", "speed"} and "checkpoint.every_steps" in odd["speed"].advice
    assert not any(finding.code for finding in told)
    assert found.free is None and found.credentials is None


def test_a_store_on_this_machine_needs_no_credentials_and_tells_its_disk(tmp_path: Path) -> None:
    store, found = LocalStore(tmp_path / "store"), Reach("file:///x", "ledger")
    store.put("a", b"")
    list(reach(store, LocalStore(tmp_path / "store"), found, RealRuntime()))
    assert found.credentials == "" and found.free and found.exclusive and found.upload and found.download


class Overwrites(Wrapper):
    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self.inner.put(name, data)


def test_a_store_that_two_clients_could_both_win_on_is_shown_as_broken(capsys: pytest.CaptureFixture[str]) -> None:
    found = Reach("s3://x", "ledger")
    with pytest.raises(BadAddress, match="overwrote"):
        list(reach(Overwrites(MemoryStore("w")), Overwrites(MemoryStore("w")), found, Stopwatch()))
    assert found.exclusive is False and document(found)["put_if_absent"] is False
    assert "BROKEN" in stores_text([found], None, True)


class Other(Wrapper):
    """A second client to which the first one's writes never become visible."""

    def put_if_absent(self, name: str, data: bytes) -> Ref:
        return self.inner.put_if_absent(name + "-elsewhere", data)


def test_a_promise_kept_only_within_one_client_is_no_promise() -> None:
    with pytest.raises(BadAddress, match="put_if_absent overwrote"):
        list(reach(MemoryStore("z"), Other(MemoryStore("z")), Reach("x", "ledger"), Stopwatch()))


class Silent(MemoryStore):
    def stat(self, ref: Ref) -> None:  # type: ignore[override]
        raise Unavailable("no answer")


def test_what_was_found_before_the_trouble_is_shown() -> None:
    found = Reach("memory://x", "ledger")
    with pytest.raises(Unavailable):
        list(reach(Silent(), Silent(), found, Stopwatch()))
    shown = stores_text([found], None, True)
    assert "reachable: NO" in shown and "credentials: none" in shown and "upload: unknown" in shown


class FailsAt(FaultyStore):
    """One request of all gets a bad reply, or every one of a verb from there on."""

    def __init__(self, inner: Store, number: int, fault: Fault, verb: str = "") -> None:
        super().__init__(inner)
        self.number, self.fault, self.verb, self.asked = number, fault, verb, count()

    def _next(self, verb: str) -> Fault:
        now = next(self.asked)
        bad = now >= self.number and verb == self.verb if self.verb else now == self.number
        return self.fault if bad else "ok"


def told_through(faulty: FailsAt) -> list[str]:
    runtime = Stopwatch()
    store = RetryStore(faulty, sleep=runtime.sleep, jitter=lambda: 0.0)
    return [f.text for f in reach(store, store, Reach("x", "ledger"), runtime) if f.subject != "speed"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["before", "after", "throttled"])
def test_one_bad_reply_to_any_request_changes_nothing_that_is_told(fault: Fault) -> None:
    sound = FailsAt(MemoryStore("r"), 10_000, fault)
    expected = told_through(sound)
    for number in range(next(sound.asked)):
        assert told_through(FailsAt(MemoryStore("r"), number, fault)) == expected


@pytest.mark.parametrize("verb", ["put", "put_if_absent", "get", "delete", "stat"])
def test_a_fault_that_stays_is_told(verb: str) -> None:
    with pytest.raises(Unavailable):
        told_through(FailsAt(MemoryStore(), 5, "before", verb))


@pytest.mark.parametrize("silences", [1, 99])
def test_the_room_is_asked_for_again_too(silences: int) -> None:
    left = count(silences, -1)

    class Shy(Far):
        def quota(self) -> tuple[int, int | None]:
            if next(left) > 0:
                raise Unavailable("no answer")
            return super().quota()

    if silences == 1:
        assert looked(Shy(Stopwatch()))[0].free == 2_000_000_000
    else:
        with pytest.raises(Unavailable):
            looked(Shy(Stopwatch()))


FULL = Reach(
    *("s3://my-bucket/relay?endpoint_url=http://127.0.0.1:9000&region=eu-central-1", "ledger"),
    answer_s=0.0123, credentials="environment variables", exclusive=True, skew_s=-200.0, upload=12.3e6, download=45e3,
    free=1_500_000_000, sessions=12,
)  # fmt: skip
BARE = Reach("dropbox:///relay", "checkpoints", why_unknown=UNKNOWN_FREE)


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("utf8", [True, False])
def test_one_table_says_all_of_it_at_any_width(width: int, utf8: bool) -> None:
    shown = stores_text([FULL, BARE], width, utf8)
    assert max(map(len, shown.splitlines())) <= width
    assert shown.isascii() or utf8
    flat = "".join(shown.split())
    for text in ("sessionsuntilfull", "put-if-absent", "12msarequest", "12.3MB/s", "45kB/s", "1.5GB", "about12"):
        assert text in flat or width == 40
    assert shown.count("unknown") >= 5


def test_without_a_terminal_each_fact_is_a_line_and_no_fact_is_left_out() -> None:
    lines = stores_text([FULL, BARE], None, False).splitlines()
    assert FULL.address in lines[0] and any("clock: 3 min" in line for line in lines)
    assert any(line.endswith(f"unknown: {UNKNOWN_FREE}") for line in lines)
    assert len(lines) == 2 * 9


def test_sizes() -> None:
    assert [size(n) for n in (0, 45_000, 4_500_000, 1.25e9, 3.4e12)] == ["0 kB", "45 kB", "4.5 MB", "1.2 GB", "3.4 TB"]
