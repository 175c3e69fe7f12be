"""The relay's command line from a checkout; the installed command trm-relay is the same."""

import sys

try:
    from relay.cli import main
except ModuleNotFoundError as missing:
    print(f"{missing}. Set up with `bash multi_account_workflow.sh`, or `pip install -e '.[train]'`.", file=sys.stderr)
    sys.exit(78)

if __name__ == "__main__":
    sys.exit(main())
