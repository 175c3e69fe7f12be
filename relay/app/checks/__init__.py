"""Checks a run, a store or a machine, and reports faults with their fixes; repairs nothing."""
