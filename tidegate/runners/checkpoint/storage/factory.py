"""Opens the storage that a URL or path denotes.

Every storage guarantees two things: writes are atomic, and of several processes that create the same name exactly one
succeeds. A store that can't guarantee both is refused, because a crash could leave a torn checkpoint that looks
complete.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.runners.checkpoint.storage.base import Storage
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.storage.object_store import FsspecStorage
from tidegate.sdk.errors import OptionsError


def open_storage(url: str) -> Storage:
    """The store at a URL, or the folder of a path. OptionsError if checkpoints can't be kept there."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalStorage(Path(url))
    if scheme in ("file", "local"):
        return LocalStorage(Path(rest))
    if scheme == "memory":
        raise OptionsError(
            f"checkpoints can't be kept at {url}: that is the memory of one process, and a job has several. "
            "Use a local folder"
        )
    return FsspecStorage(url)
