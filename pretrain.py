"""The reference's command line (`python pretrain.py arch=trm data_paths="[…]" …`), as `rotate_accounts.py run`.

`python pretrain.py dataset.build_arc_dataset --subsets …` takes the line of the reference's builder.
"""

import sys

if sys.argv[1:2] != ["run"]:  # "run" is there after a restart with the project's own interpreter
    if sys.argv[1:2] == ["dataset.build_arc_dataset"]:
        from trm.builders import built

        sys.argv[1:] = built(sys.argv[1:])
    elif sys.argv[1:2] != ["prepare"]:
        sys.argv[1:1] = ["run", "arch=trm"]

from rotate_accounts import main

if __name__ == "__main__":
    sys.exit(main())
