"""Short names for what a session trains on, from a workload's fingerprint; knows no devices."""

from __future__ import annotations

import re
from collections.abc import Mapping

LONGEST = 22
_OTHER = re.compile(r"[^A-Za-z0-9 ._+()/-]+")
_MAKERS = ("NVIDIA ", "Tesla ", "GeForce ")


def gpu_name(fingerprint: Mapping[str, str]) -> str | None:
    """The GPU's name without its maker's, such as "H100 80GB HBM3" or "T4", else the kind of device, such as "cpu".

    Whole words of letters, digits and a few marks, at most LONGEST characters: it goes into entries that strangers
    read. None if the fingerprint names neither.
    """
    name = " ".join(_OTHER.sub(" ", fingerprint.get("gpu") or fingerprint.get("device") or "").split())
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    name = name.lstrip(" ._+()/-")
    if len(name) > LONGEST:
        name = name[: LONGEST + 1].rpartition(" ")[0] or name[:LONGEST]
    return name.rstrip() or None
