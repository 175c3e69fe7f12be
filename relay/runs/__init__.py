"""A run in its store: which it is, where it lies, copied, archived or salvaged; trains nothing, takes no lease."""
