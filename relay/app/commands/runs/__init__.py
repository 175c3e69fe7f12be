"""Commands that begin, fork, stop, archive, delete and clean up a run."""
