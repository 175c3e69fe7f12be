"""Counts in messages. Needs nothing but Python: the Kaggle bundle takes this file along."""

from __future__ import annotations


def counted(number: int, noun: str, nouns: str = "") -> str:
    """1 commit, 2 commits, 1,000 commits. nouns: for one that does not take an s."""
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
