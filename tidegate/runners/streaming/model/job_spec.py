"""A job: a planned pipeline with its settings, as coordinator and workers share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from tidegate.runners.plan import Plan
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.model.topology import Topology

_STRAGGLERS: Final = 50
"""Output is removed of so many processes before this one."""


@dataclass(frozen=True)
class Job:
    """`id` names it in logs; `run` is the same through all its restarts, also from a checkpoint directory by a later
    process: `epoch` counts those."""

    id: str
    run: str
    plan: Plan
    settings: Settings
    epoch: int = 1
    parts: Mapping[str, str] = field(default_factory=dict)
    """What makes it the same job in another process (see `fingerprint.parts_of`), where it keeps checkpoints."""

    @property
    def output_run(self) -> str:
        """The name by which sinks know the run in this process of it.

        Each process has its own: one that was taken for dead, and is about to remove what it has written, can't mean
        what its successor writes, however late it gets to it.
        """
        return _output_run(self.run, self.epoch)

    def output_runs(self, since: int) -> tuple[str, ...]:
        """Those of every process from an epoch on, up to this one; and of those shortly before, whatever others have
        removed: one that was taken for dead may have written more after that."""
        first = max(1, min(since, self.epoch - _STRAGGLERS))
        return tuple(_output_run(self.run, epoch) for epoch in range(first, self.epoch + 1))

    @cached_property
    def topology(self) -> Topology:
        """Where its tasks run."""
        return Topology(self.plan, self.settings.workers)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "topology"}


def _output_run(run: str, epoch: int) -> str:
    return run if epoch == 1 else f"{run}.{epoch}"
