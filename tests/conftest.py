"""For every test: trm comes before torch, because it settles how torch's threads wait."""

import trm  # noqa: F401
