"""`run`, `push` and `import`: from what was typed to a session, and how its end is told; no training lies here."""
