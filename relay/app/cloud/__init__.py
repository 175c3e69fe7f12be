"""Machines for rent: how long a task takes on each, what that costs, and files that start it there."""
