"""The state of an enumerator as it travels and is stored: a large one as compressed JSON, which nobody has to copy.

The state of a folder that is followed has an entry for each file. With 100,000 of them it is 13 MB of JSON; compressed,
checkpoints store 2 MB, and the coordinator passes them on as they are.

>>> small, large = {"next": 3}, {"files": ["a"] * LARGE}
>>> packed(small), type(packed(large)).__name__, unpacked(packed(large)) == large
({'next': 3}, 'PackedState', True)
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, Final

LARGE: Final = 1 << 16
"""The characters of JSON from which on a state is packed. Smaller ones can be read in the manifests of checkpoints."""


@dataclass(frozen=True, slots=True)
class PackedState:
    """The JSON of a state, compressed."""

    data: bytes


def packed(state: Any) -> Any:
    """The state as a checkpoint restores it, or a PackedState if it is large. TypeError or ValueError for a state that
    JSON can't represent."""
    text = json.dumps(state)
    return json.loads(text) if len(text) < LARGE else PackedState(zlib.compress(text.encode(), 1))


def unpacked(state: Any) -> Any:
    """The state that `packed` was given. ValueError if it is damaged."""
    if not isinstance(state, PackedState):
        return state
    try:
        return json.loads(zlib.decompress(state.data))
    except zlib.error as error:
        raise ValueError(f"the state of an enumerator is damaged: {error}") from None
