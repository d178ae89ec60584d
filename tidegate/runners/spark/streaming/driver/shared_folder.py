"""SharedFolder: the folder of a checkpoint that this process and a Connect server reach, each by itself."""

from __future__ import annotations

import contextlib

from tidegate.runners.checkpoint.storage.factory import open_storage


class SharedFolder:
    """A folder of a file system, or at a URL that fsspec opens. OptionsError if nothing can be kept there."""

    def __init__(self, path: str) -> None:
        self.path = path if "://" in path else f"file://{path}"
        """As Spark is told: a path alone would be one of the server's default file system."""
        self._storage = open_storage(path)

    def names(self, folder: str) -> list[str]:
        """The names of the files in a subfolder; [] if there is none."""
        found = [name.removeprefix(f"{folder}/") for name in self._storage.list(folder)]
        return sorted(name for name in found if "/" not in name)

    def exists(self, name: str) -> bool:
        """Whether there is such a file."""
        with contextlib.suppress(FileNotFoundError):
            self._storage.read(name)
            return True
        return False

    def read(self, name: str) -> bytes:
        """The contents of a file. FileNotFoundError if there is none."""
        return self._storage.read(name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file, which appears complete under its name."""
        self._storage.write(name, data)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        self._storage.delete(name)
