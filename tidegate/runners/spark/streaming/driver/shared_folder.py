"""SharedFolder: the folder of a checkpoint that this process and a Connect server reach, each by itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tidegate.runners.checkpoint.storage.factory import open_storage
from tidegate.sdk.errors import RunError, access_failure


class FolderUnreachable(RunError):
    """A checkpoint's folder can't be read or written now; it may be possible in a moment."""


class SharedFolder:
    """A folder of a file system, or at a URL that fsspec opens. OptionsError if nothing can be kept there.

    Its methods raise FolderUnreachable if it can't be read or written.
    """

    def __init__(self, path: str) -> None:
        self.path = path if "://" in path else f"file://{path}"
        """As Spark is told: a path alone would be one of the server's default file system."""
        self._storage = open_storage(path)

    def names(self, folder: str) -> list[str]:
        """The names of the files in a subfolder; [] if there is none."""
        with self._errors():
            found = [name.removeprefix(f"{folder}/") for name in self._storage.list(folder)]
        return sorted(name for name in found if "/" not in name)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        with contextlib.suppress(FileNotFoundError):
            self.read(name)
            return True
        return False

    def read(self, name: str) -> bytes:
        """The contents of a file. FileNotFoundError if there is none."""
        with self._errors():
            return self._storage.read(name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, which appears complete under its name."""
        with self._errors():
            self._storage.write(name, data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self._errors():
            self._storage.delete(name)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except Exception as error:  # of a remote store, whatever its client raises
            raise FolderUnreachable(
                f"--spark_checkpoint_dir {self.path} can't be read or written: {access_failure(error)}"
            ) from error
