"""Rewrites of relations before they are lowered, each of which leaves every result and every error as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tidegate.runners.planner.relational.scans import read_columns, read_rows
from tidegate.runners.planner.relational.top_n import limit_ranks
from tidegate.sdk.portable.model import Pipeline

REWRITES: Final[dict[str, Callable[[Pipeline, frozenset[str]], Pipeline]]] = {
    "top n": limit_ranks,
    "columns of readers": read_columns,
    "rows of readers": read_rows,
}
"""The rewrites by name, in their order."""


def rewritten(pipeline: Pipeline, results: frozenset[str]) -> Pipeline:
    """The pipeline after all rewrites. `results` are collections that are read elsewhere."""
    for rewrite in REWRITES.values():
        pipeline = rewrite(pipeline, results)
    return pipeline
