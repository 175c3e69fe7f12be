"""Fused GPU kernels of the training step and the step built from them; plain.py defines each in plain PyTorch."""
