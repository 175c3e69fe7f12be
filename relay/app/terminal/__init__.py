"""Live output on the terminal: progress, transfers, waiting, and the streams under it."""
