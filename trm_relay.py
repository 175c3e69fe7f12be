"""Entry point of the installed command `trm-relay`; refuses foreign modules that hide the project's own packages."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("lm", "relay", "storage", "trm")
ROOT = Path(__file__).resolve().parent
"""The checkout, or the site-packages folder, with the packages."""
BAD_CONFIG = 78


class ForeignPackage(ImportError):
    """A foreign module is imported in place of one of the project's packages."""


def check_packages() -> None:
    """Raises ForeignPackage if a file or folder earlier on `sys.path` hides one of the project's packages."""
    for name in PACKAGES:
        spec = find_spec(name)
        origin = Path(spec.origin).resolve() if spec and spec.origin else None
        if spec is not None and origin != ROOT / name / "__init__.py":
            found = origin or next(iter(spec.submodule_search_locations or ()), name)
            raise ForeignPackage(
                f"{found} hides the package {name!r} of trm-relay. Rename it, or remove its folder from PYTHONPATH.",
                name=name,
            )


def main() -> None:
    """Run the command line. Exit code 78 if a package of the project is hidden."""
    try:
        check_packages()
    except ForeignPackage as error:
        print(error, file=sys.stderr)
        sys.exit(BAD_CONFIG)
    from relay.app.begin import main

    main()


if __name__ == "__main__":
    main()
