"""Machines for rent: the time and the cost of a task on each, and files that start it there."""
