"""Where the documentation explains each subject that a message names: the one place that decides page addresses."""

from __future__ import annotations

from storage.packages import CODE, is_checkout

_STORES, _ACCOUNTS = "docs/how-to/stores.md", "docs/how-to/drive-dropbox.md"
GUIDES: dict[str, str] = {
    "colab": "docs/how-to/notebooks.md",
    "kaggle": "docs/how-to/notebooks.md",
    "file": f"{_STORES}#a-folder",
    "s3": f"{_STORES}#s3-or-a-compatible-server",
    "hf": f"{_STORES}#hugging-face-buckets",
    "drive": f"{_ACCOUNTS}#google-drive",
    "dropbox": f"{_ACCOUNTS}#dropbox",
    "cloud": "docs/how-to/cloud.md",
    "guard": "docs/how-to/guard.md",
    "transformers": "docs/how-to/transformers.md",
    "lightning": "docs/how-to/lightning.md",
    "privacy": "docs/reference/stored.md",
}
"""Page and heading by subject. Kinds of storage go by the scheme of their addresses (storage/kinds.py)."""


def guide(subject: str) -> str:
    """The address of a subject's page, as the person who reads the message can open it."""
    path = GUIDES[subject]
    if CODE and not is_checkout():
        return f"{CODE}/blob/main/{path}"
    return path if is_checkout() else f"{path} of the project"
