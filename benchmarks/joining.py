"""Joins runs of six kinds by the four lines that people are given: real commands in fresh clones and fresh homes.

    python benchmarks/joining.py [KIND ...] [names] [--folder FOLDER]
Each joiner gets only a line (`invite`'s for a shell or a notebook, `next`'s) and, where the run was begun with files,
those files. A session must train on the first try, or after the one command that its message names. The notebooks are
those that are shipped, in a real kernel; the modules of Colab and Kaggle, and the hub, are doubles. The clones use this
Python's packages. One line of JSON for each session; exit code 1 if one did not train.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice, permutations
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.app.notebook_desk import CHECKOUTS, DOUBLES, MARKS, said

ROOT = Path(__file__).resolve().parents[1]
TINY = ("arch.hidden_size=32 arch.num_heads=2 arch.H_cycles=1 arch.L_cycles=1 arch.L_layers=1 arch.puzzle_emb_ndim=32 "
        "arch.forward_dtype=float32 batch_size=2")  # fmt: skip
SOLVED = "123456789456789123789123456231564897564897231897231564312645978645978312978312645"
MINE = ("RELAY_", "ACCOUNT_", "RUN_", "COLAB_", "KAGGLE_", "HF_", "PYTHON")
PLACES = re.compile(r"(data\.\w+)=PATH")
NAMES = {"shell": "Ben", "next": "Cleo", "colab": "Dan", "kaggle": "Eva"}


def puzzles(part: int) -> str:
    """Sixty puzzles with two hidden cells as CSV; the parts share no solution."""
    lines = ["source,question,answer,rating"]
    for order in islice(permutations("123456789"), part * 60, part * 60 + 60):
        answer = SOLVED.translate(str.maketrans("123456789", "".join(order)))
        lines.append(f"own,.{answer[1:-1]}.,{answer},0")
    return "\n".join(lines) + "\n"


class Hub(BaseHTTPRequestHandler):
    """Sudoku-Extreme's two files in small, as the hub's own client asks for them."""

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, whole: bool) -> None:
        body = puzzles(int(self.path.endswith("/test.csv"))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("X-Repo-Commit", "c" * 40)
        self.end_headers()
        if whole:
            self.wfile.write(body)

    def log_message(self, *_args: object) -> None:
        """Quiet."""


@contextmanager
def hub() -> Iterator[str]:
    """The address of a double of the hub on this machine."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@dataclass
class Person:
    """A clone of the project and a home that nothing was done in."""

    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def clone(self) -> Path:
        return self.folder / "trm-relay"

    def cloned(self) -> Person:
        """With the clone; a notebook makes its own."""
        self.folder.mkdir(parents=True)
        subprocess.run(["git", "clone", "-q", "--depth", "1", ROOT.as_uri(), str(self.clone)], check=True)
        return self

    def surroundings(self, **more: str) -> dict[str, str]:
        """No variable of the relay but these; this Python's packages."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(MINE)}
        python = {"VIRTUAL_ENV": sys.prefix, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}
        return {**kept, **python, "HOME": str(self.folder), "RELAY_CPU": "1", **self.environ, **more}

    def type(self, line: str, until: int | None = None) -> subprocess.CompletedProcess[str]:
        """A line in a shell in the clone."""
        ends = {"RELAY_UNTIL_STEP": str(until)} if until else {}
        return subprocess.run(
            ["bash", "-c", line], cwd=self.clone, env=self.surroundings(**ends), capture_output=True, text=True
        )

    def relay(self, words: str) -> str:
        """One command that must succeed; its standard output."""
        done = self.type(f"python rotate_accounts.py {words}")
        assert done.returncode in (0, 75), f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@dataclass(frozen=True)
class Kind:
    """How a run was begun."""

    settings: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that the creator hands on: the setting, and the name."""
    prepare: Callable[[Person, Path], None] = lambda creator, given: None


def csv_files(creator: Person, given: Path) -> None:
    for part, name in enumerate(("train.csv", "test.csv")):
        (given / name).write_text(puzzles(part))


