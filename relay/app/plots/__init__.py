"""A run as pictures in files: curves, a timeline, solved puzzles; matplotlib is imported only here."""
