"""Sealing: turning the author's live code into data that another process can load.

Functions of installed distributions become import references. Lambdas, closures, and code of `__main__` or of modules
beside the script become cloudpickle payloads.

>>> import statistics
>>> import_ref(statistics.mean)
ImportRef(module='statistics', name='mean', distribution=None, version=None)
>>> sealed = Sealer().seal(UserFn.of(lambda n: n + 1))
>>> type(sealed.code).__name__, sealed.live, sealed.load()(1)
('Payload', None, 2)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import ModuleType
from typing import Any, Final

from tidegate.sdk.errors import PicklingError
from tidegate.sdk.user_code.by_value import distribution_of, is_superseded, pickle_by_value, resolve, travels_by_value
from tidegate.sdk.user_code.pickling_diagnostics import explain_unpicklable
from tidegate.sdk.user_code.user_fn import ImportRef, Payload, UserFn


class Sealer:
    """Seals the functions of one pipeline, each object once, and collects the classes that are pickled by value."""

    def __init__(self) -> None:
        self._sealed: dict[int, UserFn] = {}
        self._classes: dict[tuple[str, str], type] = {}

    def seal(self, fn: UserFn) -> UserFn:
        """A sealed copy, without the live object.

        Raises PicklingError, naming the variable and its type, if a captured variable can't be pickled.
        """
        if fn.code is not None:
            return fn
        live = fn.live
        known = self._sealed.get(id(live))
        if known is None:
            code = import_ref(live) or self._payload(live, fn.name)
            known = self._sealed[id(live)] = UserFn(fn.name, fn.where, code, body=fn.body)
        return known

    def seal_values(self, values: Any, name: str) -> bytes:
        """Pickle the elements of a `Create`, and collect their by-value classes; raises PicklingError."""
        return self._pickle(values, name)

    def classes(self) -> tuple[UserFn, ...]:
        """The by-value classes collected so far, each sealed under `module:qualname`."""
        done: dict[tuple[str, str], UserFn] = {}
        while missing := [key for key in self._classes if key not in done]:
            for key in missing:
                cls = self._classes[key]
                done[key] = UserFn(f"{key[0]}:{key[1]}", None, self._payload(cls, key[1]))
        return tuple(done[key] for key in sorted(done))

    def _payload(self, live: Any, name: str) -> Payload:
        import hashlib

        data = self._pickle(live, name)
        return Payload(data, hashlib.sha256(data).hexdigest())

    def _pickle(self, live: Any, name: str) -> bytes:
        try:
            data, classes = pickle_by_value(live)
        except PicklingError as error:  # raised by a class of Tidegate's, with its own advice
            raise PicklingError(f"{name} can't be pickled: {error}") from None
        except Exception as error:
            raise PicklingError(explain_unpicklable(live, name) or f"{name} can't be pickled: {error}") from error
        for cls in classes:
            # Several classes may have the same name: redefined ones, and slotted dataclasses, which Python creates
            # twice. Only the one that the name refers to is found by it; the others are pickled with their instances.
            if not is_superseded(cls):
                self._classes[cls.__module__, cls.__qualname__] = cls
        return data


def install_classes(classes: Iterable[UserFn]) -> None:
    """Set by-value classes as attributes of their modules, so that plain pickle finds them in a worker.

    Attributes that the module defines itself are left alone. A class installed by an earlier pipeline is replaced,
    because a notebook may redefine a class between runs.
    """
    for fn in classes:
        module_name, _, qualname = fn.name.partition(":")
        if "." in qualname or "<locals>" in qualname:
            continue
        module = sys.modules.get(module_name)
        if module is None:
            _make_packages(module_name)
            module = sys.modules[module_name] = ModuleType(module_name)
        present = getattr(module, qualname, None)
        if present is None or present is _installed.get(fn.name):
            _installed[fn.name] = fn.load()
            setattr(module, qualname, _installed[fn.name])


_installed: Final[dict[str, Any]] = {}
"""The classes that `install_classes` has set in modules of this process, by `module:qualname`."""


def _make_packages(module: str) -> None:
    """Make sure that a module's packages can be imported: pickle imports `a` before `a.b`."""
    parent = module.rpartition(".")[0]
    if not parent or parent in sys.modules:
        return
    _make_packages(parent)
    try:
        __import__(parent)
    except ImportError:
        sys.modules[parent] = ModuleType(parent)


def import_ref(value: Any) -> ImportRef | None:
    """The import reference of a function or class of an installed distribution; None if it must be pickled by value."""
    if not callable(value):
        return None
    owner = getattr(value, "__objclass__", None)
    module = getattr(value, "__module__", None) or getattr(owner, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or travels_by_value(module):
        return None
    try:
        if resolve(module, name) is not value:
            return None
    except (ImportError, AttributeError):
        return None
    distribution, version = distribution_of(module.partition(".")[0])
    return ImportRef(module, name, distribution, version)