def folder_of_data(creator: Person, given: Path) -> None:
    creator.relay(f"prepare --folder {given / 'tiny-1k'} data.train_rows=64")


CSV = {"data.train": "train.csv", "data.test": "test.csv"}
FOLDER = {"data.train": "tiny-1k", "data.test": "tiny-1k"}
KINDS = {
    "default": Kind(),
    "sudoku4 changed": Kind(f"{TINY} lr=0.01 data.train_rows=64"),
    "csv": Kind(f"task=sudoku {TINY} data.train_rows=40", CSV, csv_files),
    "maze": Kind(f"task=maze {TINY} data.train_rows=8"),
    "folder": Kind(f"{TINY} data.train_rows=50", FOLDER, folder_of_data),
    "hub": Kind(f"task=sudoku {TINY} data.train=hub data.test=hub data.train_rows=40"),
}


class World:
    """A run of one kind, its creator, and the people who join."""

    def __init__(self, name: str, folder: Path, endpoint: str) -> None:
        self.name, self.kind, self.folder = name, KINDS[name], folder
        self.environ = {"HF_ENDPOINT": endpoint}
        self.given = folder / "given"
        self.given.mkdir(parents=True)
        store = {"RELAY_STORE": (folder / "store").as_uri()}
        self.creator = Person(folder / "creator", {**self.environ, **store}).cloned()
        self.kind.prepare(self.creator, self.given)
        files = " ".join(f"{key}={self.given / name}" for key, name in self.kind.files.items())
        begun = self.creator.type(f"python rotate_accounts.py run --run ours {self.kind.settings} {files}", until=1)
        assert begun.returncode == 75, begun.stderr

    @property
    def step(self) -> int:
        return int(json.loads(self.creator.relay("status --run ours --json"))["step"])

    def brought(self, command: str) -> str:
        """The advised command with the files in place of PATH."""
        return PLACES.sub(lambda found: f"{found[1]}={self.given / self.kind.files[found[1]]}", command)

    def by_shell(self, line: str, who: str) -> dict[str, Any]:
        """Type the line; if a message says what is missing, do that and type the line again."""
        joiner, until = Person(self.folder / who, self.environ).cloned(), self.step + 1
        done = joiner.type(line, until)
        tries, advised = 1, ""
        if done.returncode == 78:
            (advised,) = re.findall(r"`([^`]*prepare[^`]*)`", done.stderr)
            helped = joiner.type(self.brought(advised))
            assert helped.returncode == 0, helped.stderr
            done, tries = joiner.type(line, until), 2
        return {"exit": done.returncode, "tries": tries, "advised": advised, "last": done.stderr[-300:]}

    def by_notebook(self, service: str, line: str, name: str) -> dict[str, Any]:
        """The cells that are shipped, with the invitation's line as the last one of cell 2."""
        joiner = Person(self.folder / f"{service}-{name}", self.environ)
        modules = joiner.folder / "modules"
        for path, text in DOUBLES.items():
            (modules / path).parent.mkdir(parents=True, exist_ok=True)
            (modules / path).write_text(text)
        (modules / "secrets.json").write_text("{}")
        text = (ROOT / "notebooks" / f"{service}.ipynb").read_text().replace(CHECKOUTS[service], str(joiner.clone))
        document = nbformat.reads(text, as_version=4)
        typed = {"CODE": repr(ROOT.as_uri()), "YOUR_NAME": repr(name), "I_CO_AUTHOR_THIS_RUN": "True"}
        for cell in document.cells:
            lines = [_typed(one, typed) for one in cell.source.splitlines()]
            if any(one.startswith("notebook.settings(") for one in lines):
                lines[-1] = line if service == "colab" else line.removesuffix(")") + ", coauthor=True)"
            cell.source = "\n".join(lines)
        marks = {"PYTHONPATH": str(modules), "RELAY_UNTIL_STEP": str(self.step + 1), **MARKS[service]}
        return asyncio.run(self._cells(document, joiner.surroundings(**marks)))

    async def _cells(self, document: nbformat.NotebookNode, environ: dict[str, str]) -> dict[str, Any]:
        client = NotebookClient(document, timeout=900, kernel_name="python3", resources={})
        cells, advised = document.cells, ""
        async with client.async_setup_kernel(env=environ):
            await client.async_execute_cell(cells[1], 1)
            await client.async_execute_cell(cells[2], 2)
            try:
                await client.async_execute_cell(cells[3], 3)
                tries = 1
            except CellExecutionError:
                (advised,) = re.findall(r"`(notebook\.relay\([^`]*\))`", said(cells[3]))
                cells.append(nbformat.v4.new_code_cell(self.brought(advised)))
                await client.async_execute_cell(cells[-1], len(cells) - 1)
                cells[3].outputs, tries = [], 2
                await client.async_execute_cell(cells[3], 3)
            await client.async_execute_cell(cells[4], 4)
        return {"exit": 75, "tries": tries, "advised": advised, "last": said(cells[3])[-300:]}

    def sessions(self) -> Iterator[dict[str, Any]]:
        """One session by each line."""
        for who in NAMES:
            before, began = self.step, time.monotonic()
            invitation = json.loads(self.creator.relay("invite --run ours --json"))
            if who == "shell":
                found = self.by_shell(invitation["shell"].replace("YOUR NAME", NAMES[who]), who)
            elif who == "next":
                found = self.by_shell(json.loads(self.creator.relay("next --run ours --json"))["command"], who)
            else:
                found = self.by_notebook(who, invitation["notebook"], NAMES[who])
            seconds = round(time.monotonic() - began, 1)
            trained = found["exit"] == 75 and self.step == before + 1
            yield {"kind": self.name, "line": who, "trained": trained, "seconds": seconds, **found}


