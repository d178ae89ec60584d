"""Advice for error messages, where the author's code used a state cell or a timer in a way it doesn't support."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from tidegate.sdk.authoring.dofn import Marker
from tidegate.sdk.authoring.state import StateSpec, TimerSpec, describe_methods
from tidegate.sdk.errors import error_text
from tidegate.sdk.user_code.frames import author_frames

_OFFERS: Final = {
    "ValueCell": describe_methods(StateSpec("", "value")),
    "BagCell": describe_methods(StateSpec("", "bag")),
    "SetCell": describe_methods(StateSpec("", "set")),
    "MapCell": describe_methods(StateSpec("", "map")),
    "OrderedListCell": describe_methods(StateSpec("", "ordered_list")),
    "CombiningCell": describe_methods(StateSpec("", "combining")),
    "Cell.store": describe_methods(StateSpec("", "value")),
    "TimerHandle": describe_methods(TimerSpec("")),
}
_DECLARATION: Final = (
    "A spec only declares a cell or a timer. A method of the DoFn gets it by the default of a parameter: "
    "cell=tg.DoFn.StateParam(SPEC), timer=tg.DoFn.TimerParam(SPEC)"
)
_NAMES: Final = re.compile(rf"(?:\b|Watched|Expiring)({'|'.join(_OFFERS)})\b")


def advice(error: BaseException) -> str:
    """A sentence to add to the message of an error in the author's code; "" if there is none."""
    if not isinstance(error, AttributeError | TypeError):
        return ""
    text = error_text(error)
    named = _NAMES.search(text)
    if named is not None:
        return methods_text(named[1])
    if isinstance(error, AttributeError) and isinstance(error.obj, StateSpec | TimerSpec | Marker):
        return _DECLARATION
    return _of_empty_cell(error) if "NoneType" in text else ""


def methods_text(kind: str) -> str:
    """The methods of a kind of cell, or of a timer, as a sentence."""
    return _OFFERS[kind][0].upper() + _OFFERS[kind][1:]


def _of_empty_cell(error: BaseException) -> str:
    """Advice about a cell in a local variable of the failed code that may have returned None."""
    for name, value in _locals_of(error):
        kind = type(value).__name__ if type(value).__module__.startswith("tidegate.") else ""
        if kind.endswith("ValueCell") and value.entry is None:
            return f"Nothing has been written to {name} for this key, so it reads None: {name}.read(0) gives 0 then"
        if kind.endswith("MapCell"):
            return f"{name}.get(key) gives None where nothing is under the key: {name}.get(key, 0) gives 0 then"
    return ""


def _locals_of(error: BaseException) -> Iterator[tuple[str, Any]]:
    """The local variables of the author's functions on the stack, those of the innermost function first."""
    frames = []
    trace = author_frames(error.__traceback__)
    while trace is not None:
        frames.append(trace.tb_frame)
        trace = trace.tb_next
    for frame in reversed(frames):
        yield from frame.f_locals.items()
