"""Solves the tasks of a competition: a file that is valid at every instant, votes that survive a kill, a bundle."""
