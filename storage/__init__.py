"""Names and bytes: a small store interface, its backends, and a numbered append-only log on it."""
