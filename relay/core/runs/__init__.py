"""Runs in a store: opening, creating, forking, archiving, salvaging and repairing them."""
