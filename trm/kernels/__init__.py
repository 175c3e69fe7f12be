"""Fused GPU kernels of the training step and the step built from them; plain.py defines each in plain PyTorch."""

import os

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
"""Said outright: Triton 3.10 changes what it does where nobody says so, and with that the bits of every kernel."""
