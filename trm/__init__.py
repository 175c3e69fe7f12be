"""Tensors: the Tiny Recursive Model, its loss, optimizers, data and exact state; imports nothing of ours."""
