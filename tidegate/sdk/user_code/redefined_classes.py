"""Pickling elements whose class has been redefined since they were created, which is common in notebooks.

Plain pickle refers to a class by its name, which now refers to the later class. The earlier class is therefore pickled
by value: unpickling returns the original class in the same process, and one copy per definition in other processes.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any
from weakref import WeakKeyDictionary

from tidegate.sdk import moved
from tidegate.sdk.user_code.by_value import is_superseded, pickle_by_value


def dumps(
    value: Any,
    *,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
    table: Mapping[type, Callable[[Any], Any]] | None = None,
) -> bytes:
    """Like `pickle.dumps`, but also pickles redefined classes. `buffer_callback` is the buffer callback, `table` a
    dispatch table."""
    try:
        return (
            _dumped(pickle.Pickler, value, buffer_callback, table)
            if table
            else pickle.dumps(value, 5, buffer_callback=buffer_callback)
        )
    except pickle.PicklingError:  # "it's not the same object as": a redefined class
        try:
            return _dumped(_Pickler, value, None, table)  # no callback: it has received the buffers already
        except Exception:
            pass
        raise


def _dumped(
    kind: type[pickle.Pickler],
    value: Any,
    buffer_callback: Callable[[pickle.PickleBuffer], Any] | None,
    table: Mapping[type, Callable[[Any], Any]] | None,
) -> bytes:
    buffer = io.BytesIO()
    pickler = kind(buffer, 5, buffer_callback=buffer_callback)
    if table:
        pickler.dispatch_table = table
    pickler.dump(value)
    return buffer.getvalue()


def register_classes(values: Any) -> None:
    """Register the classes in `values` with cloudpickle, so that processes forked from this one agree on them."""
    with suppress(Exception):  # these values may never have to be pickled
        pickle_by_value(values)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and is_superseded(obj):
            return _class_of, (_payload(obj),)
        return NotImplemented


_payloads: WeakKeyDictionary[type, bytes] = WeakKeyDictionary()


def _payload(cls: type) -> bytes:
    found = _payloads.get(cls)
    if found is None:
        found = _payloads[cls] = pickle_by_value(cls)[0]
    return found


@lru_cache(maxsize=256)
def _class_of(payload: bytes) -> type:
    """The class; cloudpickle returns the same class for each that it has pickled or loaded in this process."""
    found: type = moved.loads(payload)
    return found
