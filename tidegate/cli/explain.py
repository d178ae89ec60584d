"""The text of `tidegate explain`: the plan, and what the chosen runner makes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.cli.target import Target
    from tidegate.sdk.options.model import PipelineOptions


def explained(found: Target, options: PipelineOptions) -> str:
    """Stages, exchanges and reasons; then the runner's own part. The same text for the same pipeline and flags."""
    from tidegate.runners.planner.explain import explain

    runner = found.runner(options)
    plan = runner.plan(found.live(options), options)
    own = runner.explain(plan, options)
    return explain(plan) + (f"\n{own}" if own else "")
