"""Interactive looks at data: the elements of a collection, in the author's own process and on any runner.

`runs` executes the steps that lead to a collection, `recorder` brings back its elements, `table` and `show` display
them. Nothing here is imported before its first use, because most pipelines are never looked into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.sdk.interactive_hook import Interactive


def load() -> Interactive:
    """Import what pipelines and collections call: see `tidegate.sdk.interactive_hook`."""
    from tidegate.sdk.interactive import entry

    return entry
