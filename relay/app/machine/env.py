"""Detects the kind of machine (Colab, Kaggle, Slurm, other), its age and its session limit."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from relay.core.lease.processage import process_age

Provider = Literal["colab", "kaggle", "slurm", "local"]
Cloud = Literal["aws", "gcp", "azure"]

LIMIT_MINUTES: dict[Provider, float] = {"colab": 720.0, "kaggle": 720.0}
"""Longest session of each notebook service (Colab FAQ: "at most 12 hours"; Kaggle docs: CPU and GPU 12 hours)."""

FIRMWARE: tuple[tuple[str, str, Cloud], ...] = (
    ("sys_vendor", "Amazon EC2", "aws"),
    ("bios_version", r"[0-9.]+\.amazon", "aws"),
    ("product_name", "Google Compute Engine", "gcp"),
    ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", "azure"),
)
"""(file under /sys/class/dmi/id, pattern of its content, cloud). EC2's older machines run Xen."""


@dataclass(frozen=True)
class Machine:
    """The machine that a session runs on."""

    provider: Provider
    age_s: float | None
    """Seconds since this machine (container, allocation) started; None if unknown."""
    limit_minutes: float | None
    """The provider's limit from machine start; None if there is none or it is unknown."""
    cloud: Cloud | None = None
    """The cloud of a rented machine, by its firmware; None for notebooks, whose users cannot query it."""
    rerun: bool = False
    """Whether a Kaggle competition is scoring a submission: no internet, and only the submission is kept."""

    def left_s(self, limit_minutes: float | None = None) -> float | None:
        """Seconds until the given limit, by default the provider's; None without a limit or an age."""
        limit = limit_minutes or self.limit_minutes
        return None if limit is None or self.age_s is None else limit * 60 - self.age_s


def detect(environ: Mapping[str, str], wall: float, root: Path = Path("/")) -> Machine:
    """Detect the machine from environment variables and a few files under `root`. `wall`: unix seconds."""
    provider = _provider(environ, root)
    if provider == "slurm":
        return _slurm(environ, wall, root)
    cloud = _cloud(root) if provider == "local" else None
    rerun = provider == "kaggle" and bool(environ.get("KAGGLE_IS_COMPETITION_RERUN"))
    return Machine(provider, process_age(root, "1"), LIMIT_MINUTES.get(provider), cloud, rerun)


def _provider(environ: Mapping[str, str], root: Path) -> Provider:
    if environ.get("KAGGLE_KERNEL_RUN_TYPE"):
        return "kaggle"
    if environ.get("COLAB_RELEASE_TAG") or (root / "var/colab/hostname").exists():
        return "colab"
    return "slurm" if environ.get("SLURM_JOB_ID") else "local"


def _slurm(environ: Mapping[str, str], wall: float, root: Path) -> Machine:
    start, end = (_number(environ.get(f"SLURM_JOB_{name}_TIME")) for name in ("START", "END"))
    running = process_age(root, "self")  # a job is older than its processes, however slow the machine's clock
    age = max(wall - start, running or 0.0) if start is not None else running
    limit = (end - start) / 60 if start is not None and end is not None and end > start else None
    return Machine("slurm", age, limit, _cloud(root))


def _cloud(root: Path) -> Cloud | None:
    """Detect the cloud from firmware files, as cloud-init does; no network requests."""
    for name, pattern, cloud in FIRMWARE:
        try:
            found = (root / "sys/class/dmi/id" / name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if re.fullmatch(pattern, found.strip()):
            return cloud
    return None


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "nan")
    except ValueError:
        return None
    return found if math.isfinite(found) else None
