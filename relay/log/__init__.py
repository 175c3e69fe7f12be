"""What a run's ledger says: entries, changes, rules, states, and objects beside it; knows no person and no files."""
