"""Runs a command on a rented machine within limits of time, then deletes the machine."""
