"""A run in its store: which run it is, where it lies, and how it is forked, archived or salvaged."""
