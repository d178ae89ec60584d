"""Backpressure by commits: sources pause while more commits are outstanding than the settings allow.

Commits are made beside the stream. A sink that commits more slowly than checkpoints are taken would accumulate them
without bound, and with them the staged files and the entries of each manifest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.runners.streaming.checkpoint.commit_queue import Backlog
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.sdk.errors import counted
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.time import SECOND

_JOB: Final = ""
_SILENT: Final = 10 * SECOND
"""How long (µs) sources are paused before people are told."""


class CommitBackpressure:
    """Whether the sources of an attempt are paused. `labels`: of the sinks, by step. Times are µs."""

    def __init__(self, settings: CheckpointSettings, labels: Mapping[int, str]) -> None:
        self._settings = settings
        self._labels = labels
        self._since: int | None = None
        self._reported = False
        self._pauses = 0

    @property
    def paused(self) -> bool:
        """Whether the sources are paused."""
        return self._since is not None

    def update(self, backlogs: Mapping[int, Backlog], now: int, *, stopping: bool) -> bool:
        """Decide anew; returns whether the decision has changed. A job that is `stopping` doesn't pause its sources,
        which have to end."""
        settings = self._settings
        exceeded = (
            any(each.checkpoints > settings.max_pending_commits for each in backlogs.values())
            or sum(each.size for each in backlogs.values()) > settings.max_pending_commit_bytes
        )
        pause = exceeded and not stopping
        if pause == self.paused:
            return False
        self._since = now if pause else None
        self._reported = self._reported and pause
        self._pauses += pause
        return True

    def reset(self) -> None:
        """The attempt is over: the sources of the next one are not paused."""
        self._since = None
        self._reported = False

    def next_report(self) -> int | None:
        """When people have to be told that the sources are paused; None: not before they are paused again."""
        return None if self._since is None or self._reported else self._since + _SILENT

    def report(self, backlogs: Mapping[int, Backlog], now: int) -> str:
        """What people have to be told now, "" if nothing."""
        at = self.next_report()
        if at is None or now < at:
            return ""
        self._reported = True
        waiting = ", ".join(
            f"{self._labels[step]!r} has {each.checkpoints} outstanding ({counted(each.size, 'byte')})"
            for step, each in backlogs.items()
            if each.checkpoints
        )
        return (
            f"sources have been paused for {_SILENT // SECOND} s because commits are slower than checkpoints: "
            f"{waiting}. They resume when fewer are outstanding (--max_pending_commits, --max_pending_commit_bytes)"
        )

    def metrics(self, backlogs: Mapping[int, Backlog]) -> MetricCells:
        """How many commits of each sink are outstanding, and how often the sources have been paused."""
        cells = MetricCells()
        for step, each in backlogs.items():
            label = self._labels[step]
            cells.gauges[MetricKey(label, ENGINE, "pending_commits")] = each.checkpoints
            cells.gauges[MetricKey(label, ENGINE, "pending_commit_bytes")] = each.size
        if self._pauses:
            cells.count(MetricKey(_JOB, ENGINE, "source_pauses"), self._pauses)
            cells.gauges[MetricKey(_JOB, ENGINE, "sources_paused")] = int(self.paused)
        return cells
