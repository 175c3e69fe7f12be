"""Third-party trackers, fed from the run's ledger (docs/decisions/0012-metrics-and-sinks.md)."""
