"""Unpickles PySpark's pickles in a worker, replacing the classes of the script by those installed with the pipeline.

PySpark pickles a class of the script by value. Unpickling it would create a second class, different from the one that
the steps' functions refer to, and plain pickle could not find it when an element crosses a shuffle.
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
    """A `pickle.loads` for PySpark's pickles that uses these installed classes of the pipeline."""
    names = frozenset(cls.name for cls in classes)
    return partial(_loads, names) if names else pickle.loads


def _loads(names: Container[str], data: Any) -> Any:
    return _Unpickler(io.BytesIO(data), names).load()


class _Unpickler(pickle.Unpickler):
    """Uses an installed class where cloudpickle would create a second one."""

    def __init__(self, file: io.BytesIO, names: Container[str]) -> None:
        super().__init__(file)
        self._names = names
        self._replaced: list[Any] = []

    def find_class(self, module: str, name: str, /) -> Any:
        original = super().find_class(module, name)
        if not module.startswith(_CLOUDPICKLE):
            return original
        match name:
            case "_make_skeleton_class":
                return lambda kind, name, bases, kwargs, *rest: (
                    self._installed(kwargs.get("__module__"), name) or original(kind, name, bases, kwargs, *rest)
                )
            case "_make_skeleton_enum":
                return lambda bases, name, qualname, members, module, *rest: (
                    self._installed(module, qualname) or original(bases, name, qualname, members, module, *rest)
                )
            case "_class_setstate":
                return lambda cls, state: cls if cls in self._replaced else original(cls, state)
            case _:
                return original

    def _installed(self, module: Any, name: str) -> Any:
        """The pipeline's class of this name, or None."""
        if f"{module}:{name}" not in self._names:
            return None
        found = getattr(sys.modules.get(module), name, None)
        if found is not None:
            self._replaced.append(found)
        return found


_CLOUDPICKLE: Final = ("pyspark.cloudpickle", "cloudpickle")
