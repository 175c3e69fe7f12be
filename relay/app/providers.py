"""Loads this version's table of providers (data/providers.yaml)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml

from relay.people.policy import Providers


@cache
def shipped() -> Providers:
    """This version's table of providers."""
    text = (files("relay.app") / "data" / "providers.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # with libyaml 2 ms a command, otherwise 35 ms
    return Providers.model_validate(loader(text).get_single_data())
