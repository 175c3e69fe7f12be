"""The pages about Colab, Kaggle, Slurm and spot machines name variables, files and commands that exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from relay.core.settings.config import Settings, leaves
from relay.core.settings.origins import READ_ELSEWHERE, variable
from storage.kinds import KINDS
from tests.app.cli import Desk

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "docs" / "how-to" / f"{name}.md" for name in ("notebooks", "machines")]
KNOWN = READ_ELSEWHERE | {variable(key) for key in leaves(Settings)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_variable_and_file_of_the_page_exists(page: Path) -> None:
    text = page.read_text()
    assert set(re.findall(r"\b(?:RELAY_[A-Z_]+|ACCOUNT_ID|RUN_NAME)\b", text)) <= KNOWN
    assert all(
        (ROOT / name).exists() for name in re.findall(r"\b(?:slurm/relay\.sbatch|multi_account_workflow\.sh)", text)
    )


@pytest.mark.parametrize("page", PAGES[:1], ids=lambda page: page.stem)
def test_the_page_names_the_secrets_that_are_asked_for(page: Path) -> None:
    needed = {name for kind in KINDS.values() for group in kind.credentials[:1] for name in group.needed}
    assert needed <= set(re.findall(r"`([A-Z_]+)`", page.read_text()))


def test_the_cell_that_hands_secrets_on_is_a_command(tmp_path: Path) -> None:
    (line,) = re.findall(r"%run rotate_accounts\.py (.*)", PAGES[0].read_text())
    Desk(tmp_path)(*shlex.split(line))
