"""Interactive inspection of data: fetching the elements of a collection to the author's process, on any runner.

`runs` executes the steps upstream of a collection, `recorder` transfers its elements, `table` and `show` display them.
These modules are imported on first use, because most programs don't need them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.sdk.interactive_hook import Interactive


def load() -> Interactive:
    """Import the functions of `tidegate.sdk.interactive_hook.Interactive`."""
    from tidegate.sdk.interactive import entry

    return entry
