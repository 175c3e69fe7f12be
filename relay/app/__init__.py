"""What people type and read: commands, messages, terminal, views, checks, dashboard, plots, trackers, notebooks."""
