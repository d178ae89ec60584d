"""Counts the elements that each link of a chain has emitted since the last report, with as few counters as possible.

A loop counts only what cannot be computed. If every link emits one element for each, the number of elements that the
chain has received is enough:

>>> from types import SimpleNamespace
>>> counters = OutputCounters([SimpleNamespace(changes_count=False)] * 2, folds=False)
>>> counters.received += 5
>>> counters.outputs(counted=())
[5, 5]
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.runners.engine.elementwise.fused_node import Link


class OutputCounters:
    """The counters of a chain. `folds`: it ends in the tables of a grouping, and emits no blocks whose elements count.

    `received` and `emitted` are elements of the whole chain. By link, `counts` are outputs that the loop counts itself;
    `exited` are outputs that left the loop by a side exit; `extra` are by how many elements a link that assigns windows
    has emitted more than it received, since it emits one for each window that an element was in; `calls` and `failures`
    are those of links with dead letters.
    """

    __slots__ = ("_folds", "_links", "calls", "counts", "emitted", "exited", "extra", "failures", "received")

    def __init__(self, links: Sequence[Link], *, folds: bool) -> None:
        self._links = links
        self._folds = folds
        self.received = 0
        self.emitted = 0
        self.counts = [0] * len(links)
        self.exited = [0] * len(links)
        self.extra = [0] * len(links)
        self.calls = [0] * len(links)
        self.failures = [0] * len(links)

    def outputs(self, counted: Sequence[int]) -> list[int]:
        """How many elements each link has emitted; the loop has counted those of the links in `counted`."""
        outputs = [0] * len(self._links)
        last = max((k for k, link in enumerate(self._links) if link.changes_count), default=-1)
        in_loop = self.received
        for k in range(len(self._links)):
            if k in counted:
                in_loop = self.counts[k]
                outputs[k] = in_loop + self.exited[k]
            elif not self._folds and 0 <= last <= k:
                outputs[k] = self.emitted + sum(self.exited[k:]) - sum(self.extra[k + 1 :])
            else:
                outputs[k] = in_loop + self.extra[k]
                in_loop = outputs[k] - self.exited[k]
        return outputs

    def attempts(self, k: int) -> tuple[int, int]:
        """How often link `k` was called and how often it failed since the last call of this method."""
        attempts = self.calls[k], self.failures[k]
        self.calls[k] = self.failures[k] = 0
        return attempts

    def reset(self) -> None:
        """Set the counts of elements to zero. The lists stay the same objects, because the loops refer to them."""
        self.received = self.emitted = 0
        for k in range(len(self._links)):
            self.counts[k] = self.exited[k] = self.extra[k] = 0
