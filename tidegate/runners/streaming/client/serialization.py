"""The serialization of `Create` values that are sent to another process."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from types import FunctionType
from typing import Any

from tidegate.sdk.portable.model import Create, Pipeline, Values
from tidegate.sdk.portable.seal import seal
from tidegate.sdk.secrets.registry import is_secret
from tidegate.sdk.user_code.by_value import travels_by_value


def with_values(pipeline: Pipeline) -> Pipeline:
    """A sealed pipeline with the values of its `Create`s as bytes, and with the classes that these refer to.

    Plain pickle takes a quarter of the time of cloudpickle, which only values of the author's own classes and functions
    need. Raises PicklingError, naming the step, for values that can't be pickled.
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
        _PlainPickler(buffer, 5).dump(live)
    except Exception:  # `seal` tries again, and reports a value that can't be pickled
        return values
    return Values(live, values.count, buffer.getvalue())


class _ByValue(Exception):
    """A class or function that other processes can't import by name, or a secret."""


class _PlainPickler(pickle.Pickler):
    """Refuses secrets, and classes and functions that are defined in the author's own files."""

    def reducer_override(self, obj: Any) -> Any:
        if is_secret(obj) or (isinstance(obj, (type, FunctionType)) and travels_by_value(obj.__module__)):
            raise _ByValue
        return NotImplemented
