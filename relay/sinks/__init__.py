"""Trackers that people know, fed from what a run's ledger says (docs/decisions/0012-metrics-and-sinks.md)."""
