"""Writes docs/reference/machines.md from the three tables (python -m relay.app.pages.machinesdoc)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from relay.app.cloud import machines, prices, rates
from relay.app.cloud.figures import rounded
from relay.app.cloud.machines import Machines
from relay.app.cloud.prices import STALE_DAYS, Prices
from relay.app.cloud.rates import Rates

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "machines.md"
TITLE = f"""# Machines, prices and measured steps
*This page is written from `machines.yaml`, `prices.yaml` and `rates.yaml` in `relay/app/data` by
`python -m relay.app.pages.machinesdoc`; a test fails while it is out of date.* `cloud list` computes times and costs
from these tables; [how to rent a machine](../how-to/cloud.md) explains it. Prices older than {STALE_DAYS} days, or
without a date, are warned of: look at the provider's own page before you rent."""


def page(of: Machines, priced: Prices, measured: Rates) -> str:
    """Return the whole page, Markdown."""
    parts = [
        TITLE,
        "## Cards",
        _table(
            ("card", "compute capability", "memory, GB", "dense TFLOP/s", "TB/s", "GPUs of a host", "source"),
            (
                (
                    card.name,
                    ".".join(map(str, card.capability)),
                    f"{card.memory_gb:g}",
                    f"{card.tflops:g}",
                    f"{card.tbs:g}",
                    ", ".join(map(str, card.gpus)),
                    card.source,
                )
                for card in of.cards
            ),
        ),
        "## Starts and ends, guessed",
        _table(
            ("what", "from", "to", "source"),
            (
                *(
                    (f"{name} start, min", *map("{:g}".format, span.minutes or ()), span.source)
                    for name, span in of.starts.items()
                ),
                ("between two ends of a spot machine, h", *map("{:g}".format, of.spot.hours or ()), of.spot.source),
            ),
        ),
        "## Prices, dollars an hour",
        _table(
            ("cloud", "date", "source"),
            ((one.cloud, str(one.date or "**unknown**"), one.source) for one in priced.catalogs),
        ),
        _table(
            ("machine", "cloud", "on demand", "spot", "region"),
            (
                (
                    f"{one.gpus}x{one.card}",
                    one.cloud,
                    "" if one.on_demand is None else f"{one.on_demand:.2f}",
                    "" if one.spot is None else f"{one.spot:.2f}",
                    one.region,
                )
                for one in sorted(priced.prices, key=lambda one: (one.card, one.gpus, one.cloud))
            ),
        ),
        "## Measured steps",
        _table(
            ("card", "task", "kind of step", "ms", "TFLOP/s", "n", "torch, triton", "record"),
            (
                (
                    f"{one.gpus} x {one.card}" if one.gpus > 1 else one.card,
                    f"`{one.task}`",
                    one.method,
                    rounded(one.ms, 4),
                    f"{one.tflops:.0f}",
                    str(one.n),
                    f"{one.torch}, {one.triton}",
                    f"[{one.record}](../records/{one.record}/README.md)",
                )
                for one in measured.rates
            ),
        ),
        _table(
            ("GPUs", "task", "part of one GPU's rate that each reaches", "n", "record"),
            (
                (
                    f"{one.gpus} x {one.card}",
                    f"`{one.task}`",
                    f"{one.share:.1%}",
                    str(one.n),
                    f"[{one.record}](../records/{one.record}/README.md)",
                )
                for one in measured.together
            ),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(machines.shipped(), prices.shipped(), rates.shipped()), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
