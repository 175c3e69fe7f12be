"""Writes docs/reference/providers.md from the table of providers (python -m relay.app.pages.policydoc)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relay.app.providers import shipped
from relay.people.policy import STALE_DAYS, Provider, Providers

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "providers.md"
TITLE = f"""# What providers allow
*This page is written from `relay/app/data/providers.yaml` by `python -m relay.app.pages.policydoc`; a test fails while
it is out of date.* Terms change, and these are notes, not advice: read a provider's own page before you rely on a row.
A record older than {STALE_DAYS} days is warned of by `register`, `next` and `doctor`.

`register` refuses a second account of one person where one is allowed (exit 77), and there is no option against that. A
provider that is not listed here counts as one account a person. What an account says of itself (`--session-minutes`,
`--weekly-hours`, `--reset`) counts more than a record's numbers, never more than its rules."""
EVIDENCE = {
    "page": "read on the provider's own page",
    "transcribed": "**only as others transcribed it**: look yourself",
    "secondary": "**only as others report it**: look yourself",
    "unread": "**terms on several accounts not read**",
    "own": "no provider's terms are involved, or the site's own policy decides",
}


def page(table: Providers) -> str:
    """Return the whole page, Markdown."""
    rows = [_row(p) for p in table.providers]
    head = [
        "| provider | accounts a person | session | idle | hours a week, reset | how it was read |",
        "|---|---|---|---|---|---|",
    ]
    return "\n\n".join([TITLE, "\n".join([*head, *rows]), *(section(p) for p in table.providers)]) + "\n"


def section(provider: Provider) -> str:
    """Return the section of one provider."""
    lines = "\n".join(f"- {name}: {text}" for name, text in _said(provider) if text)
    return f"## {provider.title} (`{provider.name}`)\n{lines}"


def _said(provider: Provider) -> Iterator[tuple[str, str]]:
    yield "source", f"{provider.source}{f'; <{provider.url}>' if provider.url else ''}"
    yield "read", f"{provider.as_of}, {EVIDENCE[provider.evidence]}"
    yield "not for training", provider.unsupported
    yield "automation", provider.automation
    yield "commercial use", provider.commercial
    yield "what participants confirm, once a run", provider.clause if provider.coauthor else ""
    yield "competitions", provider.competitions
    yield "sharing an account", provider.sharing
    yield "distributed workers", provider.distributed_workers
    yield "hours about to lapse may be a reason in `next`", "yes" if provider.may_fill_hours else ""
    yield "notes", provider.notes


def _row(provider: Provider) -> str:
    many = "any number" if provider.accounts_per_owner is None else str(provider.accounts_per_owner)
    hours = f"{provider.weekly_hours:g} h" if provider.weekly_hours else ""
    week = ", ".join(filter(None, [hours, str(provider.reset or "")]))
    cells = (
        provider.title,
        many if not provider.unsupported else "not for training",
        _minutes(provider.session_limit_minutes),
        _minutes(provider.idle_minutes),
        week,
        EVIDENCE[provider.evidence].split(":")[0].replace("**", ""),
    )
    return f"| {' | '.join(cells)} |"


def _minutes(number: float | None) -> str:
    if number is None:
        return ""
    return f"{number / 60:g} h" if number >= 60 else f"{number:g} min"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(shipped()), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
