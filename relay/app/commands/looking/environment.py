"""`env` and `--version`: what a bug report needs about this installation; no name, path, address or secret."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

import relay
from relay.app.commands.command import Answer, Call, subcommand
from storage.kinds import PACKAGES as KINDS_PACKAGES
from storage.packages import installation

PACKAGES = (
    "torch", "triton", "numpy", "numba", "einops", "safetensors", "pydantic", "typer", "rich", "filelock", "tenacity",
    *KINDS_PACKAGES, "wandb", "tensorboard", "trackio",
)  # fmt: skip
"""Whose versions are reported."""
OURS = ("RELAY_", "ACCOUNT_ID", "RUN_NAME")


@subcommand("")
def env(call: Call) -> Answer:
    """Print the versions and the kind of machine, for a bug report: no names, paths, addresses or secrets."""
    document = environment(call.app.environ, call.app.machine.provider)
    lines = [f"{key}: {_text(value)}" for key, value in document.items() if key != "schema"]
    return Answer(document, "\n".join(lines))


def environment(environ: Mapping[str, str], machine: str) -> dict[str, Any]:
    """Return relay.env/1. Of variables it holds only the names."""
    return {
        "schema": "relay.env/1",
        "trm-relay": relay.__version__,
        "installation": installation(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "machine": machine,
        "cpus": os.cpu_count(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "variables": sorted(name for name in environ if name.startswith(OURS)),
    }


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        print(f"trm-relay {relay.__version__}")
        raise typer.Exit


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {found}" for name, found in value.items()) or "none"
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
