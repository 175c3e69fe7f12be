"""Parts that any PyTorch loop needs: random streams, digest, device, fingerprint, state files, carried caches."""

import os

# Both must be set before torch starts its threads and CUDA. Waiting threads sleep instead of spinning: on a busy
# machine, spinning makes two threads several times slower than one. The workspace setting makes cuBLAS
# deterministic.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
