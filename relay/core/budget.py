"""Computes when a session must stop training so that its last commit is durable in time. The clock is an argument.

All times are seconds on the session's monotonic clock (`Runtime.monotonic`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal["step", "snapshot", "save", "upload", "append", "evaluate", "restore"]
KINDS: tuple[Kind, ...] = ("step", "snapshot", "save", "upload", "append", "evaluate", "restore")
TRANSFERS: tuple[Kind, ...] = ("upload", "restore")
"""Kinds that move a checkpoint's bytes, and so have a bandwidth."""
SAMPLES = 20
UNMEASURED_S = 10.0
"""Assumed for an unmeasured upload; at most a tenth of the budget."""

BELIEVED = 0.05
"""Inherited durations are capped at this share of the budget. Each is doubled as a single sample; together they leave
half of the budget for training."""

EndPlan = Literal["both", "final", "inflight"]


@dataclass(frozen=True)
class Limits:
    """The two limits of a session; the earlier one counts."""

    started: float
    """Process start."""
    budget_s: float | None = None
    """From process start to process exit (`--budget-minutes`)."""
    machine_started: float | None = None
    machine_limit_s: float | None = None
    """The provider's session limit, from machine start."""
    margin_s: float = 3.0
    """Reserve for the interpreter's exit and for unmeasured work."""

    @property
    def deadline(self) -> float:
        """The process must have exited by then; infinite without a limit."""
        return min(self.ends().values(), default=math.inf)

    def ends(self) -> dict[str, float]:
        """The ends of both limits by name, for the report."""
        found = {}
        if self.budget_s is not None:
            found["budget"] = self.started + self.budget_s
        if self.machine_limit_s is not None and self.machine_started is not None:
            found["machine"] = self.machine_started + self.machine_limit_s
        return found


