"""The results that the tasks of an action have sent to the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidegate.runners.spark.plan.failures import NOT_DETERMINISTIC
from tidegate.runners.spark.shuffle.row_codec import decode_result, reassembled
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells


@dataclass(slots=True)
class Results:
    """The results of one action; see `LevelTask` and `RoundTask` for their kinds."""

    metrics: MetricCells = field(default_factory=MetricCells)
    committables: dict[int, list[Committable]] = field(default_factory=dict)
    staged: list[tuple[Any, ...]] = field(default_factory=list)
    columns: dict[int, list[bytes]] = field(default_factory=dict)
    sides: list[tuple[str, int, int, bytes]] = field(default_factory=list)
    written: Counter[int] = field(default_factory=Counter)
    """The checksums of the rows that were stored for later actions, by the number of the rows."""
    reread: Counter[int] = field(default_factory=Counter)
    """The checksums of the stored rows that were read."""
    emitted: Counter[str] = field(default_factory=Counter)
    workers: set[str] = field(default_factory=set)

    def check_reread(self, expected: Counter[int]) -> None:
        """Raise RunError if rows that were read are not those that were stored."""
        if any(expected[label] != checksum for label, checksum in self.reread.items()):
            raise RunError(f"the run can't be finished: {NOT_DETERMINISTIC}")


def results_of(rows: Iterable[Any]) -> Results:
    """The results in rows."""
    found = Results()
    pieces = ((src, seq, left, bytes(data)) for _, _, src, seq, left, data in rows)
    for kind, value in map(decode_result, reassembled(pieces)):
        match kind:
            case "metrics":
                found.metrics.merge(value)
            case "committables":
                found.committables.setdefault(value[0], []).extend(value[1])
            case "staged":
                found.staged.append(value)
            case "columns":
                found.columns.setdefault(value[0], []).extend(value[1])
            case "side":
                found.sides.append(value)
            case "persisted":
                found.written.update(value)
            case "reread":
                found.reread.update(value)
            case "emitted":
                found.emitted.update(value)
            case "worker":
                found.workers.add(value)
    found.sides.sort(key=lambda row: row[:3])
    return found
