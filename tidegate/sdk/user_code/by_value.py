"""Pickling the author's code by value, and secrets by name: code in `__main__` and beside the script travels along.

Functions and classes of installed distributions are pickled by reference instead.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final


def resolve(module: str, name: str) -> Any:
    """The attribute `name`, which may be dotted, of an imported module. ImportError or AttributeError if missing."""
    __import__(module)
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def is_superseded(cls: type) -> bool:
    """Whether a class of the author's has been redefined: its name refers to another class, or to nothing."""
    module, name = cls.__module__, cls.__qualname__
    return "<" not in name and travels_by_value(module) and module in sys.modules and not _is_found(cls)


def _is_found(cls: type) -> bool:
    """Whether the class's name refers to the class itself."""
    try:
        return resolve(cls.__module__, cls.__qualname__) is cls
    except (ImportError, AttributeError):
        return False


@lru_cache(maxsize=4096)
def travels_by_value(module: str) -> bool:
    """Whether code of this module is pickled by value: `__main__` and modules that no installed distribution has."""
    top = module.partition(".")[0]
    if top == "tidegate" or top in sys.stdlib_module_names:
        return False
    if top == "__main__":
        return True
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if file is None:
        return loaded is None or getattr(loaded, "__spec__", None) is None
    if is_installed(file):
        return False
    return distribution_of(top)[0] is None


def is_installed(file: str) -> bool:
    """Whether a file is in a folder of installed packages. The name `site-packages` alone is not enough: an author may
    use it, too."""
    return _PACKAGE_FOLDERS.search(file) is not None


_PACKAGE_FOLDERS: Final = re.compile(r"[/\\](python[\d.]*|lib)[/\\](site|dist)-packages[/\\]", re.IGNORECASE)


@lru_cache(maxsize=1024)
def distribution_of(top: str) -> tuple[str | None, str | None]:
    """Name and version of the distribution that contains the top-level module `top`."""
    if top in sys.stdlib_module_names or top == "__main__":
        return None, None
    from importlib import metadata

    try:
        found = metadata.distribution(top)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(top)
        if not names:
            return None, None
        found = metadata.distribution(names[0])
    return found.metadata["Name"], found.version


def pickle_by_value(value: Any) -> tuple[bytes, list[type]]:
    """Cloudpickle `value`, including code of modules beside the script; also return the classes pickled by value."""
    import io

    import cloudpickle

    buffer = io.BytesIO()
    pickler = _pickler_class()(buffer)
    try:
        pickler.dump(value)
    finally:
        for module in pickler.registered:
            cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue(), pickler.classes


def pickle_with_local_code(value: Any) -> bytes:
    """Cloudpickle `value` with the classes and functions in it that no module has by name."""
    import io

    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table = _reducers()

    buffer = io.BytesIO()
    Pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


@lru_cache(maxsize=1)
def _pickler_class() -> Any:
    import cloudpickle

    from tidegate.sdk.secrets.registry import is_secret, reduced

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: Any) -> None:
            self.dispatch_table = _reducers()  # before __init__, which reads it
            super().__init__(file, protocol=5)
            self.registered: list[ModuleType] = []
            self.classes: list[type] = []
            self.plain: set[type] = set()  # classes whose objects are neither code nor secrets

        def reducer_override(self, obj: Any) -> Any:
            if type(obj) in self.plain:
                return NotImplemented
            match obj:
                case type() | FunctionType():
                    name = obj.__module__
                case ModuleType():
                    name = obj.__name__
                case _ if is_secret(obj):
                    return reduced(obj)
                case _:
                    self.plain.add(type(obj))
                    return NotImplemented
            if isinstance(name, str) and travels_by_value(name):
                module = sys.modules.get(name)
                if (
                    module is not None
                    and name != "__main__"
                    and name not in cloudpickle.list_registry_pickle_by_value()
                ):
                    cloudpickle.register_pickle_by_value(module)
                    self.registered.append(module)
                if isinstance(obj, type):
                    self.classes.append(obj)
                    return _with_evaluated_annotations(obj, super().reducer_override(obj))
            return super().reducer_override(obj)

    return Pickler


def _reducers() -> dict[type, Any]:
    """The functions by which cloudpickle reduces objects, in a dict, which is faster than its ChainMap."""
    import cloudpickle

    return {**cloudpickle.Pickler.dispatch_table, CodeType: _reduced_code}


def _reduced_code(code: CodeType) -> tuple[Any, ...]:
    """The reduction of code, with the file that it was written in, which tracebacks show. From 3.1.3 on, cloudpickle
    leaves it out."""
    import cloudpickle

    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    at = _FILENAME_ARGUMENT
    return make, (*arguments[:at], "".join(code.co_filename), *arguments[at + 1 :])


_FILENAME_ARGUMENT: Final = 10
"""The position of `co_filename` among the arguments of `CodeType`, since Python 3.8."""


def _with_evaluated_annotations(cls: type, reduced: Any) -> Any:
    """The reduction of a class, with annotations of a record's fields as types. As text, which `from __future__ import
    annotations` makes of them, they mean nothing in a process without the author's module."""
    own: dict[str, Any] = inspect.get_annotations(cls)
    is_record = dataclasses.is_dataclass(cls) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    as_text = any(isinstance(hint, str | typing.ForwardRef) for hint in own.values())
    if not isinstance(reduced, tuple) or not is_record or not as_text:
        return reduced
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception:  # names that are imported for type checkers alone
        return reduced
    members, slots = reduced[2]
    evaluated = {**members, "__annotations__": {name: hints[name] for name in own}}
    return (*reduced[:2], (evaluated, slots), *reduced[3:])
