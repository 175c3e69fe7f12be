"""Pictures of a run as files: curves and a timeline, with their common style."""
