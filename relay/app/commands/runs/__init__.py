"""Commands that begin a run, fork it, stop it, put it away and clear it up."""
