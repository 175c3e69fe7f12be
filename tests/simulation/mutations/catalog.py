"""All mutations, in the order of their files."""

from __future__ import annotations

from tests.simulation.mutations import archives, deletion, endings, files, ledger, misreading, training, usage
from tests.simulation.mutations.base import ALL, Mutation

MODULES = (ledger, files, deletion, training, usage, archives, endings, misreading)
"""Importing them fills ALL."""
CAUGHT: tuple[Mutation, ...] = tuple(one for one in ALL if not one.covered_by)
HARMLESS: tuple[Mutation, ...] = tuple(one for one in ALL if one.covered_by)
