"""Pickles that PySpark made, read in a worker: elements of the script's classes become those of the pipeline.

PySpark writes such a class out in each pickle, so that a worker would get a class of its own, which is neither the one
that the steps' functions know nor one that plain pickle finds when an element crosses a shuffle.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Any, Final

from tidegate.sdk.user_code.user_fn import UserFn


def unpickling(classes: Iterable[UserFn]) -> Callable[[Any], Any]:
    """`pickle.loads` for what PySpark pickled, where these classes of the pipeline have been installed."""
    names = frozenset(cls.name for cls in classes)
    return partial(_loads, names) if names else pickle.loads


def _loads(names: Container[str], data: Any) -> Any:
    return _Unpickler(io.BytesIO(data), names).load()


class _Unpickler(pickle.Unpickler):
    """Finds installed classes where cloudpickle would make them anew."""

    def __init__(self, file: io.BytesIO, names: Container[str]) -> None:
        super().__init__(file)
        self._names = names
        self._found: list[Any] = []

    def find_class(self, module: str, name: str, /) -> Any:
        there = super().find_class(module, name)
        if not module.startswith(_CLOUDPICKLE):
            return there
        match name:
            case "_make_skeleton_class":
                return lambda kind, name, bases, kwargs, *rest: (
                    self._installed(kwargs.get("__module__"), name) or there(kind, name, bases, kwargs, *rest)
                )
            case "_make_skeleton_enum":
                return lambda bases, name, qualname, members, module, *rest: (
                    self._installed(module, qualname) or there(bases, name, qualname, members, module, *rest)
                )
            case "_class_setstate":
                return lambda cls, state: cls if cls in self._found else there(cls, state)
            case _:
                return there

    def _installed(self, module: Any, name: str) -> Any:
        """The pipeline's class of this name; None if it brings none."""
        if f"{module}:{name}" not in self._names:
            return None
        found = getattr(sys.modules.get(module), name, None)
        if found is not None:
            self._found.append(found)
        return found


_CLOUDPICKLE: Final = ("pyspark.cloudpickle", "cloudpickle")
