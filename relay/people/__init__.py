"""Who takes part and who is next: accounts, owners, states, hours, quotas, policy and plans; prints nothing."""
