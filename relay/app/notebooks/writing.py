"""Writes notebooks/colab.ipynb and kaggle.ipynb from one source (python -m relay.app.notebooks.writing)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.guides import GUIDES
from storage.packages import CODE

FOLDER = Path(__file__).parents[3] / "notebooks"
INTRO = """# Train one model in turns: {place}
One person, one account, one notebook that you start yourself. {rules}

1. {machine}
2. {secrets}
3. Run the cells in order. Interrupting the third ends the session with a commit; running it again continues.

{help}"""
SET_UP = """#@title 1. Set up: needs no GPU, takes some minutes the first time
CODE = "{code}"  #@param {{type:"string"}}
import sys{nowhere}
!test -d {folder} || git clone -q --depth 1 {{CODE}} {folder}
_exit_code and sys.exit(f"The project cannot be fetched from {{CODE}}. Correct CODE, then run this cell again.")
%cd -q {folder}
from relay.app.notebooks.notebook import Notebook
notebook = Notebook()
notebook.set_up()"""
NOWHERE = (
    ', os; CODE or os.path.isdir("{folder}") or sys.exit("CODE is empty. Type the address of the project\'s repository '
    'in CODE of this cell (the person who invited you knows it), then run the cell again.")'
)
"""Stops the first cell if the project is not published and not here."""
AFTER = 'import sys; "notebook" in globals() or sys.exit("Run cell 1 first.")'
"""The first line of the later cells: cell 1 may have stopped."""
SETTINGS = f"""#@title 2. Your name and the store (STORE empty: the secret RELAY_STORE; TRIAL: the run may be lost)
{AFTER}
YOUR_NAME = ""  #@param {{{{type:"string"}}}}
STORE = ""  #@param {{{{type:"string"}}}}
TRIAL = False  #@param {{{{type:"boolean"}}}}
{{choice}}notebook.settings(YOUR_NAME, store=STORE, trial=TRIAL{{word}})"""
TRAIN = f"""#@title 3. Train one session. If one still runs here: EARLIER = "attach" watches it, "replace" ends it first
{AFTER}
EARLIER = ""  #@param ["", "attach", "replace"]
notebook.train(wait_minutes=5, earlier=EARLIER)"""
CURVES = f"""#@title 4. Curves over all sessions{{title}}
{AFTER}
{{choice}}notebook.curves(){{release}}"""


@dataclass(frozen=True)
class Service:
    """The differences between the notebook services."""

    page: str
    name: str
    folder: str
    rules: str
    machine: str
    secrets: str
    metadata: dict[str, Any]
    coauthor: bool = False
    releases: bool = False


COLAB = Service(
    page="colab",
    name="Google Colab",
    folder="/content/trm-relay",
    rules="Several accounts to get round limits are disallowed "
    "([FAQ](https://research.google.com/colaboratory/faq.html)).",
    machine="*Runtime > Change runtime type*: T4 GPU or better.",
    secrets="The key in the left margin: add the secret RELAY_STORE and your store's credentials, and switch on "
    "*Notebook access* for each.",
    metadata={"accelerator": "GPU", "colab": {"gpuType": "T4", "provenance": []}},
    releases=True,
)
KAGGLE = Service(
    page="kaggle",
    name="Kaggle",
    folder="/kaggle/working/trm-relay",
    rules="Kaggle allows one account a person, and no work on behalf of others "
    "([terms](https://www.kaggle.com/terms)).",
    machine="*Settings*: Accelerator GPU T4 x2 (not P100), Internet on.",
    secrets="*Add-ons > Secrets*: add RELAY_STORE and your store's credentials, and tick each for this notebook.",
    metadata={
        "kaggle": {
            "accelerator": "nvidiaTeslaT4",
            "isGpuEnabled": True,
            "isInternetEnabled": True,
            "language": "python",
            "sourceType": "notebook",
        }
    },
    coauthor=True,
)
SERVICES = (COLAB, KAGGLE)


def notebook(service: Service, code: str = CODE) -> str:
    """Return the whole file, nbformat 4.5: five cells, no outputs. `code`: the repository's address; empty if unset."""
    document = {
        "cells": [
            _cell("intro", _intro(service, code), markdown=True),
            _cell(
                "set-up",
                SET_UP.format(
                    code=code, folder=service.folder, nowhere="" if code else NOWHERE.format(folder=service.folder)
                ),
            ),
            _cell("settings", _settings(service)),
            _cell("train", TRAIN),
            _cell("curves", _curves(service)),
        ],
        "metadata": {
            **service.metadata,
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _intro(service: Service, code: str) -> str:
    page = GUIDES[service.page]
    return INTRO.format(
        place=service.name,
        rules=service.rules,
        machine=service.machine,
        secrets=service.secrets,
        help=f"[Each step and its messages]({code}/blob/main/{page})" if code else f"{page} explains each message.",
    )


def _set_up(service: Service, code: str) -> str:
    nowhere = "" if code else NOWHERE.format(folder=service.folder)
    return SET_UP.format(code=code, folder=service.folder, nowhere=nowhere)


def _settings(service: Service) -> str:
    word = "I_CO_AUTHOR_THIS_RUN"
    choice = f'{word} = False  #@param {{type:"boolean"}}\n' if service.coauthor else ""
    return SETTINGS.format(choice=choice, word=f", coauthor={word}" if service.coauthor else "")


def _curves(service: Service) -> str:
    if not service.releases:
        return CURVES.format(title="", choice="", release="")
    choice = 'RELEASE_RUNTIME = False  #@param {type:"boolean"}\n'
    release = "\nnotebook.release_runtime(RELEASE_RUNTIME)"
    return CURVES.format(title="; RELEASE_RUNTIME: then release the machine", choice=choice, release=release)


def _cell(name: str, text: str, markdown: bool = False) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    if markdown:
        return {"cell_type": "markdown", "id": name, "metadata": {}, "source": lines}
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": {"cellView": "form"},
        "outputs": [],
        "source": lines,
    }


def main() -> None:
    """Write both notebooks."""
    FOLDER.mkdir(exist_ok=True)
    for service in SERVICES:
        (FOLDER / f"{service.page}.ipynb").write_text(notebook(service), encoding="utf-8")
        print(FOLDER / f"{service.page}.ipynb")


if __name__ == "__main__":
    main()
