"""A folder of this machine, in the place of one that is reached by Hadoop."""

from __future__ import annotations

from pathlib import Path


class LocalFolder:
    """Files of this machine, as a checkpoint uses those of Hadoop."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def names(self, folder: str) -> list[str]:
        return sorted(file.name for file in Path(self.path, folder).glob("*"))

    def exists(self, name: str) -> bool:
        return Path(self.path, name).exists()

    def read(self, name: str) -> bytes:
        return Path(self.path, name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        file = Path(self.path, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def remove(self, name: str) -> None:
        Path(self.path, name).unlink(missing_ok=True)
