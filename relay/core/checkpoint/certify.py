"""Certifies a session's first step (P9): exact, not-exact or unknown, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relay.core.checkpoint.packing import Facts
from relay.core.checkpoint.restore import Restored
from relay.core.ledger.fields import Certified
from relay.core.ledger.frozen import FIRST_SESSION
from relay.core.workload import StepDigest


@dataclass
class Certificate:
    """The result for this session's first step (P9); the first commit stores it."""

    certified: Certified = "unknown"
    why: str = ""


def certify(certificate: Certificate, restored: Restored | None, mine: StepDigest, facts: Facts) -> None:
    """Compare the first step's digest with the one in the checkpoint, and write the result into `certificate`."""
    if restored is None:
        certificate.why = certificate.why or FIRST_SESSION
        return
    promised = restored.checkpoint.next
    if promised is None or promised.step != mine.step:
        certificate.certified, certificate.why = "unknown", "the predecessor left no digest of this step"
    elif restored.manifest.config_hash != facts.config_hash:
        certificate.certified, certificate.why = "unknown", "the configuration is another one"
    elif promised.path != mine.path[:200]:
        certificate.certified, certificate.why = "unknown", f"another path: {promised.path} then, {mine.path} now"
    elif promised.digest == mine.digest:
        certificate.certified, certificate.why = "exact", ""
    else:
        certificate.certified = "not-exact"
        certificate.why = difference(restored.manifest.fingerprint, facts.fingerprint)
    certificate.why = certificate.why[:200]


def difference(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The differences between two fingerprints in one line."""
    changed = [
        f"{name} {then.get(name, 'absent')} -> {now.get(name, 'absent')}"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    ]
    return "; ".join(changed) or "same environment: damage in memory, or an operation that is not deterministic"
