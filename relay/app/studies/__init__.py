"""Studies: experiments and sweeps that several people train together, and the table of their results."""
