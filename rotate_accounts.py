"""The relay's command line from a checkout; the installed command trm-relay is the same."""

import os
import sys
from pathlib import Path

VENV_PYTHON = Path(__file__).resolve().parent / ".venv" / "bin" / "python"


def use_own_environment(missing: ModuleNotFoundError) -> None:
    """Start again with the interpreter that multi_account_workflow.sh set up; without it, print how to set it up."""
    if VENV_PYTHON.exists() and Path(sys.prefix).resolve() != VENV_PYTHON.parent.parent:
        os.execv(VENV_PYTHON, [str(VENV_PYTHON), *sys.argv])
    print(
        f"{missing}. Set up with `bash multi_account_workflow.sh setup`, or `pip install -e '.[train]'`.",
        file=sys.stderr,
    )
    sys.exit(78)


try:
    from relay.app.begin import load

    main = load()
except ModuleNotFoundError as error:
    use_own_environment(error)

if __name__ == "__main__":
    sys.exit(main())
