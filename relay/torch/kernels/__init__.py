"""GPU kernels that do not depend on a model: the digest's."""

import os

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
"""Set explicitly: Triton 3.10 changes its default, and with that the bits of every kernel."""
