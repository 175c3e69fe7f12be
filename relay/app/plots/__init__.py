"""A run as pictures in files: curves and a timeline, and the paper that all pictures are drawn on."""
