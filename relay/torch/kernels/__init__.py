"""GPU kernels that do not depend on a model: the digest's."""

import os

os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")  # trm/kernels/__init__.py says why
