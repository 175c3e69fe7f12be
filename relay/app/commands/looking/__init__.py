"""Read-only commands: reports, checks, plans and trackers. They write no run."""
