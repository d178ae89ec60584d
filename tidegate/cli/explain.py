"""The text of `tidegate explain`: the plan, and the runner's account of how it executes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.cli.target import Target
    from tidegate.sdk.options.model import PipelineOptions


def explained(found: Target, options: PipelineOptions) -> str:
    """The stages, exchanges and reasons of the plan, then the runner's part. The text is the same for the same
    pipeline and flags."""
    from tidegate.runners.planner.explain import explain

    runner = found.runner(options)
    plan = runner.plan(found.live(options), options)
    of_runner = runner.explain(plan, options)
    return explain(plan) + (f"\n{of_runner}" if of_runner else "")
