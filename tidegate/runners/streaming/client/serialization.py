"""The values of `Create` that reach other processes: serialized, or by a fork."""

from __future__ import annotations

import io
import pickle
import sys
from dataclasses import replace
from types import FunctionType
from typing import Any

from tidegate.sdk.portable.model import Create, Pipeline
from tidegate.sdk.portable.seal import seal
from tidegate.sdk.portable.values import Values
from tidegate.sdk.secrets.registry import is_secret
from tidegate.sdk.user_code.by_value import travels_by_value
from tidegate.sdk.user_code.redefined_classes import register_classes


def with_values(pipeline: Pipeline) -> Pipeline:
    """A sealed pipeline with the values of its `Create`s as bytes, and with the classes that these refer to.

    Plain pickle takes a quarter of the time of cloudpickle, which only values of the author's own classes and functions
    need. Raises PicklingError, naming the step, for values that can't be pickled.
    """
    nodes = tuple(
        replace(node, values=_pickled(node.values)) if isinstance(node, Create) else node for node in pipeline.nodes
    )
    return seal(replace(pipeline, nodes=nodes), values=True)


def register_element_classes(pipeline: Pipeline) -> None:
    """Prepare the values of `Create`s for processes that are forked from this one: a notebook or a prompt may redefine
    their classes while elements of the old ones are under way."""
    if not hasattr(sys.modules.get("__main__"), "__file__"):
        for node in pipeline.nodes:
            if isinstance(node, Create) and node.values.data is None:
                register_classes(node.values.load())


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
