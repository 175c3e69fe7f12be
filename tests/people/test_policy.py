"""Providers' rules as dated data."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from relay.app.messages.errors import paragraph
from relay.app.pages.policydoc import EVIDENCE, PAGE, page
from relay.app.providers import shipped
from relay.app.terminal.paragraphs import folded
from relay.core.errors import PolicyRefused
from relay.people.policy import STALE_DAYS, Providers, check_accounts, check_supported
from tests.app.cli import advised


def test_the_shipped_table_has_a_source_and_a_date_for_every_rule() -> None:
    table = shipped()
    assert len({p.name for p in table.providers}) == len(table.providers)
    for provider in table.providers:
        assert provider.source and provider.as_of >= datetime.date(2026, 1, 1)
        if provider.reset:
            ZoneInfo(provider.reset.zone)
    one = {p.name for p in table.providers if p.accounts_per_owner == 1}
    many = {p.name for p in table.providers if p.accounts_per_owner is None}
    assert {"colab", "kaggle", "unknown"} <= one and {"local", "lab", "slurm", "cluster"} <= many


def test_who_is_not_on_file_gets_the_rules_of_the_unknown() -> None:
    found = shipped().named(" NewCloud ")
    assert (found.name, found.accounts_per_owner) == ("newcloud", 1)
    assert shipped().named("unknown-cloud").name == "unknown-cloud", "a name of its own"
    assert shipped().named("kaggle").weekly_hours == 30


def test_one_account_too_many_is_refused_with_source_date_and_ways_out() -> None:
    kaggle = shipped().named("kaggle")
    check_accounts(kaggle, "Ana", "x", [])
    with pytest.raises(PolicyRefused) as error:
        check_accounts(kaggle, "Ana", "x", ["account_2", "account_1"])
    text = paragraph(error.value)
    assert all(
        part in text for part in ("account_1, account_2", str(kaggle.as_of), kaggle.source, "--owner", "--provider")
    )
    check_accounts(shipped().named("slurm"), "Ana", "x", ["a"] * 50)
    check_accounts(kaggle.model_copy(update={"accounts_per_owner": 3}), "Ana", "x", ["a", "b"])


def test_a_command_amid_the_refusal_is_kept_whole_and_what_follows_it_is_folded() -> None:
    kaggle = shipped().named("kaggle")
    with pytest.raises(PolicyRefused) as error:
        check_accounts(kaggle, "Ana", "x", ["account_1"], ["account_2"])
    lines = folded(paragraph(error.value), 80).split("\n")
    assert [advised(line, "register") for line in lines if "register" in line] == [[["register", "account_2", "LABEL"]]]
    assert max(map(len, lines)) <= 80


def test_a_table_with_an_unknown_field_is_refused() -> None:
    row = shipped().providers[0].model_dump() | {"colour": "red"}
    with pytest.raises(ValidationError):
        Providers.model_validate({"providers": [row]})


def test_the_page_of_providers_is_what_the_records_say_now() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(shipped()), "run python -m relay.app.pages.policydoc"


def test_what_nobody_read_on_a_page_says_so_in_the_refusal_and_on_the_page() -> None:
    for provider in shipped().providers:
        if provider.evidence in ("transcribed", "secondary"):
            assert "as others" in provider.cited and "look yourself" in EVIDENCE[provider.evidence]
        if provider.evidence == "unread":
            assert provider.accounts_per_owner == 1, "who was not read allows one"
        assert (provider.url is None) == (provider.evidence == "own" or provider.name == "unknown")
        assert bool(provider.clause) == provider.coauthor


def test_an_old_record_is_warned_of_and_rules_of_one_s_own_machines_never_are() -> None:
    kaggle, day = shipped().named("kaggle"), 86_400.0
    read = datetime.datetime.combine(kaggle.as_of, datetime.time(), datetime.UTC).timestamp()
    assert kaggle.stale(read + STALE_DAYS * day) == ""
    line = kaggle.stale(read + (STALE_DAYS + 1) * day)
    assert all(fact in line for fact in ("Kaggle", str(kaggle.as_of), "181 days", str(kaggle.url)))
    assert shipped().named("local").stale(read + 9999 * day) == ""


def test_where_nothing_can_be_trained_nobody_registers() -> None:
    with pytest.raises(PolicyRefused, match="single functions"):
        check_supported(shipped().named("zerogpu"))
    check_supported(shipped().named("kaggle"))


def test_hours_about_to_lapse_are_a_reason_only_where_that_was_read() -> None:
    assert not [p.name for p in shipped().providers if p.may_fill_hours and p.evidence != "page"]


@pytest.mark.parametrize(
    ("label", "provider"),
    [("vast.ai box", "vast"), ("Eva's RunPod", "runpod"), ("Lambda Cloud", "lambda"), ("HF ZeroGPU", "zerogpu"),
     ("TRC grant", "trc"), ("our grant", "grant"), ("Lightning Studio", "lightning"), ("Modal", "modal")],
)  # fmt: skip
def test_every_provider_is_found_in_a_label(label: str, provider: str) -> None:
    found = shipped().in_text(label)
    assert found is not None and found.name == provider
