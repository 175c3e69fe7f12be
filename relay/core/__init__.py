"""Who may write next: settings, ledger, lease, checkpoints, sessions and runs, as a library that prints nothing."""
