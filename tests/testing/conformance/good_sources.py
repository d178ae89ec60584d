"""Small sources that keep every rule; the tests derive faulty ones from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.sdk.connectors.sources import (
    Batch,
    Discovery,
    Position,
    Reader,
    Source,
    Split,
    SplitEnumerator,
)
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import PositionLost, ReadError

COUNT = 12


@dataclass(frozen=True)
class Numbers(Source[int]):
    """The numbers up to `COUNT`, in ranges that can be divided again. `broken`: the last one can't be read."""

    broken: bool = False

    def splits(self, desired: int) -> list[Split]:
        size = -(-COUNT // desired)
        return [self.part(start, min(start + size, COUNT)) for start in range(0, COUNT, size)]

    def part(self, start: int, stop: int) -> Split:
        return Split(f"{start}-{stop}", payload=(start, stop))

    def reader(self, split: Split, position: Position = None) -> Reader[int]:
        start, stop = split.payload
        return NumbersReader(self, start if position is None else position["next"], stop)

    def split_again(self, split: Split, position: Position, desired: int) -> list[Split] | None:
        stop = split.payload[1]
        start = split.payload[0] if position is None else position["next"]
        middle = (start + stop) // 2
        if start == stop:
            return []
        parts = ((start, middle), (middle, stop))
        return [Split(f"{split.id}:{at}-{end}", payload=(at, end)) for at, end in parts]


class NumbersReader(Reader[int]):
    def __init__(self, source: Numbers, at: int, stop: int) -> None:
        self.source, self.at, self.stop = source, at, stop

    def read(self, limit: int) -> Batch:
        numbers = range(self.at, min(self.at + limit, self.stop))
        if self.source.broken and COUNT - 1 in numbers:
            raise ReadError(f"number {COUNT - 1} can't be read: it is broken. Repair it")
        self.at = numbers.stop
        return Batch(Block.of(numbers, [number * 10 for number in numbers]), self.at * 10, end=self.at >= self.stop)

    def position(self) -> Position:
        return {"next": self.at}


@dataclass(frozen=True)
class Lines(Source[str]):
    """The lines of a file that grows."""

    path: str
    bounded = False

    def splits(self, desired: int) -> list[Split]:
        return [Split(self.path)]

    def reader(self, split: Split, position: Position = None) -> Reader[str]:
        return LinesReader(self.path, position or 0)


class LinesReader(Reader[str]):
    def __init__(self, path: str, at: int) -> None:
        self.path, self.at = path, at

    def read(self, limit: int) -> Batch:
        lines = Path(self.path).read_text().splitlines()
        if len(lines) < self.at:
            raise PositionLost(f"{self.path} has {len(lines)} lines, but {self.at} have been read")
        found = lines[self.at : self.at + limit]
        self.at += len(found)
        return Batch(Block.of(found), wait=0.01)

    def position(self) -> Position:
        return self.at


@dataclass(frozen=True)
class Folder(Source[str]):
    """The files of a folder, each with one line and an increasing number as its name. `follow`: read new files, too."""

    path: str
    follow: bool = True

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return not self.follow

    def splits(self, desired: int) -> list[Split]:
        raise AssertionError("a source with an enumerator is not asked for its splits")

    def enumerator(self, state: Position = None) -> SplitEnumerator:
        return FolderEnumerator(self, state)

    def reader(self, split: Split, position: Position = None) -> Reader[str]:
        return FileReader(Path(self.path, split.id), position or 0)

    def files(self) -> Iterator[int]:
        yield from sorted(int(path.name) for path in Path(self.path).iterdir())


class FolderEnumerator(SplitEnumerator):
    def __init__(self, source: Folder, state: Position) -> None:
        self.source, self.last = source, -1 if state is None else state

    def discover(self, limit: int) -> Discovery:
        new = [number for number in self.source.files() if number > self.last]
        found = new[:limit]
        self.last = found[-1] if found else self.last
        splits = [Split(str(number), bounded=True) for number in found]
        return Discovery(splits, wait=0.01, end=not self.source.follow and len(new) <= limit)

    def state(self) -> Position:
        return self.last


class FileReader(Reader[str]):
    def __init__(self, path: Path, at: int) -> None:
        self.path, self.at = path, at

    def read(self, limit: int) -> Batch:
        lines = self.path.read_text().splitlines()
        found = lines[self.at : self.at + limit]
        self.at += len(found)
        return Batch(Block.of(found), end=self.at >= len(lines))

    def position(self) -> Position:
        return self.at


def append_lines(path: Path, *lines: Any) -> list[str]:
    """Append lines to a file, and return them."""
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)
    return list(map(str, lines))


def changed(batch: Batch, **changes: Any) -> Batch:
    return dataclasses.replace(batch, **changes)
