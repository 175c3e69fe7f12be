"""Who may write next: run identity, ledger, lease, checkpoints and sessions; imports nothing by itself."""

__version__ = "0.1.0"
