"""The relay's own settings, from a file, the environment and the command line."""
