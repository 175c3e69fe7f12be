"""The reference's command line (`python pretrain.py arch=trm data_paths="[…]" …`), as `rotate_accounts.py run`."""

import sys

if sys.argv[1:2] != ["run"]:  # "run" is there after a restart with the project's own interpreter
    sys.argv[1:1] = ["run", "arch=trm"]

from rotate_accounts import main

if __name__ == "__main__":
    sys.exit(main())
