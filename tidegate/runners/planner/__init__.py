"""Plans a portable pipeline, in small pure passes. Records each decision and its reason for `explain`."""

from __future__ import annotations

from tidegate.runners.plan import Plan
from tidegate.runners.planner.cut import Traits, cut
from tidegate.runners.planner.relational.lower import lower
from tidegate.runners.planner.rewrite import drop_dead
from tidegate.runners.planner.validate import validate
from tidegate.sdk.portable.model import Pipeline

__all__ = ["Traits", "plan", "validate"]


def plan(pipeline: Pipeline, traits: Traits) -> Plan:
    """Plan a pipeline for a runner with these traits. Raises BuildError for an invalid pipeline."""
    validate(pipeline)
    live, dropped = drop_dead(pipeline) if traits.drops_unread else (pipeline, ())
    return cut(lower(live), traits, dropped)
