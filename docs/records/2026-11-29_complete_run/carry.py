"""Carries a run between a store at home and a machine that shares no storage with it, in pieces.

    python carry.py pack STORE PIECES      on either side: what the newest entry needs, as PIECES/0000, 0001, …
    python carry.py unpack PIECES STORE    on the other side, once every piece has arrived
    python carry.py names STORE            the checkpoints whose files are all there, with commas

Nothing of the product is imported but its command line. `pack` may run beside a session that trains: entries are only
ever appended and retained files never change, so it links the store's files first, asks `verify` of that copy which
checkpoints the newest entry retains, and packs their files with every manifest and everything that is no checkpoint:
without those that the other side has (`--have`), or of the newest one alone (`--head`). RELAY_STORE and RUN_NAME are
set as for any other command; CODE is the checkout.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

COMMAND = [sys.executable, str(Path(os.environ.get("CODE", ".")) / "rotate_accounts.py")]


def retained(store: Path) -> list[tuple[str, bool]]:
    """(folder's name, whether its files are all there and intact) of each checkpoint that the newest entry retains."""
    words = [*COMMAND, "verify", "--json", f"storage.url=file://{store}"]
    said = subprocess.run(words, capture_output=True, text=True, check=False)
    if said.returncode not in (0, 65):
        sys.exit(said.stderr)
    rows = json.loads(said.stdout)["checkpoints"]
    return [(f"step_{row['step']}.e{row['epoch']}", row["ok"]) for row in rows]


def pack(store: Path, pieces: Path, have: set[str], everything: bool, size: int) -> None:
    """Pieces with their digests beside them; says what it left out."""
    shutil.rmtree(pieces, ignore_errors=True)
    pieces.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=store.parent) as folder:
        copy = Path(folder) / "store"
        for name in ("runs", "registry", "checkpoints"):  # entries before the files that they name
            link(store / name, copy / name)
        for path in store.iterdir():
            if path.name not in ("runs", "registry", "checkpoints"):
                link(path, copy / path.name)
        found = retained(copy)
        wanted = {name for name, ok in found if ok} - have
        wanted = wanted if everything else {name for name, ok in found[-1:] if ok} - have
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for path in sorted(copy.rglob("*")):
                if path.is_file() and goes(path.relative_to(copy).parts, wanted, {name for name, _ in found}):
                    tar.add(path, path.relative_to(copy).as_posix())
    data, digests = buffer.getbuffer(), {}
    for number, start in enumerate(range(0, len(data), size)):
        part = data[start : start + size]
        (pieces / f"{number:04}").write_bytes(part)
        digests[f"{number:04}"] = hashlib.sha256(part).hexdigest()
    (pieces / "digests.json").write_text(json.dumps(digests, indent=1))
    print(f"{len(digests)} pieces, {len(data) / 1e6:.1f} MB; retained {found}; packed {sorted(wanted)}")


def goes(parts: tuple[str, ...], wanted: set[str], known: set[str]) -> bool:
    """Of checkpoints the manifests that somebody retains, and the other files of those that are wanted."""
    step = next((part for part in parts if part.startswith("step_")), None)
    return step is None or step in wanted or (step in known and parts[-1] == "manifest.json")


def link(source: Path, target: Path) -> None:
    """A file or a tree by hard links; what vanishes meanwhile is left out."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        os.link(source, target)
    for path in sorted(source.rglob("*")) if source.is_dir() else []:
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(path, target / path.relative_to(source))
            except FileNotFoundError:
                continue


def unpack(pieces: Path, store: Path) -> None:
    """Checked first. Files that are there with the same bytes stay; of the others, entries must never differ."""
    digests = json.loads((pieces / "digests.json").read_text())
    for name, right in digests.items():
        if hashlib.sha256((pieces / name).read_bytes()).hexdigest() != right:
            sys.exit(f"{name} is not as it was packed")
    data = io.BytesIO(b"".join((pieces / name).read_bytes() for name in sorted(digests)))
    new = 0
    with tarfile.open(fileobj=data) as tar:
        for member in tar:
            file = tar.extractfile(member)
            assert file is not None
            path, content = store / member.name, file.read()
            if path.exists() and path.read_bytes() == content:
                continue
            if path.exists() and "ledger" in path.parts:
                sys.exit(f"{path} holds another entry already: two machines have trained at once")
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(path.name + ".part")
            part.write_bytes(content)
            os.utime(part, (member.mtime, member.mtime))
            part.replace(path)
            new += 1
    print(f"{new} files were new")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pack", "names", "unpack"))
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path, nargs="?")
    parser.add_argument("--have", default="", help="checkpoints that the other side has, with commas")
    parser.add_argument("--head", action="store_true", help="of checkpoints only the newest")
    parser.add_argument("--mib", type=float, default=12, help="size of a piece")
    args = parser.parse_args()
    if args.what == "pack":
        pack(
            args.source.resolve(),
            args.target.resolve(),
            set(args.have.split(",")),
            not args.head,
            int(args.mib * 2**20),
        )
    elif args.what == "unpack":
        unpack(args.source, args.target.resolve())
    else:
        print(",".join(name for name, ok in retained(args.source.resolve()) if ok))


if __name__ == "__main__":
    main()
