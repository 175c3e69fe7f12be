"""The answers of the clouds' metadata addresses are understood, and no other answer there is taken for a notice."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from relay.app.machine import spot
from relay.app.machine.env import Cloud as Name
from relay.app.machine.env import detect
from relay.app.machine.spot import Notice, spot_query
from relay.core.clock import RealRuntime
from relay.core.errors import BadConfig
from tests.app.machine.test_notices import NOTICE
from tests.app.metadata_double import NOW, Cloud, serving

CLOUDS: tuple[Name, ...] = ("aws", "gcp", "azure")
PREEMPT = {"EventType": "Preempt", "Resources": ["worker_0"], "NotBefore": "Tue, 14 Nov 2023 22:13:50 GMT"}
ACTION = "/latest/meta-data/spot/instance-action"


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    with serving(Cloud()) as found:
        yield found


class Clock(RealRuntime):
    """A machine whose wall clock the test sets; usually it is a week ahead."""

    def __init__(self, wall: float = NOW + 7 * 86_400) -> None:
        self._wall = wall

    def wall(self) -> float:
        return self._wall


def look(name: Name, cloud: Cloud) -> Notice | None:
    return spot_query(name, Clock(), cloud.address)()


def test_ec2_tells_two_minutes_ahead_by_its_own_clock(cloud: Cloud) -> None:
    assert look("aws", cloud) is None
    cloud.taken_by_aws()
    assert look("aws", cloud) == Notice("aws", 118.0)
    assert Notice("aws", 118.0).text == NOTICE.format(118)


def test_ec2_is_asked_for_one_token_until_that_expires(cloud: Cloud) -> None:
    ask = spot_query("aws", Clock(NOW), cloud.address)
    ask(), ask()
    assert [method for method, _ in cloud.asked] == ["PUT", "GET", "GET"]
    cloud.replies[ACTION] = (401, b"")
    cloud.asked.clear()
    ask()
    cloud.taken_by_aws()
    assert ask() == Notice("aws", 118.0)
    assert [method for method, _ in cloud.asked] == ["GET", "PUT", "GET"]


def test_without_a_date_this_machines_clock_has_to_do(cloud: Cloud) -> None:
    cloud.clock = False
    cloud.taken_by_aws()
    assert spot_query("aws", Clock(NOW + 18), cloud.address)() == Notice("aws", 100.0)


@pytest.mark.parametrize(("at", "left"), [("2023-11-14T22:00:00Z", 0.0), ("2033-11-14T22:00:00Z", 120.0)])
def test_no_notice_is_longer_than_the_cloud_gives(cloud: Cloud, at: str, left: float) -> None:
    cloud.taken_by_aws(at)
    assert look("aws", cloud) == Notice("aws", left)


@pytest.mark.parametrize(("said", "notice"), [(b"TRUE\n", Notice("gcp", 25.0)), (b"FALSE", None), (b"", None)])
def test_compute_engine_says_true(cloud: Cloud, said: bytes, notice: Notice | None) -> None:
    cloud.taken_by_gcp(said)
    assert look("gcp", cloud) == notice


@pytest.mark.parametrize(
    ("event", "left"),
    [
        (PREEMPT, 30.0),
        (PREEMPT | {"EventType": "Terminate", "NotBefore": "Tue, 14 Nov 2023 22:18:20 GMT"}, 300.0),
        (PREEMPT | {"NotBefore": "", "EventStatus": "Started"}, 10.0),
        (PREEMPT | {"Resources": ["worker_1"]}, None),
        (PREEMPT | {"EventType": "Freeze"}, None),
        (PREEMPT | {"EventType": ["Preempt"]}, None),
    ],
)
def test_azure_names_the_machine_and_the_time(cloud: Cloud, event: dict[str, Any], left: float | None) -> None:
    cloud.events_of_azure(event)
    assert look("azure", cloud) == (None if left is None else Notice("azure", left))


def test_a_machine_that_cannot_learn_its_name_on_azure_takes_an_event_for_its_own(cloud: Cloud) -> None:
    cloud.events_of_azure(PREEMPT | {"Resources": ["worker_1"]}, name="")
    assert look("azure", cloud) == Notice("azure", 30.0)


NOISE = {
    "a login page": (200, b"<html><body>Please log in: TRUE</body></html>"),
    "unauthorized": (401, b"TRUE"),
    "a server error": (500, b'{"time": "2023-11-14T22:15:18Z", "Events": []}'),
    "a redirect": (302, b"TRUE"),
    "a flood": (200, b"TRUE" * 20_000),
    "bytes": (200, bytes(range(256))),
    "deep JSON": (200, b"[" * 60_000),
    "a list": (200, b'["TRUE"]'),
    "other types": (200, b'{"time": {"TRUE": 1}, "Events": [7, {"EventType": "Preempt"}, []], "action": null}'),
    "no date": (200, b'{"action": "terminate", "time": "soon", "Events": "Preempt"}'),
    "no zone": (200, b'{"action": "terminate", "time": "2023-11-14T22:15:18"}'),
}


@pytest.mark.parametrize("what", sorted(NOISE))
@pytest.mark.parametrize("name", CLOUDS)
def test_whatever_else_answers_is_no_notice(cloud: Cloud, name: Name, what: str) -> None:
    paths = (ACTION, "/computeMetadata/v1/instance/preempted", "/metadata/scheduledevents?api-version=2020-07-01")
    cloud.replies = dict.fromkeys(paths, NOISE[what])
    found = look(name, cloud)
    begun = what == "other types" and name == "azure"  # an event without time and names is one that has begun
    assert found == (Notice("azure", 10.0) if begun else None)


@pytest.mark.parametrize("name", CLOUDS)
def test_an_address_that_hangs_or_refuses_is_left_soon(
    cloud: Cloud, name: Name, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spot, "TIMEOUT_S", 0.1)
    released = threading.Event()
    cloud.before = lambda: released.wait(30) and None
    began = time.monotonic()
    assert look(name, cloud) is None and time.monotonic() - began < 5
    released.set()
    assert spot_query(name, Clock(), "http://127.0.0.1:9")() is None


DRIPS = {
    "a status line": b"HTTP/1.1 2",
    "a header": b"HTTP/1.1 200 OK\r\nX: ",
    "a body": b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    "a length beyond all memory": b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999999\r\n\r\n",
    "a length beyond all numbers": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "continue": b"",
}


@pytest.mark.parametrize("what", DRIPS)
def test_an_answer_that_drips_or_never_ends_is_left_soon(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes in time, the answer never does: a notice must not wait behind it."""
    monkeypatch.setattr(spot, "TIMEOUT_S", 0.3)
    listener = socket.create_server(("127.0.0.1", 0))

    def drip() -> None:
        line, _ = listener.accept()
        with line, suppress(OSError):
            line.sendall(DRIPS[what])
            end = time.monotonic() + 5
            while time.monotonic() < end:
                line.sendall(b"1" if DRIPS[what] else b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
                time.sleep(0.02 if DRIPS[what] else 0)

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    assert spot_query("gcp", Clock(), f"http://127.0.0.1:{listener.getsockname()[1]}")() is None
    assert time.monotonic() - began < 2
    thread.join()
    listener.close()


def test_however_many_events_there_are_the_machines_name_is_asked_once(cloud: Cloud) -> None:
    cloud.events_of_azure(*[PREEMPT | {"Resources": ["worker_1"]}] * 100, PREEMPT)
    assert look("azure", cloud) == Notice("azure", 30.0)
    assert len(cloud.asked) == 2


@pytest.mark.parametrize("address", ["127.0.0.1:80", "https://127.0.0.1", "http://x:99999", "http://[x", "http://"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(BadConfig, match="RELAY_SPOT_ADDRESS"):
        spot_query("aws", Clock(), address)


def test_no_proxy_sees_the_question(cloud: Cloud, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    cloud.taken_by_gcp()
    assert look("gcp", cloud) == Notice("gcp", 25.0)


@pytest.mark.parametrize(
    ("file", "said", "found"),
    [
        ("sys_vendor", "Amazon EC2\n", "aws"),
        ("bios_version", "4.11.amazon\n", "aws"),
        ("bios_version", "1401\n", None),
        ("product_name", "Google Compute Engine\n", "gcp"),
        ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", "azure"),
        ("sys_vendor", "Dell Inc.\n", None),
        ("sys_vendor", "\xff" * 5000, None),
    ],
)
def test_a_rented_machine_is_known_by_its_firmware_where_its_user_may_ask(
    tmp_path: Path, file: str, said: str, found: Name | None
) -> None:
    firmware = tmp_path / "sys/class/dmi/id"
    firmware.mkdir(parents=True)
    (firmware / file).write_text(said)
    assert detect({}, 0.0, tmp_path).cloud == found
    assert detect({"SLURM_JOB_ID": "7"}, 0.0, tmp_path).cloud == found
    assert detect({"COLAB_RELEASE_TAG": "x"}, 0.0, tmp_path).cloud is None
    assert detect({"KAGGLE_KERNEL_RUN_TYPE": "Batch"}, 0.0, tmp_path).cloud is None
