"""A job: a planned pipeline with its settings, as coordinator and workers share it."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.plan import Plan
from tidegate.runners.streaming.layout import Layout
from tidegate.runners.streaming.settings import Settings


@dataclass(frozen=True, slots=True)
class Job:
    """`id` names it in logs; `run` is what sinks know it by: the same through all its restarts, also from a
    checkpoint directory by a later process."""

    id: str
    run: str
    plan: Plan
    settings: Settings

    @property
    def layout(self) -> Layout:
        """Where its tasks run."""
        return Layout(self.plan, self.settings.workers)
