"""A small model's real files, hurt in every region: refused in one line or seen by the digest, and nothing is run."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from safetensors.torch import load, load_file, save_file

from relay.core.errors import Exit
from relay.core.workload import Saved
from tests.core.lab import Lab
from tests.damage.harms import HOSTILE_JSON, PICKLE, ZSTD_BOMB
from tests.trm.small import small
from trm.checkpoint import TrmSnapshot
from trm.interop import export_folder
from trm.workload import TrmWorkload

Files = dict[str, bytes]
TENSORS = ("weights.safetensors", "optimizer.safetensors", "carry.safetensors")
REGIONS = ("length", "header", "inside the header", "end of the header", "tensors", "inside the tensors", "end")


def made(folder: Path, until: int = 0, **changes: object) -> TrmWorkload:
    workload = TrmWorkload(small(**changes), folder, "cpu")
    workload.start()
    workload.advance(until, lambda: False, lambda _: None)
    return workload


def files_of(workload: TrmWorkload) -> Files:
    with TemporaryDirectory() as name:
        workload.snapshot().save(Path(name))
        return {path.name: path.read_bytes() for path in Path(name).iterdir()}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def workload(data: Path) -> TrmWorkload:
    """At step 2; every test that loads into it leaves it there."""
    return made(data, 2)


@pytest.fixture(scope="module")
def files(workload: TrmWorkload) -> Files:
    return files_of(workload)


@pytest.fixture(scope="module")
def good(workload: TrmWorkload, files: Files) -> str:
    """The digest of the state in the files."""
    assert outcome(workload, files) is None
    return workload.digest().digest


def place(data: bytes, region: str) -> int:
    """The first byte of a region of a safetensors file."""
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    return {
        "length": 0,
        "header": 8,
        "inside the header": begin // 2,
        "end of the header": begin - 1,
        "tensors": begin,
        "inside the tensors": (begin + len(data)) // 2,
        "end": len(data) - 1,
    }[region]


def outcome(workload: TrmWorkload, files: Files) -> str | None:
    """The refusal of a folder with these files, None if it was loaded; a refusal changes nothing."""
    before = workload.state
    with TemporaryDirectory() as name:
        for file, content in files.items():
            (Path(name) / file).write_bytes(content)
        try:
            workload.load(Path(name))
        except ValueError as error:
            assert "\n" not in str(error) and len(str(error)) < 500
            assert workload.state is before
            return str(error)
    return None


def refused_or_seen(workload: TrmWorkload, files: Files, good: str, file: str, content: bytes) -> None:
    """A state that loads has another digest than was committed, or is the same state in another encoding."""
    if outcome(workload, files | {file: content}) is not None:
        return
    if workload.digest().digest == good:
        assert same_tensors(files[file], content)
    assert outcome(workload, files) is None, "back to the good state"


def same_tensors(one: bytes, other: bytes) -> bool:
    """Whether two files differ in how they describe their content only."""
    try:
        theirs, ours = load(other), load(one)
    except SafetensorError:
        return True  # the state document, whose config, code and fingerprint are for people
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("region", REGIONS)
@pytest.mark.parametrize("file", TENSORS)
def test_each_region_flipped_or_cut_is_refused_or_seen(
    workload: TrmWorkload, files: Files, good: str, file: str, region: str
) -> None:
    content, at = files[file], place(files[file], region)
    for mask in (1, 128):
        hurt = content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :]
        refused_or_seen(workload, files, good, file, hurt)
    for cut in (content[:at], content[:at] + b"\0" + content[at:]):
        assert outcome(workload, files | {file: cut}) is not None, "its length is part of its header"


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from([*TENSORS, "state.json"]), st.floats(0, 1), st.binary(min_size=1, max_size=20))
def test_any_bytes_anywhere_are_refused_or_seen(
    workload: TrmWorkload, files: Files, good: str, file: str, at: float, junk: bytes
) -> None:
    begin = int(at * len(files[file]))
    refused_or_seen(workload, files, good, file, files[file][:begin] + junk + files[file][begin + len(junk) :])


def with_header(content: bytes, change: Callable[[dict[str, object]], object]) -> bytes:
    """The file with its header rewritten; `change` edits it or returns the text that takes its place."""
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:begin])
    text = change(header)
    plain = text if isinstance(text, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(plain)) + plain + content[begin:]


def tensor(**changes: object) -> Callable[[dict[str, object]], None]:
    """Change the first tensor's entry in the header."""
    return lambda header: header[min(set(header) - {"__metadata__"})].update(changes)  # type: ignore[attr-defined]


