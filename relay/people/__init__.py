"""Who takes part: accounts, their owners, states, hours and quotas; takes no lease and reads no run."""