PEOPLE = (("colab", "Ana"), ("colab", "Ben"), ("kaggle", "Cem"), ("colab", "ana"))
"""Three names in three notebooks; the fourth is the first one's, on another machine."""


def names(folder: Path, endpoint: str) -> Iterator[dict[str, Any]]:
    """Their notebooks on one store, then the accounts and whose turn it is."""
    world = World("default", folder, endpoint)
    for service, name in PEOPLE:
        before = world.step
        line = json.loads(world.creator.relay("invite --run ours --json"))["notebook"]
        machine = world.by_notebook(service, line, name)
        yield {"notebook": service, "name": name, "trained": world.step == before + 1, **machine}
    listed = json.loads(world.creator.relay("accounts list --run ours --json"))["accounts"]
    kept = ("id", "owner", "provider", "sessions", "steps", "quota")
    yield {"accounts": [{key: row[key] for key in kept} for row in listed], "trained": len(listed) == 4}
    turn = json.loads(world.creator.relay("next --run ours --json"))
    yield {"next": turn["account"], "why": turn["why"], "others": [one["account"] for one in turn["others"]],
           "trained": True}  # fmt: skip


def _typed(line: str, typed: Mapping[str, str]) -> str:
    name = line.partition(" = ")[0]
    return f"{name} = {typed[name]}" if name in typed else line


def main() -> None:
    """All sessions, then the accounts and links of each run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=[*KINDS, "names"])
    parser.add_argument("--folder", type=Path, default=None)
    given, failed = parser.parse_args(), 0
    folder = given.folder or Path(tempfile.mkdtemp(prefix="joining-"))
    with hub() as endpoint:
        for row in names(folder / "names", endpoint) if "names" in given.kinds else ():
            failed += not row["trained"]
            print(json.dumps(row), flush=True)
        for name in (kind for kind in given.kinds if kind != "names"):
            world = World(name, folder / shlex.quote(name).strip("'").replace(" ", "-"), endpoint)
            for row in world.sessions():
                failed += not row["trained"]
                row["last"] = "" if row["trained"] else row["last"]
                print(json.dumps(row), flush=True)
            seen = json.loads(world.creator.relay("status --run ours --json"))
            links = [(link["account"], link["certified"]) for link in seen["links"]]
            print(json.dumps({"kind": name, "step": seen["step"], "links": links}), flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
