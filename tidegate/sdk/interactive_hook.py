"""How pipelines and collections reach `tidegate.sdk.interactive`, which is built on top of them.

`import tidegate` provides the functions; their modules are imported at the first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from tidegate.sdk.runner import Runner
    from tidegate.sdk.time import DurationLike


class Interactive(Protocol):
    """The functions behind `PCollection.collect` and `head`, and behind what a notebook draws."""

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
        """Draw a pipeline for a notebook."""
        ...

    def collection_html(self, pcoll: Any) -> str:
        """Draw what is known of a collection before it is computed."""
        ...


_load: Callable[[], Interactive] | None = None


def provide_interactive(load: Callable[[], Interactive]) -> None:
    """Set what imports the functions."""
    global _load
    _load = load


def interactive() -> Interactive:
    """Import the functions, or return them if they have been imported."""
    assert _load is not None, "`import tidegate` provides them"
    return _load()
