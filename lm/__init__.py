"""A looped language model: a plain decoder whose whole stack refines its answer, on bytes or byte-level BPE."""

import relay.torch  # noqa: F401 (settings of torch's threads and of cuBLAS, before torch is imported)
