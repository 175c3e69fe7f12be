"""Who may write next: run identity, ledger, lease, checkpoints and sessions; never imports torch."""

__version__ = "0.1.0"
