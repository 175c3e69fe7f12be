"""This machine: its processes, signals, clock, cards, files and logs; knows no store and no run's state."""
