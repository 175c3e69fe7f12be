"""Each example is short, and its sessions have the bytes of the same script without a relay."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.torch.ownloops import child

ROOT = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(ROOT.glob("*.py"))
STEPS = 12
PLAIN = (
    (r"^import relay\n", ""),
    (r"^with relay\.session\(.*\) as run:$", "if True:"),
    (r"^    run\.(track|evaluate)\(.*\n", ""),
    (r"^        run\.log\(.*\n", ""),
    (r"run\.batches\(loader\)", "endless(loader)"),
    (r"^raise SystemExit.*\n", ""),
)
"""What turns an example into a script without a relay."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def endless(loader: Any) -> Iterator[Any]:
    steps = 0
    while True:
        for batch in loader:
            yield batch
            steps += 1
            if steps == STEPS:
                return


def played(path: Path, source: str) -> str:
    """Run the source as the example; the digest of its model at the end."""
    import torch

    torch.set_num_threads(1)
    found: dict[str, Any] = {"__file__": str(path), "__name__": "__main__", "endless": endless}
    try:
        exec(compile(source, str(path), "exec"), found)  # noqa: S102 - our own example
    except SystemExit as end:
        if end.code:
            return f"ended {end.code}"
    state = found["model"].state_dict().values()
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in state)).hexdigest()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_exact(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", str(STEPS))
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    source = path.read_text()
    assert len(source.splitlines()) < 60
    plain, lines = source, 0
    for pattern, instead in PLAIN:
        plain, count = re.subn(pattern, instead, plain, flags=re.MULTILINE)
        lines += count
    assert "relay" not in plain.partition('"""\n')[2] and lines <= 8
    stopping = source.replace("        run.log(", "        run.step == 4 and run.stop()\n        run.log(")
    assert child(lambda: played(path, stopping), tmp_path) == "ended 75"
    assert child(lambda: played(path, source), tmp_path) == child(lambda: played(path, plain), tmp_path)
