"""ARC-AGI: task files, variants and their names, batches, and the votes that score answers (reference/arc.md)."""
