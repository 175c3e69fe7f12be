"""Says in plain words how fast a machine trains and how many steps a session has time for; measures nothing."""

from __future__ import annotations

import math

from relay.app.messages.wording import counted, duration


def pace(step_s: float, left_s: float) -> str:
    """`step_s`: a measured training step; `left_s`: what the session has left for them, infinite without a budget."""
    if step_s <= 0:
        return "PACE: a step takes no time that could be measured."
    each = f"{1000 * step_s:,.0f} ms" if step_s < 10 else f"{step_s:,.0f} s"
    if math.isinf(left_s):
        return f"PACE: a step takes {each} here, so an hour is {counted(int(3600 / step_s), 'step')}."
    steps = counted(int(max(0.0, left_s) / step_s), "step")
    return f"PACE: a step takes {each} here, so this session has time for about {steps} more ({duration(left_s)})."
