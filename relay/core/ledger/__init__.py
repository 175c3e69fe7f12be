"""The run's log: entries, changes, rules, states and the objects next to it; knows no person and no files."""
