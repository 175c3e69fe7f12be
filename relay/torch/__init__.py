"""Parts that any PyTorch loop needs: random streams, digest, device, fingerprint, state files, carried caches."""

import os
import sys

# Both must be set before torch starts its threads and CUDA. Waiting threads sleep instead of spinning: on a busy
# machine, spinning makes two threads several times slower than one. The workspace setting makes cuBLAS
# deterministic. In a user's own loop torch was loaded before, and its settings stay the user's (P13).
if "torch" not in sys.modules:
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
