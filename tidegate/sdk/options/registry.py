"""The runners that `--runner` can name: the built-in ones, and those of installed distributions.

This module knows runners by name only, so that options can ask a runner for its flags without importing `Runner`.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib import import_module
from typing import Any, Final

from tidegate.sdk.errors import OptionsError

BUILT_IN: Final = {
    "direct": "tidegate.runners.direct:DirectRunner",
    "streaming": "tidegate.runners.streaming:StreamingRunner",
    "spark": "tidegate.runners.spark:SparkRunner",
}
"""Built-in runners by name; others are found by the entry-point group `tidegate.runners`."""

ENTRY_POINTS: Final = "tidegate.runners"


def runner_names() -> list[str]:
    """Every runner that can be named, built-in ones first."""
    return [*BUILT_IN, *sorted(set(_plugins()) - set(BUILT_IN))]


def only_chosen(tokens: object) -> str | None:
    """The built-in runner that a command line chooses, if it says nothing else."""
    match tokens:
        case ["--runner", str() as name]:
            pass
        case [str() as token] if token.startswith("--runner="):
            name = token.removeprefix("--runner=")
        case _:
            return None
    return name if name in BUILT_IN else None


def make_runner(name: str) -> Any:
    """Import the runner of that name and make one; OptionsError, with the names there are, if there is none."""
    target = BUILT_IN.get(name)
    if target is not None:
        module, _, cls = target.partition(":")
        return getattr(import_module(module), cls)()
    plugin = _plugins().get(name)
    if plugin is None:
        raise OptionsError(f"there is no runner {name!r}; there are: {', '.join(runner_names())}")
    return plugin.load()()


def _plugins() -> dict[str, Any]:
    return _entry_points(tuple(sys.path))


@lru_cache(1)
def _entry_points(_: tuple[str, ...]) -> dict[str, Any]:
    """The runners of other distributions, looked up again only when `sys.path` has changed."""
    from importlib.metadata import entry_points

    return {entry.name: entry for entry in entry_points(group=ENTRY_POINTS)}
