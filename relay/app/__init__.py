"""The application: commands, messages, terminal, views, checks, dashboard, plots, trackers, notebooks."""
