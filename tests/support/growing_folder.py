"""A source that follows a folder: each file is a split of lines, and new files are found while the job runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import tidegate as tg

END = "zz-end"
"""The name of the file that marks the end of the input."""
WAIT = "..."
"""A line at which reading pauses, without the end of the file."""


def add_file(folder: Path, name: str, lines: list[str]) -> None:
    """Add a complete file to the folder atomically."""
    hidden = folder / f".{name}"
    hidden.write_text("".join(f"{line}\n" for line in lines))
    hidden.rename(folder / name)


@dataclass(frozen=True)
class GrowingFolder(tg.io.Source[str]):
    """The lines of the files of a folder, discovered in the order of their names; `size`: lines per batch.

    A file `.gone-NAME` marks the lines of NAME as deleted since they were read.
    """

    folder: str
    bounded: bool = False
    size: int = 3

    def splits(self, desired: int) -> list[tg.io.Split]:
        raise AssertionError("the enumerator finds all splits")

    def enumerator(self, state: tg.io.Position = None) -> FolderEnumerator:
        return FolderEnumerator(self, state or "")

    def reader(self, split: tg.io.Split, position: tg.io.Position = None) -> LinesReader:
        if position is not None and Path(self.folder, f".gone-{split.id}").exists():
            raise tg.io.PositionLost(f"{split.id}: line {position} is not there any more")
        return LinesReader(Path(self.folder, split.id), position or 0, self.size)


class FolderEnumerator(tg.io.SplitEnumerator):
    """Discovers the files whose names follow the last one discovered."""

    def __init__(self, source: GrowingFolder, last: str) -> None:
        self.folder = source.folder
        self.last = last

    def discover(self, limit: int) -> tg.io.Discovery:
        names = sorted(name for name in os.listdir(self.folder) if name > self.last and not name.startswith("."))
        found = [name for name in names if name != END][:limit]
        self.last = found[-1] if found else self.last
        end = END in names and len(found) == len(names) - 1
        return tg.io.Discovery([tg.io.Split(name, bounded=True) for name in found], wait=0.01, end=end)

    def state(self) -> tg.io.Position:
        return self.last


class LinesReader(tg.io.Reader[str]):
    """Reads a few lines at a time."""

    def __init__(self, path: Path, at: int, size: int) -> None:
        self.lines = path.read_text().splitlines()
        self.at = at
        self.size = size

    def read(self, limit: int) -> tg.io.Batch:
        lines = self.lines[self.at : self.at + min(self.size, limit)]
        if WAIT in lines:
            lines = lines[: lines.index(WAIT)]
            if not lines:
                return tg.io.Batch(tg.io.Block.of([]), wait=0.01)
        self.at += len(lines)
        return tg.io.Batch(tg.io.Block.of(lines), end=self.at == len(self.lines))

    def position(self) -> tg.io.Position:
        return self.at
