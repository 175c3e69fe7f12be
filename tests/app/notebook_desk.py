"""A notebook as Colab or Kaggle would run it: their modules doubled, a checkout in a folder, a real IPython kernel."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).parents[2]
SMALLER = """
batch_size: 8
data:
  train_rows: 1000
arch:
  hidden_size: 32
  H_cycles: 1
  L_cycles: 1
  halt_max_steps: 2
"""
CHECKOUTS = {"colab": "/content/trm-relay", "kaggle": "/kaggle/working/trm-relay"}
MARKS = {"colab": {"COLAB_RELEASE_TAG": "release-colab_20261101"}, "kaggle": {"KAGGLE_KERNEL_RUN_TYPE": "Interactive"}}
DOUBLES = {
    "google/colab/__init__.py": "",
    "google/colab/userdata.py": """
import json, pathlib
class SecretNotFoundError(Exception): pass
class NotebookAccessError(Exception): pass
class TimeoutException(Exception): pass
def get(name):
    from IPython import get_ipython
    if get_ipython() is None: raise AttributeError("'NoneType' object has no attribute 'kernel'")
    found = json.loads((pathlib.Path(__file__).parents[2] / "secrets.json").read_text())
    if name not in found: raise SecretNotFoundError(name)
    return found[name]
""",
    "google/colab/runtime.py": """
import pathlib
def unassign(): (pathlib.Path(__file__).parents[2] / "released").touch()
""",
    "kaggle_secrets.py": """
import json, pathlib
class BackendError(Exception): pass
class CredentialError(Exception): pass
class UserSecretsClient:
    def get_secret(self, name):
        found = json.loads((pathlib.Path(__file__).parent / "secrets.json").read_text())
        if name not in found: raise BackendError(name)
        return found[name]
""",
}
"""What is written in the services' stead, by path."""


@dataclass
class Service:
    """One machine of Colab or Kaggle with a notebook open."""

    name: str
    folder: Path
    sockets: Path
    """A folder with a short name: the path of a socket has about 100 bytes at most."""
    secrets: dict[str, str] = field(default_factory=dict)
    environ: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.checkout, self.modules = self.folder / "trm-relay", self.folder / "modules"
        self.checkout.mkdir(parents=True)
        names = ("relay", "storage", "trm", "rotate_accounts.py", "multi_account_workflow.sh")
        for part in (*(ROOT / name for name in names), *ROOT.glob("constraints*.txt")):
            (self.checkout / part.name).symlink_to(part)
        settings = (ROOT / "config_multi_account.yaml").read_text()
        (self.checkout / "config_multi_account.yaml").write_text(settings + SMALLER)
        for path, text in DOUBLES.items():
            (self.modules / path).parent.mkdir(parents=True, exist_ok=True)
            (self.modules / path).write_text(text)
        self.hold(**self.secrets)

    def hold(self, **secrets: str) -> None:
        """These are the notebook's secrets from now on."""
        (self.modules / "secrets.json").write_text(json.dumps(secrets))

    def start_by(self, python: Path, needed: dict[str, str]) -> None:
        """Processes of the notebook's cells are started by that interpreter, which needs these variables."""
        (self.modules / "sitecustomize.py").write_text(f"import sys\nsys.executable = {str(python)!r}\n")
        self.environ |= needed | {"PATH": f"{python.parent}:{os.environ['PATH']}"}

    @property
    def released(self) -> bool:
        """Whether the machine was given back."""
        return (self.modules / "released").exists()

    def cells(self, **choices: str) -> nbformat.NotebookNode:
        """The notebook as it is shipped, with the person's choices typed into its forms."""
        text = (ROOT / "notebooks" / f"{self.name}.ipynb").read_text().replace(CHECKOUTS[self.name], str(self.checkout))
        document = nbformat.reads(text, as_version=4)
        for cell in document.cells:
            lines = [_chosen(line, choices) for line in cell.source.splitlines()]
            cell.source = "\n".join(lines)
        return document

    def client(self, document: nbformat.NotebookNode, **options: Any) -> NotebookClient:
        """The runner of its cells, one by one or all. It is connected to the kernel by Unix sockets: another program
        might take a free port before the kernel opens it."""
        manager = {"transport": "ipc", "ip": f"{self.sockets}/kernel"}
        config = Config(AsyncKernelManager=manager)
        return NotebookClient(document, timeout=200, kernel_name="python3", resources={}, config=config, **options)

    @property
    def surroundings(self) -> dict[str, str]:
        """The kernel's environment: no address, no secret."""
        mine = ("RELAY_", "ACCOUNT_", "RUN_", "AWS_", "COLAB_", "KAGGLE_", "PYTHON")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(mine)}
        path = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(self.modules)}
        return kept | path | {"HOME": str(self.folder), **MARKS[self.name], **self.environ}


def _chosen(line: str, choices: dict[str, str]) -> str:
    name = line.partition(" = ")[0]
    return f"{name} = {choices[name]}" if name in choices else line


def said(cell: nbformat.NotebookNode) -> str:
    """Everything a cell shows, as text."""
    parts = []
    for output in cell.get("outputs", []):
        parts.append(output.get("text") or output.get("data", {}).get("text/plain") or output.get("evalue", ""))
        parts.extend(output.get("traceback", []))
    return "\n".join(parts)
