"""Commands about data and weights: what comes before a session, and what a checkpoint is worth after one."""
