"""Who holds the lease, the holder's sign of life, this machine's locks, and how a session is asked to stop."""
