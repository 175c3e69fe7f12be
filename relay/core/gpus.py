"""Short names of GPUs, and comparison of names. Accesses no devices."""

from __future__ import annotations

import re
from collections.abc import Mapping

LONGEST = 22
_OTHER = re.compile(r"[^A-Za-z0-9 ._+()/-]+")
_MAKERS = ("NVIDIA ", "Tesla ", "GeForce ")
_MODEL = re.compile(r"(?!(x\d+|sm\d+|hbm\d\w?)$)([a-z]{1,4}[0-9]{1,4}[a-z]{0,2}|[0-9]{4})")
"""T4, P100, RTX6000, 3090: the words that name a model, unlike NVIDIA, Tesla, 80GB, x2."""


def gpu_name(fingerprint: Mapping[str, str]) -> str | None:
    """The GPU's name without its maker, such as "H100 80GB HBM3" or "T4", otherwise the device, such as "cpu".

    Whole words of letters, digits and a few marks, at most LONGEST characters, as it is stored in entries that others
    read. None if the fingerprint names neither.
    """
    name = " ".join(_OTHER.sub(" ", fingerprint.get("gpu") or fingerprint.get("device") or "").split())
    for maker in _MAKERS:
        name = name.removeprefix(maker)
    name = name.lstrip(" ._+()/-")
    if len(name) > LONGEST:
        name = name[: LONGEST + 1].rpartition(" ")[0] or name[:LONGEST]
    return name.rstrip() or None


def same_gpu(said: str, measured: str) -> bool:
    """Whether a declared name (`T4`) is a driver's name (`Tesla T4`): all its words are in the longer name."""
    words = _words(said)
    return bool(words) and words <= _words(measured)


def models(name: str) -> set[str]:
    """The words of a name that identify its model; two models have none in common."""
    return {word for word in _words(name) if _MODEL.fullmatch(word)}


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", name.casefold()))
