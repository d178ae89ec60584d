"""Rows that wait for a later action: which DataFrames have them, and how they are distributed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.runners.spark.shuffle.places import places


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of one number. `placed`: they are addressed to places, as rows of loops are, not to partitions."""

    frames: tuple[Any, ...]
    checksum: int = 0
    placed: bool = False


def filtered(stored: Mapping[int, StoredRows], labels: Iterable[int]) -> list[Any]:
    """DataFrames with all rows that have these numbers, and no others."""
    frames: dict[int, Any] = {}
    wanted: dict[int, list[int]] = {}
    for label in labels:
        for frame in stored[label].frames if label in stored else ():
            frames[id(frame)] = frame
            wanted.setdefault(id(frame), []).append(label)
    return [frame.where(frame["edge"].isin(wanted[key])) for key, frame in frames.items()]


def to_places(frame: Any, partitions: int) -> Any:
    """The rows, addressed to the places of their partitions."""
    listed = ", ".join(map(str, places(partitions)))
    return _addressed(frame, f"element_at(array({listed}), target + 1)")


def to_partitions(frame: Any, partitions: int) -> Any:
    """The rows, addressed to the partitions of their places."""
    return _addressed(frame, f"pmod(hash(target), {partitions})")


def _addressed(frame: Any, target: str) -> Any:
    return frame.selectExpr(f"{target} AS target", *(f"`{name}`" for name in frame.columns[1:]))
