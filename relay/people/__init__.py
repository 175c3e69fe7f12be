"""Participants of a run: accounts, owners, states, quotas, policy, turns and plans. Prints nothing."""
