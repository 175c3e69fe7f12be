"""Providers' rules as dated data."""

from __future__ import annotations

import datetime
from zoneinfo import ZoneInfo

import pytest
from pydantic import ValidationError

from relay.errors import PolicyRefused
from relay.policy import Providers, check_accounts, shipped


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
    assert shipped().named("kaggle").weekly_hours == 30


def test_one_account_too_many_is_refused_with_source_date_and_ways_out() -> None:
    kaggle = shipped().named("kaggle")
    check_accounts(kaggle, "Ana", "x", [])
    with pytest.raises(PolicyRefused) as error:
        check_accounts(kaggle, "Ana", "x", ["account_2", "account_1"])
    text = str(error.value)
    assert all(part in text for part in ("account_1, account_2", str(kaggle.as_of), kaggle.source, "Instead"))
    check_accounts(shipped().named("slurm"), "Ana", "x", ["a"] * 50)
    check_accounts(kaggle.model_copy(update={"accounts_per_owner": 3}), "Ana", "x", ["a", "b"])


def test_a_table_with_an_unknown_field_is_refused() -> None:
    row = shipped().providers[0].model_dump() | {"colour": "red"}
    with pytest.raises(ValidationError):
        Providers.model_validate({"providers": [row]})
