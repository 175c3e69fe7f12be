"""The table of providers that comes with this version (data/providers.yaml)."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import yaml

from relay.people.policy import Providers


@cache
def shipped() -> Providers:
    """The table that comes with this version."""
    text = (files("relay.app") / "data" / "providers.yaml").read_text(encoding="utf-8")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml, where it is here: 2 ms in each command, not 35
    return Providers.model_validate(loader(text).get_single_data())
