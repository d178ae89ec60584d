"""The values of `Create`s made ready to leave the process."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from types import FunctionType
from typing import Any

from tidegate.sdk.portable.model import Create, Pipeline, Values
from tidegate.sdk.portable.seal import seal
from tidegate.sdk.user_code.by_value import travels_by_value


def with_values(pipeline: Pipeline) -> Pipeline:
    """A sealed pipeline with the values of its `Create`s as bytes, and the classes that these bring.

    Plain pickle takes a quarter of the time: only values whose classes or functions travel by value need more. Raises
    PicklingError, naming the step, for values that can't travel.
    """
    nodes = tuple(
        replace(node, values=_pickled(node.values)) if isinstance(node, Create) else node for node in pipeline.nodes
    )
    return seal(replace(pipeline, nodes=nodes), values=True)


def _pickled(values: Values) -> Values:
    if values.data is not None:
        return values
    live = values.load()
    buffer = io.BytesIO()
    try:
        _Plain(buffer, 5).dump(live)
    except Exception:  # what is at fault is found, and told, when it is sealed
        return values
    return Values(live, values.count, buffer.getvalue())


class _ByValue(Exception):
    """Something that other processes do not find by its name."""


class _Plain(pickle.Pickler):
    """Refuses what is defined in the author's own files."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, (type, FunctionType)) and travels_by_value(obj.__module__):
            raise _ByValue
        return NotImplemented
