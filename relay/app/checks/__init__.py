"""Finds what is wrong with a run, a store or a machine, and reports it; repairs and writes nothing."""
