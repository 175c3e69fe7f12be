"""Commands in advice are written in one form and can be copied."""

from __future__ import annotations

import re
import shlex
import sys
import sysconfig
from contextlib import nullcontext
from pathlib import Path

import pytest

import relay
from relay.app.messages.advice import command, session, set_up, shell
from relay.app.messages.errors import paragraph
from relay.app.notebooks.notebook import Notebook
from relay.app.providers import shipped
from relay.core.errors import RelayError
from relay.core.lease.blockers import TrainsAnother
from relay.core.ledger.target import LowerTarget, TargetBehind
from relay.core.runs.opening import PassingDisk, SimilarName
from relay.people.admission import AnotherMachine, AnotherOwner, Unconfirmed
from relay.people.policy import OneTooMany
from storage import packages
from storage.packages import interpreter

DOCUMENTATION = {"advice.py", "clidoc.py", "modelcard.py"}


def test_a_command_can_be_copied_into_a_shell() -> None:
    told = command("accounts edit a", "r", "--label", "it's mine", "x=$(y)")
    assert told.startswith("python rotate_accounts.py accounts edit a --run r ")
    assert shlex.split(told)[-2:] == ["it's mine", "x=$(y)"]


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (("python", "python3"), "python"),
        (("python",), "python"),
        (("python3",), "python3"),
        ((), "python"),
    ],
)
def test_python_is_called_by_a_name_that_this_machine_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], told: str
) -> None:
    monkeypatch.undo()
    for name in there:
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert interpreter() == told
    assert command("report") == f"{told} rotate_accounts.py report"


def test_no_message_writes_a_command_by_hand() -> None:
    root = Path(relay.__file__).parent
    written = [
        f"{path.name}:{number}"
        for path in root.rglob("*.py")
        if path.name not in DOCUMENTATION
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "rotate_accounts.py " in line and '"""' not in line
    ]
    assert not written


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Packages lie in this folder, which is no checkout; no trm-relay is on PATH."""
    monkeypatch.setattr(packages, "ROOT", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def test_each_installation_gets_commands_that_exist_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_python = [sys.executable, "-m", "trm_relay", "report", "--run", "r"]
    assert shlex.split(command("report", "r")) == by_python
    script = here / "bin" / "trm-relay"
    script.parent.mkdir()
    script.write_text("")
    script.chmod(0o755)
    assert shlex.split(command("report", "r")) == by_python, "the script is that of another environment"
    script.unlink()
    script.symlink_to(Path(sysconfig.get_path("scripts")) / "trm-relay")  # as pipx and uv tool link it
    assert command("report", "r") == "trm-relay report --run r"
    monkeypatch.setattr(packages, "ROOT", here / "archive-v0" / "x" / "site-packages")
    uvx = shlex.split(command("report"))
    assert uvx[:2] == ["uvx", "--from"] and uvx[-2:] == ["trm-relay", "report"]
    told = [command("report"), session({"RUN_NAME": "r"}), set_up(), packages.upgrade(), packages.install("s3")]
    assert not [line for line in told if "rotate_accounts" in line or ".sh" in line or "-e " in line]
    (here / "archive-v0" / "x" / "site-packages").mkdir(parents=True)
    (here / "archive-v0" / "x" / "site-packages" / "rotate_accounts.py").write_text("")
    assert "rotate_accounts.py report" in command("report") and session({"RUN_NAME": "r"}).endswith(".sh")


@pytest.mark.parametrize("by", ["variable", "block"])
def test_in_a_notebook_advice_is_a_line_for_a_cell(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = list[str]()
    monkeypatch.setattr(Notebook, "_follow", lambda _, words, document=False: (typed.extend(words), (0, ""))[1])
    if by == "variable":
        monkeypatch.setenv(packages.IN_CELLS, "1")
    with packages.in_cells() if by == "block" else nullcontext():
        exec(command("accounts edit a", "r", "--label", "it's mine"), {"notebook": Notebook()})  # noqa: S102
    assert typed[-6:] == ["accounts", "edit", "a", "--run", "r", "--label", "it's mine"][-6:]
    assert "relay(" not in shell("report"), "what is sent to others is for a shell"


KAGGLE = shipped().named("kaggle")
ERRORS = [
    AnotherMachine("account_1", KAGGLE, shipped().named("colab")),
    AnotherOwner("account_1", "Tim", "Ana", KAGGLE),
    Unconfirmed("account_1", "r", KAGGLE),
    OneTooMany(KAGGLE, "Ana", "Ana's", ["account_1"], ["account_1"]),
    SimilarName("p", "sudok", "p", "sudoku"),
    PassingDisk("file:///tmp/x"),
    LowerTarget("r", 100, 50),
    TargetBehind("r", 100, 50),
    TrainsAnother("account_1", "r", 0.0),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_in_a_notebook_an_error_names_cells_and_no_option(error: RelayError) -> None:
    outside = paragraph(error)
    with packages.in_cells():
        inside = paragraph(error)
    calls = re.sub(r"notebook\.\w+\([^)]*\)", "", inside)
    assert not re.search(r"rotate_accounts| --[a-z]|RELAY_(OWNER|COAUTHOR|EPHEMERAL)|RUN_NAME|ACCOUNT_ID", calls)
    assert outside != inside
