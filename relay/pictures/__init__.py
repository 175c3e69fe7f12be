"""A run as pictures in files: curves, a timeline, solved puzzles; no store, no command line, matplotlib only inside."""
