"""Counts of the elements each link of a chain has emitted since the last report, with as few counters as possible."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.runners.engine.elementwise.fused_node import Link


class OutputCounters:
    """What a chain counts. `folds`: it ends in the table of a grouping, so that what is emitted tells nothing.

    A loop counts for itself (in `counts`, by link) only what nothing else tells. `left` is what each link gave that
    left the loop, because it was no plain value; `further` is how many more elements a link that assigns windows gave
    than it took, as it gives one for each window that an element was in. `calls` and `failures` are those of links that
    make dead letters.
    """

    __slots__ = ("_folds", "_links", "calls", "counts", "emitted", "failures", "further", "left", "taken")

    def __init__(self, links: Sequence[Link], *, folds: bool) -> None:
        self._links = links
        self._folds = folds
        self.taken = 0
        self.emitted = 0
        self.counts = [0] * len(links)
        self.left = [0] * len(links)
        self.further = [0] * len(links)
        self.calls = [0] * len(links)
        self.failures = [0] * len(links)

    def outputs(self, counted: Sequence[int]) -> list[int]:
        """How many elements each link gave: counted by the loop, or told by those before or after it."""
        outputs = [0] * len(self._links)
        last = max((k for k, link in enumerate(self._links) if link.changes_count), default=-1)
        flow = self.taken
        for k in range(len(self._links)):
            if k in counted:
                flow = self.counts[k]
                outputs[k] = flow + self.left[k]
            elif not self._folds and 0 <= last <= k:
                outputs[k] = self.emitted + sum(self.left[k:]) - sum(self.further[k + 1 :])
            else:
                outputs[k] = flow + self.further[k]
                flow = outputs[k] - self.left[k]
        return outputs

    def attempts(self, k: int) -> tuple[int, int]:
        """How often link `k` was called, and how often it failed, since this was asked last."""
        attempts = self.calls[k], self.failures[k]
        self.calls[k] = self.failures[k] = 0
        return attempts

    def begin(self) -> None:
        """Count elements from nought again. The lists stay the same objects: the loops hold them."""
        self.taken = self.emitted = 0
        for k in range(len(self._links)):
            self.counts[k] = self.left[k] = self.further[k] = 0
