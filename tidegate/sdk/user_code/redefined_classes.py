"""Pickles of elements whose class has been defined again since they were made, as happens in notebooks all the time.

Plain pickle knows a class by its name, which then leads to the later one. Such a class travels by value instead, and
what is read is the class that it was: within a process the same one, in others one for each time it was defined.
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
    beside: Callable[[pickle.PickleBuffer], Any] | None = None,
    table: Mapping[type, Callable[[Any], Any]] | None = None,
) -> bytes:
    """As `pickle.dumps`, of classes that have been defined again too; `table` is a dispatch table."""
    try:
        return (
            _dumped(pickle.Pickler, value, beside, table) if table else pickle.dumps(value, 5, buffer_callback=beside)
        )
    except pickle.PicklingError:  # "it's not the same object as"; what the author's own code raises is no reason
        try:
            return _dumped(_Pickler, value, None, table)  # what is beside now would be there twice
        except Exception:
            pass
        raise


def _dumped(
    kind: type[pickle.Pickler],
    value: Any,
    beside: Callable[[pickle.PickleBuffer], Any] | None,
    table: Mapping[type, Callable[[Any], Any]] | None,
) -> bytes:
    buffer = io.BytesIO()
    pickler = kind(buffer, 5, buffer_callback=beside)
    if table:
        pickler.dispatch_table = table
    pickler.dump(value)
    return buffer.getvalue()


def meet(values: Any) -> None:
    """Make the classes in `values` known to cloudpickle here, so that processes forked from this one agree on them."""
    with suppress(Exception):  # what can't be pickled may not have to be
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
    """The class; cloudpickle knows those that it has met in this process."""
    found: type = moved.loads(payload)
    return found
