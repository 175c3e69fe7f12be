"""Writes the record of the lowest versions that pyproject.toml admits, after `make lowest` has tested them."""

from __future__ import annotations

import platform
import re
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "records" / "2026-11-30_lowest_versions" / "versions.md"
_BOUND = re.compile(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([^,;\s]+)")


def bounds(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, str]:
    """Return {package: lowest admitted version} of the dependencies and of all extras."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    listed = [*project["dependencies"], *(text for extra in extras for text in extra)]
    return {found[1]: found[2] for text in listed if (found := _BOUND.match(text))}


def rows() -> list[str]:
    """Return one row for each package: its bound, and the version that is installed here."""
    return [f"| {name} | {lowest} | {version(name)} |" for name, lowest in sorted(bounds().items())]


def recorded() -> dict[str, str]:
    """Return {package: lowest version} of the record."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {name: lowest for name, lowest, _ in cells[1:]}


def main() -> None:
    """Write the table."""
    head = f"Python {platform.python_version()}. Written by `python -m tests.lowest`; see README.md.\n"
    table = "\n".join([head, "| package | lowest admitted | tested |", "| --- | --- | --- |", *rows()])
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    TABLE.write_text(f"# Lowest versions\n{table}\n", encoding="utf-8")
    sys.stdout.write(f"{TABLE}\n")


if __name__ == "__main__":
    main()
