"""How pipelines and collections call `tidegate.sdk.interactive`, which is built on top of them.

`import tidegate` registers a loader; it imports the modules on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tidegate.sdk.runner import Runner
    from tidegate.sdk.time import DurationLike


class Interactive(Protocol):
    """The functions behind `PCollection.collect` and `head`, and behind the HTML that a notebook shows."""

    def collect(
        self,
        pcoll: Any,
        *,
        limit: int | None,
        include_window_info: bool,
        runner: str | Runner | None,
        run_for: DurationLike | None,
    ) -> list[Any]:
        """Run the steps that lead to a collection, and return all its elements."""
        ...

    def head(
        self,
        pcoll: Any,
        n: int,
        *,
        include_window_info: bool,
        runner: str | Runner | None,
        run_for: DurationLike | None,
    ) -> list[Any]:
        """Run the steps that lead to a collection, and return its first elements."""
        ...

    def pipeline_html(self, pipeline: Any) -> str:
        """A pipeline as HTML for a notebook."""
        ...

    def collection_html(self, pcoll: Any) -> str:
        """A collection that has not been computed, as HTML for a notebook."""
        ...


_load: Callable[[], Interactive] | None = None


def provide_interactive(load: Callable[[], Interactive]) -> None:
    """Register the function that imports the functions."""
    global _load
    _load = load


def interactive() -> Interactive:
    """The functions, imported on first use."""
    assert _load is not None, "`import tidegate` provides them"
    return _load()
