"""Whose turn comes and when a run will be done, from what was measured; writes nothing and knows no store."""
