"""Each example is short, and its sessions, ended in every way, have the bytes of the same script without a relay."""

from __future__ import annotations

import hashlib
import os
import random
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.torch.ownloops import ENDS, Ending, child, pair

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
SESSIONS = int(os.environ.get("TESTS_LOOP_SESSIONS", "3"))
"""Of each example. `make accept` takes ten, and compiles."""
STEPS = 6 * SESSIONS - 4
CAUSES = ("SIGKILL", "budget", "SIGTERM", "Ctrl-C", "lost lease")
PLAIN = (
    (r"^import relay\n", ""),
    (r"^with relay\.session\(.*\) as run:$", "if True:"),
    (r"^    run\.(track|evaluate)\(.*\n", ""),
    (r"^        run\.log\(.*\n", ""),
    (r"run\.batches\(loader\)", "endless(loader)"),
    (r"^raise SystemExit.*\n", ""),
)
"""What turns an example into a script without a relay."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 * SESSIONS)]


def endless(loader: Any) -> Iterator[Any]:
    steps = epoch = 0
    while True:
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        epoch += 1
        for batch in loader:
            yield batch
            steps += 1
            if steps == STEPS:
                return


def played(path: Path, source: str, more: dict[str, Any]) -> Any:
    """Run the source as the example; its exit code, or the digest of its model at the end."""
    import torch

    warnings.simplefilter("default")
    torch.set_num_threads(1)
    module = sys.modules["__main__"] = ModuleType("__main__")  # compiled code looks for an example's constants there
    found = module.__dict__
    found.update(__file__=str(path), **more)
    try:
        exec(compile(source, str(path), "exec"), found)  # noqa: S102 - our own example
    except SystemExit as end:
        if end.code:
            return int(end.code)
    state = found["model"].state_dict().values()
    return hashlib.sha256(b"".join(each.numpy().tobytes() for each in state)).hexdigest()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_exact(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPS", str(STEPS))
    monkeypatch.setenv("RELAY_EPHEMERAL", "1")
    monkeypatch.setenv("HOME", str(tmp_path))
    if SESSIONS == 3:
        monkeypatch.setenv("PATH", str(tmp_path))  # without a compiler, whose import takes longer than all sessions
    source = path.read_text()
    assert len(source.splitlines()) < 60
    plain, lines = source, 0
    for pattern, instead in PLAIN:
        plain, count = re.subn(pattern, instead, plain, flags=re.MULTILINE)
        lines += count
    assert "relay" not in plain.partition('"""\n')[2] and lines <= 8
    processes = pair if path.stem == "ddp" else lambda work, folder: [child(work, folder)]
    run: Callable[..., list[Any]] = lambda source, **more: processes(partial(played, path, source, more), tmp_path)  # noqa: E731
    ended = source.replace("        run.log(", "        ending(run)\n        run.log(")
    seed = int(os.environ.get("RELAY_SEED", "1"))
    gaps = random.Random(seed)
    for end in islice(cycle(CAUSES), 2 * EXAMPLES.index(path), 2 * EXAMPLES.index(path) + SESSIONS - 1):
        monkeypatch.setenv("ACCOUNT_ID", "ada" if os.environ.get("ACCOUNT_ID") == "ben" else "ben")
        found = run(ended, ending=Ending(end, gaps.randint(3, 5)))[0]
        expected = ENDS[end][1]
        assert found == expected or str(found).startswith(str(expected)), (end, found, seed)
    assert run(source) == run(plain, endless=endless), seed
