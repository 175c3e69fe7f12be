"""The Tiny Recursive Model: network, loss, optimizers, data and exact state, on relay.torch.

`reference/trm.md` in docstrings is the written specification of the model, which is not part of this repository; its
numbers are in tests/data/trm_golden and tests/data/trm_parity.
"""

import relay.torch  # noqa: F401 - sets what torch must find before it starts
