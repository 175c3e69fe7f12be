"""Writes a folder that solves on a machine without network: weights, wheels, the supervisor, a notebook, hashes."""

from __future__ import annotations

import hashlib
import json
import math
import re
import shutil
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relay.torch.faults import TaskError
from storage import wording
from storage.packages import NAME, ROOT
from trm.competition import supervisor
from trm.data.arc import submission

if TYPE_CHECKING:
    from trm.competition.weights import Trained

PACKAGES, MODULE = ("relay", "storage", "trm"), "trm_relay.py"
NEVER = ("torch", "numpy")
"""What the target has, and must keep."""
LEFT_OUT = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
"""Of an installed package's own files: they describe one installation."""
DATE = (2026, 1, 1, 0, 0, 0)
"""Of every file in a wheel, so that equal content has an equal hash."""
SLUG, LONGEST_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*"), 100
"""A name in one of Kaggle's addresses."""
TITLE = 5, 43
"""Characters of a title. Kaggle takes 5 to 50 for a notebook, 6 to 50 for a dataset, whose title has a word more."""
YOUR_NAME = "YOUR_KAGGLE_NAME"
"""Stands for the owner in metadata that is still to be edited."""
_REQUIRED = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?P<version>[^;]*)(?P<when>.*)")


@dataclass(frozen=True)
class Target:
    """The competition, and the machine that it gives."""

    slug: str
    owner: str
    """Kaggle's user name of the team's account."""
    title: str
    hours: float
    accelerator: str
    inputs: str
    working: str
    options: tuple[str, ...] = ()
    """Of `arc solve`, for the hidden tasks."""

    def __post_init__(self) -> None:
        """Raises TaskError for what Kaggle would refuse after the upload, or not find."""
        low, high = TITLE
        for option, value, place in (("slug", self.slug, "competitions/"), ("owner", self.owner, "")):
            fits = SLUG.fullmatch(value) and len(value) <= LONGEST_SLUG
            if not fits and (option, value) != ("owner", YOUR_NAME):
                raise TaskError(
                    f"--{option} {value!r:.80} is not a name on Kaggle: lowercase letters, digits and single hyphens. "
                    f"Give the part of the address after kaggle.com/{place}."
                )
        plain = self.title.isascii() and self.title.isprintable()
        if not (plain and low <= len(self.title) <= high and low <= len(self.name)):
            raise TaskError(
                f"--title {self.title!r:.80} is not a title on Kaggle. Give {low} to {high} characters of ASCII, with "
                f"at least {low} letters or digits."
            )
        if not math.isfinite(self.hours):
            raise TaskError(f"--hours {self.hours} is not a time limit. Give a finite number.")

    @property
    def name(self) -> str:
        """Slug of the title."""
        return re.sub(r"[^a-z0-9]+", "-", self.title.lower()).strip("-")


def write(trained: Trained, tasks: Collection[str], target: Target, place: Path) -> dict[str, Any]:
    """Write the bundle, whole or not at all; returns its manifest. tasks: whose rows of the table it holds.

    Raises TaskError if the folder exists or cannot be written, or the project is not installed here.
    """
    if place.exists():
        raise TaskError(f"{place} exists already. Choose a new folder, or remove it.")
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}."))
        try:
            manifest = _fill(scratch, trained.reduced(tasks), target)
            scratch.chmod(0o755)
            scratch.rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    except OSError as error:
        raise TaskError(f"{place} cannot be written: {error.strerror or error}. Free some space.") from error
    return manifest


