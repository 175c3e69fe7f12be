"""Data files that appear whole or not at all, made here or downloaded."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

from relay.core.resources import exhausted
from relay.torch.faults import DataError, NotHere, TaskError
from storage.packages import install

Report = Callable[[str], None]
"""Takes one line to print."""


Fetching = Callable[[str, int], Callable[[int], object]]
"""Called with a download's name and bytes; returns a function that counts bytes as they arrive."""


def unseen(_name: str, _total: int) -> Callable[[int], object]:
    """Shows nothing."""
    return lambda _count: None


def permit(fetching: Fetching | None, what: str, folder: Path) -> Fetching:
    """What shows the download of something to a folder. Raises NotHere if nothing may be downloaded."""
    if fetching is None:
        raise NotHere(f"{what} is not in {folder} yet, and only `prepare` and a session download it.")
    return fetching


def silent(_line: str) -> None:
    """Prints nothing."""


def whole_path(source: str) -> Path:
    """The path with the home folder in place of `~`; unchanged where that is unknown, so that reading it fails."""
    return Path(os.path.expanduser(source))  # noqa: PTH111 - Path's raises for a user without a home


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raises DataError if the system does not let the file be read."""
    try:
        yield
    except OSError as error:
        why = f"{path} cannot be read: {error.strerror or error}"
        raise DataError(f"{why}. Check the path and its permissions.") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; on success it replaces `path` at once, on failure it is removed.

    Raises DataError if the folder cannot be written or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", suffix=".part", delete=False) as file:
            try:
                yield file
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror or error}"
        raise DataError(f"{what}. Free some space or choose another data folder.") from error


def hub_address() -> str | None:
    """The mirror named by HF_ENDPOINT, the variable the hub's own client reads when it is imported; None without."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def download(repo: str, path: Path, fetching: Fetching = unseen, instead: str = "name a file of your own") -> None:
    """Fetch the file of that name from a dataset on the Hugging Face hub, with its own client.

    instead: what a person without a network can do, for the error. The client takes HF_TOKEN; a file in its cache is
    copied, and a download that was cut is continued. Raises DataError if the file is incomplete, TaskError if the
    client is missing.
    """
    try:
        from huggingface_hub import errors, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    except ImportError as missing:
        raise TaskError(
            f"Data from the hub is downloaded by huggingface_hub 1.2 or newer, which is not installed ({missing}). "
            f"Install it: `{install('hub')}`."
        ) from missing
    try:
        url = hf_hub_url(repo, path.name, repo_type="dataset", endpoint=hub_address())
        about = get_hf_file_metadata(url)
        cached = try_to_load_from_cache(repo, path.name, revision=about.commit_hash, repo_type="dataset")
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f"{path.name}.lock")):
            if path.exists():
                return  # another process was faster
            if isinstance(cached, str):
                with Path(cached).open("rb") as source, replacing(path) as target:
                    shutil.copyfileobj(source, target)
            else:
                _fetch(url, about.etag or "", about.size, path, fetching)
    except (OSError, ValueError, RuntimeError, errors.HTTPError) as error:
        if isinstance(error, DataError) or exhausted(error) is not None:
            raise
        raise _no_download(repo, path, error, instead) from error


def _fetch(url: str, etag: str, size: int | None, path: Path, fetching: Fetching) -> None:
    """Continue the part of this version that is here, and compare its hash, which is the etag of a large file.

    hf_hub_download removes its part when it fails, so only the client's transfer of bytes is used.
    """
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers

    part = path.with_name(f"{path.name}.{hashlib.sha256(etag.encode()).hexdigest()[:12]}.part")
    with part.open("ab") as file:
        done, bar = file.tell(), _bar(path.name, fetching)
        http_get(url, file, resume_size=done, headers=build_hf_headers(), expected_size=size, tqdm_class=bar)
        file.flush()
        os.fsync(file.fileno())
    with part.open("rb") as whole:
        digest = hashlib.file_digest(whole, "sha256").hexdigest()
    if len(etag) == len(digest) and etag != digest:
        part.unlink()
        raise DataError(f"{url} arrived with another hash ({digest}) than the hub's ({etag}). Download it again.")
    part.replace(path)


def _bar(name: str, fetching: Fetching) -> Any:
    """A class that the hub's client uses in place of its own bar, and that only counts."""
    from huggingface_hub.utils import tqdm

    class Counting(tqdm):  # type: ignore[misc]
        """One file; bytes of an earlier, cut download count at once."""

        def __init__(self, *args: Any, **settings: Any) -> None:
            self._count: Callable[[int], object] = fetching(name, settings.get("total") or 0)
            self._count(settings.get("initial") or 0)
            super().__init__(*args, **{**settings, "disable": True})

        def update(self, n: float | None = 1) -> bool | None:
            """Count bytes."""
            self._count(int(n or 0))
            return None

    return Counting


def _no_download(repo: str, path: Path, error: Exception, instead: str) -> DataError:
    reason = " ".join(str(getattr(error, "__cause__", None) or error).split()) or type(error).__name__
    return DataError(
        f"{path.name} of {repo} could not be downloaded ({reason:.300}). Connect this machine to the network and try "
        f"again, which continues the download; put the file at {path} yourself; or {instead}."
    )
