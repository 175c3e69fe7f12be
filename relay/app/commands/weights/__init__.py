"""Commands for data and weights: they prepare data, and evaluate, show and export checkpoints."""
