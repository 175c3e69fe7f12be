"""A manifest is read as if a stranger wrote it (P11)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from relay.core.checkpoint.manifest import MAX_BYTES, BadManifest, Manifest, decode, encode
from tests.core.story import manifest_of

WHERE = {"project": "toys", "run": "chain", "step": 10, "epoch": 2}
HERE = {"folder": "checkpoints/toys/chain/step_10.e2/"}


def changed(**fields: Any) -> bytes:
    return json.dumps({**json.loads(encode(manifest_of((10, 2)))), **fields}).encode()


def test_what_is_written_is_read() -> None:
    assert decode(encode(manifest_of((10, 2))), **WHERE, **HERE) == manifest_of((10, 2))


def file(**fields: Any) -> dict[str, Any]:
    (entry, _) = json.loads(encode(manifest_of((10, 2))))["files"]
    return {**entry, **fields}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (b"", ""),
        (b"[]", ""),
        (b"\x80\x04.", ""),
        (b'{"format": 1}', "project"),
        (changed(format=2), "format"),
        (changed(step=11), "step"),
        (changed(step=11, files=[]), "step"),
        (changed(run="other"), ""),
        (changed(epoch=True), "epoch"),
        (changed(extra=1), "extra"),
        (changed(metrics={"loss": "1"}), "metrics.loss"),
        (changed(files=[file(name="../x")]), "files.0.name"),
        (changed(files=[file(name="A.bin")]), "files.0.name"),
        (changed(files=[file(name="manifest.json", key="checkpoints/toys/chain/step_10.e2/manifest.json")]), ""),
        (changed(files=[file(), file()]), ""),
        (changed(files=[file(key="checkpoints/toys/other/step_10.e2/a.bin")]), ""),
        (changed(files=[file(key="checkpoints/toys/chain/../chain/step_10.e2/a.bin")]), ""),
        (changed(files=[file(key="checkpoints/toys/chain/step_10.e2/b.bin")]), ""),
        (changed(files=[file(key="runs/toys/chain/ledger/a.bin")]), ""),
        (changed(files=[file(key="checkpoints/toys/chain/step_10.e2/a.bin\u200b")]), "files.0.key"),
        (changed(files=[file(key=" checkpoints/toys/chain/step_10.e2/a.bin")]), ""),
        (changed(files=[file(ref="a\nb")]), "files.0.ref"),
        (changed(files=[file(ref="x" * 401)]), "files.0.ref"),
        (changed(files=[file(size=-1)]), "files.0.size"),
        (changed(files=[file(sha256="A" * 64)]), "files.0.sha256"),
        (b'{"format": 1, "format": 1}', ""),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, ""),
        (b" " * (MAX_BYTES + 1), ""),
    ],
)
def test_anything_else_is_refused_in_one_line_with_the_wrong_field(data: bytes, field: str) -> None:
    with pytest.raises(BadManifest) as refusal:
        decode(data, **WHERE, **HERE)
    assert refusal.value.field == field
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 400


def test_files_of_the_one_checkpoint_that_the_ledger_says_may_be_named() -> None:
    lender = "checkpoints/toys/chain/step_5.e1/"
    data = changed(files=[file(key=lender + "a.bin")])
    assert decode(data, **WHERE, **HERE, lender=lender).borrowed()[0].key == lender + "a.bin"
    assert decode(changed(), **WHERE, **HERE, lender=lender).borrowed() == ()
    for other in (None, HERE["folder"], *(lender.replace("5.e1", key) for key in ("5.e2", "4.e1", "50.e1", ASIDE))):
        with pytest.raises(BadManifest):
            decode(data, **WHERE, **HERE, lender=other)


ASIDE = f"10.e2.{'0' * 16}"


def test_of_two_folders_of_one_key_each_is_another_checkpoints() -> None:
    plain, aside = HERE["folder"], HERE["folder"].replace("10.e2", ASIDE)
    there = changed(files=[file(key=aside + "a.bin")])
    assert decode(there, **WHERE, folder=aside).borrowed() == ()
    for data, folder in ((there, plain), (changed(), aside), (there, aside.replace("0/", "1/"))):
        for lender in (None, plain, aside):
            with pytest.raises(BadManifest):
                decode(data, **WHERE, folder=folder, lender=lender)


def test_a_manifest_that_would_be_too_long_is_not_written() -> None:
    many = manifest_of((10, 2)).model_copy(update={"fingerprint": {str(n): "x" * 500 for n in range(3000)}})
    with pytest.raises(ValueError, match="at most"):
        encode(Manifest.model_construct(**dict(many)))


def test_one_that_is_just_short_enough_is_written() -> None:
    def of(length: int) -> Manifest:
        return manifest_of((10, 2)).model_copy(update={"fingerprint": {"key": "x" * length}})

    full = of(MAX_BYTES - len(encode(of(0))))
    assert len(encode(full)) == MAX_BYTES
