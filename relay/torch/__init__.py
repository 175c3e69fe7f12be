"""What any PyTorch loop needs: random streams, digest, device, fingerprint, state files, carried caches."""

import os

# Both must be set before torch starts its threads and CUDA; trm/__init__.py says why.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
