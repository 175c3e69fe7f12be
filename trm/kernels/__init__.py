"""Fused GPU kernels of the training step and the step built from them; plain.py defines each in plain PyTorch."""

import relay.torch.kernels  # noqa: F401 - sets what Triton must find before it compiles
