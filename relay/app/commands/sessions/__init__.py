"""`run`, `push` and `import`: from the command line to a session and its report; no training code."""
