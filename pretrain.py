"""The reference's command line (`python pretrain.py arch=trm data_paths="[…]" …`), as `rotate_accounts.py run`.

`python pretrain.py dataset.build_arc_dataset --subsets …` takes the lines of the reference's builders.
"""

import sys

if sys.argv[1:2] not in (["run"], ["prepare"]):  # they are there after a restart with the project's own interpreter
    if "".join(sys.argv[1:2]).startswith("dataset."):
        from trm.builders import built

        sys.argv[1:] = built(sys.argv[1:]) or sys.argv[1:]
    else:
        sys.argv[1:1] = ["run", "arch=trm"]

from rotate_accounts import main

if __name__ == "__main__":
    sys.exit(main())
