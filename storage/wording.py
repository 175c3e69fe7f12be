"""Counts in messages. Imports no module of ours, because the Kaggle bundle holds this file alone."""

from __future__ import annotations


def counted(number: int, noun: str, nouns: str = "") -> str:
    """1 commit, 2 commits, 1,000 commits. nouns: a plural that is not the noun with an s."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
