"""This machine: its kind, clock, log files, a notebook's secrets, the cloud's notice; knows no run's state."""