class Measured:
    """The last durations of each kind, and a high estimate of them that adds more for few samples."""

    def __init__(self, past: Mapping[str, float] | None = None, believed_s: float = math.inf) -> None:
        """`past`: the summary of another session, maybe on a slower machine; each kind is capped at `believed_s`.

        It counts only until this session has measured the kind itself.
        """
        self._seen: dict[Kind, deque[float]] = {kind: deque(maxlen=SAMPLES) for kind in KINDS}
        self._rates: dict[Kind, deque[float]] = {kind: deque(maxlen=SAMPLES) for kind in TRANSFERS}
        self._inherited: set[Kind] = set()
        self._doubtful: set[Kind] = set()
        for kind in KINDS:
            value = (past or {}).get(f"{kind}_s")
            if value is not None and 0 <= value < 86_400:
                self._seen[kind].append(min(value, believed_s))
                self._inherited.add(kind)
                if value > believed_s:
                    self._doubtful.add(kind)
        for kind in TRANSFERS:
            rate = (past or {}).get(f"{kind}_bytes_s", 0.0)
            if kind in self._inherited - self._doubtful and 0 < rate < math.inf:
                self._rates[kind].append(rate)
        self._believed_s = believed_s

    def add(self, kind: Kind, seconds: float, size: int = 0) -> None:
        """Add a duration; `size`: bytes moved by a transfer."""
        if kind in self._inherited:
            self._seen[kind] = deque(maxlen=SAMPLES)  # another thread may be reading the old one
            if kind in self._rates:
                self._rates[kind] = deque(maxlen=SAMPLES)
            self._inherited.discard(kind)
            self._doubtful.discard(kind)
        self._seen[kind].append(max(0.0, seconds))
        if size > 0 and seconds > 0 and kind in self._rates:
            self._rates[kind].append(size / seconds)

    def here(self, kind: Kind) -> bool:
        """Whether this session has measured the kind itself."""
        return bool(self._seen[kind]) and kind not in self._inherited

    def foreseen(self, kind: Kind, size: int, unmeasured: float) -> float:
        """`high` for a transfer of `size` bytes; more bytes take longer, by the lowest measured bandwidth.

        Fewer bytes are not assumed to be faster: most of a small file's time is waiting.
        """
        high, rates = self.high(kind, unmeasured), self._rates[kind]
        if not rates:
            return high
        by_size = size / min(rates)
        return max(high, (by_size if self.here(kind) else min(by_size, self._believed_s)) * (1 + 1 / len(rates)))

    def known(self, kind: Kind) -> bool:
        """Whether the kind was measured, by this session or, within the cap, by an earlier one."""
        return bool(self._seen[kind]) and kind not in self._doubtful

    def high(self, kind: Kind, unmeasured: float = 0.0) -> float:
        """max(samples) · (1 + 1/n) over the last n <= `SAMPLES` durations: doubled for a single one."""
        seen = self._seen[kind]
        return max(seen) * (1 + 1 / len(seen)) if seen else unmeasured

    def median(self, kind: Kind) -> float:
        """The median of the last `SAMPLES` durations; 0 without any."""
        seen = sorted(self._seen[kind])
        return seen[len(seen) // 2] if seen else 0.0

    def summary(self) -> dict[str, float]:
        """The longest duration of each kind and the bandwidths, for the next session: `{"upload_s": 1.2, ...}`."""
        found = {f"{kind}_s": round(max(seen), 6) for kind, seen in self._seen.items() if seen}
        return found | {f"{kind}_bytes_s": round(min(rates), 3) for kind, rates in self._rates.items() if rates}


class Budget:
    """Decides at step boundaries, from limits and measurements, what still fits."""

    def __init__(self, limits: Limits, measured: Measured | None = None) -> None:
        self.limits = limits
        self.measured = measured or Measured()
        self.size = 0
        """Bytes of the newest checkpoint, as an estimate for the next."""
        self.sending = 0
        """Bytes of the upload in flight, 0 without one."""
        self._cut, self._late = math.inf, -math.inf

    @property
    def deadline(self) -> float:
        return min(max(self.limits.deadline, self._late), self._cut)

    def allow(self, until: float) -> None:
        """The deadline has passed but the process still runs: allow the remaining work until `until`."""
        self._late = until

    def cut(self, at: float) -> None:
        """A signal arrived: everything must be over by `at`."""
        self._cut = min(self._cut, at)

    def transfer(self, size: int = 0) -> float:
        """Seconds from a snapshot in memory to verified files and manifest in the store, for at least `size` bytes.

        Another machine's measurements say little about this one's connection: until this machine has uploaded, an
        upload is assumed to be at most as fast as the restore's download.
        """
        measured = self.measured
        assumed = min(UNMEASURED_S, 0.1 * (self.limits.budget_s or math.inf))
        upload = measured.foreseen("upload", max(self.size, size), max(assumed, 2 * measured.high("restore")))
        if not measured.here("upload") and measured.here("restore"):
            upload = max(upload, measured.median("restore"))
        return measured.high("save") + upload

    def reserve(self) -> float:
        """Seconds to keep for the end: snapshot, upload (with one more step during it), commit and release, margin."""
        end = max(self.transfer(), self.measured.high("step"))
        return self.measured.high("snapshot") + end + 2 * self.measured.high("append", 1.0) + self.limits.margin_s

    def spare(self, now: float) -> float:
        """Seconds left beyond the reserve for the end; infinite without a limit."""
        return self.deadline - now - self.reserve()

    def should_stop(self, now: float, inflight_rest: float = 0.0) -> bool:
        """Whether one more step would leave too little for the upload in flight and the final commit."""
        deadline = self.deadline
        return deadline < math.inf and now + self.measured.high("step") + inflight_rest + self.reserve() > deadline

    def may_upload(self, now: float) -> bool:
        """Whether an upload started now ends before the final snapshot."""
        return now + self.transfer() + self.measured.high("append", 1.0) + self.reserve() <= self.deadline

    def for_evaluation(self, now: float) -> float:
        """Seconds that an evaluation started now may take; 0 for none. Twice the measured time, or a tenth of the rest.

        Abandoned evaluations are measured too, so that the next one gets more time.
        """
        left = self.spare(now)
        if left == math.inf:
            return left
        likely = self.measured.high("evaluate", 0.1 * left)
        return min(2 * likely, left) if 0 < likely <= left else 0.0

    def plan_end(self, now: float, inflight_rest: float | None) -> EndPlan:
        """The uploads that can still become durable: both, or that of the highest step (the final one if it fits)."""
        final = self.transfer() + self.measured.high("append", 1.0)
        if inflight_rest is None or now + inflight_rest + final <= self.deadline:
            return "both"
        return "final" if now + final <= self.deadline else "inflight"
