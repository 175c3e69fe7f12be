"""The relay's own settings and where they come from: a file, the environment, the command line."""
