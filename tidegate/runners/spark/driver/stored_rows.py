"""Rows that wait for a later action: which DataFrames have them, and how they are distributed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.runners.spark.shuffle.places import places
from tidegate.runners.spark.task_io.frames import union

_UNITES: Final = "spark.sql.unionOutputPartitioning"


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of one number. `placed`: they are addressed to places, as those of rounds are, not to partitions.
    `moved`: they are already where they are addressed to."""

    frames: tuple[Any, ...]
    checksum: int = 0
    placed: bool = False
    moved: bool = False


def filtered(stored: Mapping[int, StoredRows], labels: Iterable[int]) -> list[Any]:
    """DataFrames with all rows that have these numbers, and no others."""
    frames: dict[int, Any] = {}
    wanted: dict[int, list[int]] = {}
    for label in labels:
        for frame in stored[label].frames if label in stored else ():
            frames[id(frame)] = frame
            wanted.setdefault(id(frame), []).append(label)
    return [frame.where(f"edge IN ({', '.join(map(str, wanted[key]))})") for key, frame in frames.items()]


def columns(spark: Any, names: Sequence[str]) -> Sequence[Any]:
    """Columns of these names, for many DataFrames: by a name, PySpark makes a column anew by several calls to the JVM.
    Over Connect there is none, and a name does."""
    if not hasattr(spark, "_jvm"):
        return names
    from pyspark.sql.functions import col

    return [col(name) for name in names]


def moved_to_places(frame: Any, partitions: int, tasks: int) -> Any:
    """Rows that are addressed to partitions, at the places of these, in so many tasks.

    Each DataFrame is shuffled by itself, before it is united with others. A task that computes a partition again, whose
    persisted rows are lost or not found, then has the partition's number; in a union it would have another.
    """
    return _to_places(frame, partitions).repartition(tasks, "target")


def unites(spark: Any) -> bool:
    """Whether Spark unites DataFrames that are distributed alike partition by partition."""
    return bool(spark.conf.get(_UNITES, "false") == "true")


def united(frames: Sequence[Any], tasks: int) -> Any:
    """The rows of DataFrames that are distributed alike by their target, in so many tasks."""
    rows = union(frames)
    return rows if len(frames) == 1 or unites(rows.sparkSession) else rows.repartition(tasks, "target")


def _to_places(frame: Any, partitions: int) -> Any:
    listed = ", ".join(map(str, places(partitions)))
    return _addressed(frame, f"element_at(array({listed}), target + 1)")


def to_partitions(frame: Any, partitions: int) -> Any:
    """The rows, addressed to the partitions of their places."""
    return _addressed(frame, f"pmod(hash(target), {partitions})")


def _addressed(frame: Any, target: str) -> Any:
    return frame.selectExpr(f"{target} AS target", *(f"`{name}`" for name in frame.columns[1:]))
