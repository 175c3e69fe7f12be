"""Puzzles as token arrays; every batch is a pure function of (seed, step)."""