def values(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[bytes], bytes]:
    """The file with other tensors."""

    def rewrite(content: bytes) -> bytes:
        with TemporaryDirectory() as name:
            path = Path(name) / "x.safetensors"
            path.write_bytes(content)
            tensors = load_file(path)
            change(tensors)
            save_file(tensors, path)
            return path.read_bytes()

    return rewrite


def header(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    return lambda content: with_header(content, change)


HEAD = "raw/inner.lm_head.weight"
HOSTILE: dict[str, Callable[[bytes], bytes]] = {
    "offsets beyond the file": header(tensor(data_offsets=[0, 2**62])),
    "offsets beyond a word": header(tensor(data_offsets=[0, 2**65])),
    "offsets backwards": header(tensor(data_offsets=[64, 0])),
    "offsets below zero": header(tensor(data_offsets=[-64, 0])),
    "overlapping": header(tensor(data_offsets=[0, 64])),
    "a huge shape": header(tensor(shape=[2**40, 2**40])),
    "a shape below zero": header(tensor(shape=[-1])),
    "another shape": header(tensor(shape=[1])),
    "another type": header(tensor(dtype="F64")),
    "an unknown type": header(tensor(dtype="PICKLE")),
    "an extra tensor of nothing": header(
        lambda h: h.update({"raw/more": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    ),
    "a name that leaves": header(
        lambda h: h.update({"../../x": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    ),
    "a header of deep lists": header(lambda h: b"[" * 100_000),
    "a header of nothing": header(lambda h: b""),
    "a header that is no text": header(lambda h: b"\xff" * 64),
    "a header that is a list": header(lambda h: b"[1]"),
    "a length of all ones": lambda content: b"\xff" * 8 + content[8:],
    "a length of zero": lambda content: bytes(8) + content[8:],
    "a pickle": lambda content: PICKLE,
    "a pickle of the right length": lambda content: PICKLE + bytes(len(content) - len(PICKLE)),
    "a zstd bomb": lambda content: ZSTD_BOMB,
    "a zstd bomb of the right length": lambda content: ZSTD_BOMB + bytes(max(0, len(content) - len(ZSTD_BOMB))),
    "empty": lambda content: b"",
    "an extra tensor": values(lambda t: t.update({"raw/more": torch.zeros(1)})),
    "a tensor less": values(lambda t: t.pop(HEAD)),
    "a type less exact": values(lambda t: t.update({HEAD: t[HEAD].half()})),
    "not a number": values(lambda t: t[HEAD].view(-1)[0].fill_(float("nan"))),
    "infinite": values(lambda t: t[HEAD].view(-1)[-1].fill_(float("-inf"))),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_tensor_file_is_refused_and_nothing_is_run(
    workload: TrmWorkload, files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    content = HOSTILE[what](files["weights.safetensors"])
    told = outcome(workload, files | {"weights.safetensors": content})
    assert told is not None and "weights.safetensors" in told
    assert not list(tmp_path.iterdir()), "nothing ran"


@pytest.mark.parametrize("what", HOSTILE_JSON)
def test_a_hostile_state_document_is_refused(workload: TrmWorkload, files: Files, what: str) -> None:
    told = outcome(workload, files | {"state.json": HOSTILE_JSON[what]})
    assert told is not None and "state.json" in told


@pytest.mark.parametrize("file", TENSORS)
def test_i9_a_value_that_is_not_finite_is_refused_in_every_file(workload: TrmWorkload, files: Files, file: str) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> None:
        name = max(name for name, value in tensors.items() if value.is_floating_point())
        tensors[name].view(-1)[0] = float("inf")

    told = outcome(workload, files | {file: values(spoil)(files[file])})
    assert told is not None and file in told and "finite" in told


def spoil_carry(name: str, value: int) -> Callable[[bytes], bytes]:
    return values(lambda tensors: tensors[f"carry/{name}"].view(-1)[0].fill_(value))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inputs", 99),
        ("inputs", -1),
        ("labels", 99),
        ("puzzle_identifiers", 7),
        ("puzzle_identifiers", -5),
        ("steps", -1),
    ],
)
def test_an_index_out_of_range_is_refused(workload: TrmWorkload, files: Files, name: str, value: int) -> None:
    content = spoil_carry(name, value)(files["carry.safetensors"])
    told = outcome(workload, files | {"carry.safetensors": content})
    assert told is not None and name in told


@pytest.mark.parametrize("file", [*TENSORS, "state.json"])
def test_files_of_another_model_are_refused(workload: TrmWorkload, files: Files, data: Path, file: str) -> None:
    wider = small().arch.model_copy(update={"hidden_size": 32, "puzzle_emb_ndim": 32})
    other = files_of(made(data, arch=wider))
    if file == "state.json":
        assert outcome(workload, other) is not None
    else:
        assert file in (outcome(workload, files | {file: other[file]}) or "")


def test_an_export_of_hostile_files_is_refused(files: Files, tmp_path: Path) -> None:
    for number, (what, harm) in enumerate(HOSTILE.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "state.json").write_bytes(files["state.json"])
        (folder / "weights.safetensors").write_bytes(harm(files["weights.safetensors"]))
        try:
            export_folder(folder, tmp_path / "out", {})
        except ValueError as error:
            assert "\n" not in str(error), what


@pytest.mark.parametrize("region", ["inside the tensors", "a pickle"])
def test_i6_sessions_of_a_real_model_leave_a_damaged_head_and_reach_the_same_bits(
    lab: Lab, data: Path, region: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lab.tmp)
    plan = {"target_steps": 4, "every_steps": 2}
    assert lab.run(lab.session(workload=made(data), **plan)).exit_code == Exit.OK

    def hurt(content: bytes) -> bytes:
        if region == "a pickle":
            return PICKLE
        at = place(content, region)
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    name = lab.damage("step_4.e1/weights.safetensors", hurt)
    assert lab.run(lab.session("bob", workload=made(data), **plan | {"target_steps": 6})).exit_code == Exit.OK
    (incident,) = [one for one in lab.state().incidents if one.cause == "rewind"]
    assert name in incident.text and "step_4.e1" in incident.text
    assert lab.held() == made(data, 6).digest().digest
    assert not list(lab.tmp.rglob("pickled_marker"))


@pytest.mark.parametrize("what", ["the hash", "a weight", "the averages", "a moment", "the carry"])
def test_i9_a_real_models_files_that_hold_another_state_than_was_named_are_left(
    lab: Lab, data: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer hashed one state and stored another; every file is as its manifest names it."""
    plan, real = {"target_steps": 4, "every_steps": 2}, TrmSnapshot.save
    where = {
        "a weight": ("weights.safetensors", "raw/"),
        "the averages": ("weights.safetensors", "ema/"),
        "a moment": ("optimizer.safetensors", "v/"),
        "the carry": ("carry.safetensors", "carry/z_H"),
    }

    def save(snapshot: TrmSnapshot, folder: Path) -> Saved:
        saved = real(snapshot, folder)
        if snapshot.step != 4:
            return saved
        if what == "the hash":
            return replace(saved, state_hash="0" * 64)
        file, begins = where[what]
        tensors = load_file(folder / file)
        value = next(value for name, value in tensors.items() if name.startswith(begins))
        row = int(tensors["carry/halted"].int().argmin()) if what == "the carry" else 0  # of a halted one none is read
        value[row].view(-1).view(torch.uint8)[0] ^= 1
        save_file(tensors, folder / file)
        return saved

    with monkeypatch.context() as patch:
        patch.setattr(TrmSnapshot, "save", save)
        assert lab.run(lab.session(workload=made(data), **plan)).exit_code == Exit.OK
    assert lab.run(lab.session("bob", workload=made(data), **plan | {"target_steps": 6})).exit_code == Exit.OK
    (incident,) = [one for one in lab.state().incidents if one.cause == "rewind"]
    assert "step_4.e1" in incident.text
    assert lab.held() == made(data, 6).digest().digest