def _fill(place: Path, small: Trained, target: Target) -> dict[str, Any]:
    small.write(place)
    (place / supervisor.WHEELS).mkdir()
    packed = [_wheel(found, place / supervisor.WHEELS) for found in _needed()]
    _starter(place / "starter")
    (place / "solve.ipynb").write_text(notebook(target))
    (place / "kernel-metadata.json").write_text(json.dumps(kernel(target), indent=1) + "\n")
    (place / "dataset-metadata.json").write_text(json.dumps(dataset(target), indent=1) + "\n")
    files = sorted(path for path in place.rglob("*") if path.is_file())
    manifest = {
        "schema": "trm.arc-bundle/1",
        "weights": {
            "content": f"sha256:{small.hash}",
            "rows": len(small.table),
            "tasks": 0 if small.names is None else len(small.names.tasks),
            **small.source,
        },
        "target": asdict(target),
        "packages": packed,
        "files": {str(path.relative_to(place)): _about(path) for path in files},
    }
    (place / supervisor.MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    return manifest


def _about(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def _starter(place: Path) -> None:
    """The supervisor and the files that it needs, under their own names, in packages that import nothing."""
    for module in (supervisor, submission, wording):
        path = Path(str(module.__file__))
        copy = place / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
        for folder in copy.parents:
            if folder == place:
                break
            (folder / "__init__.py").write_text("")


def _needed() -> list[Distribution]:
    """The project, and what it requires that is pure Python."""
    try:
        own = distribution(NAME)
    except PackageNotFoundError:
        raise TaskError(f"{NAME} is not installed in this Python, so its wheel cannot be made. Install it.") from None
    found, waiting = dict[str, Distribution](), list(_requirements(own, "train"))
    while waiting:
        name, _ = waiting.pop()
        if name not in found and _fits_anywhere(name):
            found[name] = distribution(name)
            waiting += _requirements(found[name])
    return [own, *(found[name] for name in sorted(found))]


def _requirements(found: Distribution, extra: str = "") -> Iterator[tuple[str, bool]]:
    """(name, whether exactly one version fits) of installed requirements."""
    for text in found.requires or ():
        match = _REQUIRED.fullmatch(text)
        if match is None or ("extra" in match["when"] and (not extra or f'"{extra}"' not in match["when"])):
            continue
        try:
            distribution(match["name"])
        except PackageNotFoundError:
            continue  # of another platform or Python
        yield match["name"].lower(), "==" in match["version"]


@cache
def _fits_anywhere(name: str) -> bool:
    """Whether a package is pure Python, and not tied to one version of a compiled one: the target has its own."""
    found = distribution(name)
    pure = "Root-Is-Purelib: true" in (found.read_text("WHEEL") or "") and name not in NEVER
    return pure and all(_fits_anywhere(required) for required, tied in _requirements(found) if tied)


def _wheel(found: Distribution, place: Path) -> dict[str, str | None]:
    """Pack an installed package; the project itself from its own files. Returns name, version and license."""
    name, version = found.metadata["Name"], found.version
    stem = f"{re.sub(r'[-_.]+', '_', name)}-{version}"
    kept = {arcname: path.read_bytes() for arcname, path in (_own_files() if name == NAME else _installed_files(found))}
    if name == NAME:
        kept[f"{stem}.dist-info/METADATA"] = (found.read_text("METADATA") or "").encode()
        kept[f"{stem}.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    info = next(arcname.rpartition("/")[0] for arcname in kept if arcname.endswith(".dist-info/METADATA"))
    kept[f"{info}/RECORD"] = "".join(f"{arcname},,\n" for arcname in sorted(kept)).encode()
    with zipfile.ZipFile(place / f"{stem}-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as packed:
        for arcname, content in sorted(kept.items()):
            packed.writestr(zipfile.ZipInfo(arcname, DATE), content, zipfile.ZIP_DEFLATED)
    return {"name": name, "version": version, "license": _license(found)}


def _license(found: Distribution) -> str | None:
    """As the package names it; its text is in the wheel."""
    classified = [text for text in found.metadata.get_all("Classifier") or () if text.startswith("License ::")]
    named = [found.metadata["License-Expression"], found.metadata["License"], *classified]
    return next((text for text in named if text and len(text) < 100), None)


def _own_files() -> Iterator[tuple[str, Path]]:
    for path in (ROOT / package for package in PACKAGES):
        for file in path.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(ROOT)), file
    yield MODULE, ROOT / MODULE


def _installed_files(found: Distribution) -> Iterator[tuple[str, Path]]:
    for file in found.files or ():
        if ".." not in file.parts and "__pycache__" not in file.parts and file.name not in LEFT_OUT:
            yield str(file), Path(str(file.locate()))


def kernel(target: Target) -> dict[str, Any]:
    """kernel-metadata.json of Kaggle's command line."""
    return {
        "id": f"{target.owner}/{target.name}",
        "title": target.title,
        "code_file": "solve.ipynb",
        "language": "python",
        "kernel_type": "notebook",
        "is_private": True,
        "enable_gpu": bool(target.accelerator),
        "enable_internet": False,
        "machine_shape": target.accelerator,
        "dataset_sources": [dataset(target)["id"]],
        "competition_sources": [target.slug],
        "model_sources": [],
    }


def dataset(target: Target) -> dict[str, Any]:
    """dataset-metadata.json, to upload the bundle."""
    title = f"{target.title} bundle"
    return {"id": f"{target.owner}/{target.name}-bundle", "title": title, "licenses": [{"name": "other"}]}


CELLS = (
    """# 1. The bundle, the competition, and its limit
import sys
from pathlib import Path
INPUT, WORKING, SLUG, HOURS = Path({inputs!r}), Path({working!r}), {slug!r}, {hours!r}
OPTIONS = {options!r}  # of `arc solve`, for the hidden tasks
BUNDLE = next(path.parent for path in sorted(INPUT.rglob("manifest.json")) if (path.parent / "starter").is_dir())
sys.path.insert(0, str(BUNDLE / "starter"))""",
    """# 2. A valid submission.json in every case
from trm.competition.supervisor import supervise
supervise(BUNDLE, INPUT, WORKING, SLUG, HOURS, OPTIONS)""",
    """# 3. What happened, first line first
print((WORKING / "arc.log").read_text())""",
)


def notebook(target: Target) -> str:
    """The notebook, nbformat 4.5: three cells, no outputs."""
    fields: Mapping[str, Any] = asdict(target)
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {},
            "outputs": [],
            "source": text.format(**fields).splitlines(keepends=True),
        }
        for number, text in enumerate(CELLS, 1)
    ]
    kernelspec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernelspec, "language_info": {"name": "python"}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, indent=1) + "\n"
