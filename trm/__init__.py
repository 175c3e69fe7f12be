"""Tensors: the Tiny Recursive Model, its loss, optimizers, data and exact state, on relay.torch.

`reference/trm.md` in docstrings is the written specification of the model, which is not part of this repository; its
numbers are in tests/data/trm_golden and tests/data/trm_parity.
"""

import os

# Both must be set before torch starts its threads and CUDA. Threads that wait sleep instead of spinning: on a machine
# with anything else to do, spinning makes two threads several times slower than one. The workspace setting makes
# cuBLAS deterministic.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
