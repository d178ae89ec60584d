"""`UserFn`: a reference to the author's code, live while a pipeline is built and sealed when it is compiled or run.

A pipeline refers by a `UserFn` to every function, DoFn, CombineFn, source and sink. `sealing` turns a live reference
into data. Reading a sealed pipeline never unpickles the author's code; only `load` does.

>>> length = UserFn.of(len)
>>> length, length.load()("abc")
(UserFn(len), 3)
"""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any, Final

from tidegate.sdk import moved
from tidegate.sdk.errors import LoadError
from tidegate.sdk.notebook import place_of
from tidegate.sdk.user_code.body import Body, find_body
from tidegate.sdk.user_code.frames import Where

_SHOWN: Final = 60
"""The number of characters of a lambda's expression that are shown."""


@dataclass(frozen=True, slots=True)
class ImportRef:
    """Code that is imported: `module:name`, of a version of a distribution (None for the standard library)."""

    module: str
    name: str
    distribution: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """Code that travels by value: a cloudpickle and its SHA-256."""

    data: bytes
    sha256: str


class UserFn:
    """A function or object of the author's: live (`code` is None), or sealed, to be loaded from `code`.

    A function whose source was found has a `body`, which describes it and never replaces its code. The body of a DoFn
    is that of its `process`, that of a CombineFn is that of its `add_input`, and that of extra arguments is that of the
    function that is the last of them.
    """

    __slots__ = ("_body", "_live", "code", "name", "where")

    def __init__(
        self,
        name: str,
        where: Where | None,
        code: ImportRef | Payload | None,
        live: Any = None,
        body: Body | None = None,
    ) -> None:
        self.name = name
        self.where = where
        self.code = code
        self._live = live
        self._body = body

    @staticmethod
    def of(value: Any, name: str | None = None) -> UserFn:
        """Wrap a live function or object; a UserFn is returned unchanged."""
        if isinstance(value, UserFn):
            return value
        return UserFn(name or name_of(value), defined_at(value), None, value)

    @property
    def live(self) -> Any:
        """The object if it is live or has been loaded, else None."""
        return self._live

    @property
    def body(self) -> Body | None:
        """The text of the function that is called for each element; None if there is none, or its text is not known."""
        if self._body is None and self.code is None:
            called = called_per_element(self._live)
            self._body = find_body(called.__func__ if isinstance(called, MethodType) else called)
        return self._body

    @property
    def shown(self) -> str:
        """The expression of a lambda, in one line; the name of any other function or object."""
        if self.name.endswith("<lambda>") and self.body is not None:
            text = " ".join(self.body.text.split())
            return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
        return self.name

    def load(self) -> Any:
        """The object; if sealed, it is unpickled or imported on the first call.

        Raises LoadError if that fails, for example because a package is missing or no longer has the name.
        """
        if self._live is None and self.code is not None:
            try:
                match self.code:
                    case Payload(data=data):
                        self._live = moved.loads(data)
                    case ImportRef(module=module, name=name):
                        self._live = moved.MOVES.find(module, name)
            except Exception as error:
                place = f", defined at {self.where}," if self.where else ""
                raise LoadError(
                    f"{self.name!r}{place} can't be loaded here: {type(error).__name__}: {error}{_origin(self.code)}"
                ) from error
        return self._live

    def another(self) -> UserFn:
        """A UserFn of the same code, which loads an object of its own; this one if it is live or imported."""
        return UserFn(self.name, self.where, self.code, None, self.body) if isinstance(self.code, Payload) else self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UserFn):
            return NotImplemented
        if self.code is None or other.code is None:
            return self._live is other._live and self.code is other.code
        return (self.name, self.where, self.code, self.body) == (other.name, other.where, other.code, other.body)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"UserFn({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.code is None:  # inside another object of the author's that is being sealed
            return UserFn.of, (self._live, self.name)
        return UserFn, (self.name, self.where, self.code, None, self.body)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """In JSON: an id in the table of functions, which is passed as pydantic's context."""
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            lambda value, info: info.context.by_id(value),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda fn, info: info.context.id_of(fn), info_arg=True
            ),
        )


def _origin(code: ImportRef | Payload) -> str:
    match code:
        case ImportRef(distribution=str(distribution), version=version):
            return f". It was taken from {distribution} {version}"
        case _:
            return ""


def called_per_element(value: Any) -> Any:
    """What a step calls for each element: a method of a DoFn or a CombineFn, or the author's function itself.

    None for the methods of Tidegate's own classes. Of extra arguments, it is the last if that is a function: a step of
    the library that calls the author's function gets it so.
    """
    if isinstance(value, tuple):
        return value[-1] if value and isinstance(value[-1], FunctionType) else None
    attribute = getattr(type(value), "__tidegate_calls__", None)
    called = value if attribute is None else getattr(value, attribute, None)
    own = isinstance(called, MethodType) and str(called.__module__).startswith("tidegate.")
    return None if own else called


def name_of(value: Any) -> str:
    """A short readable name: `parse`, `<lambda>`, `str.split`, `WordLength`, `partial(f)`."""
    match value:
        case MethodType():
            return f"{type(value.__self__).__name__}.{value.__name__}"
        case FunctionType():
            return value.__qualname__.rpartition("<locals>.")[2]
        case BuiltinFunctionType():
            return value.__qualname__
        case type():
            return value.__name__
    if getattr(value, "__objclass__", None) is not None and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if type(value).__name__ == "partial" and hasattr(value, "func"):
        return f"partial({name_of(value.func)})"
    return type(value).__name__


def defined_at(value: Any) -> Where | None:
    """Where the author's function (or a DoFn's `process`) is defined; None for builtins."""
    function: Any = value
    if not isinstance(function, (FunctionType, MethodType)):
        function = getattr(type(value), "process", None) or getattr(type(value), "__call__", None)  # noqa: B004
    code = getattr(function, "__code__", None)
    return Where(place_of(code.co_filename), code.co_firstlineno) if isinstance(code, CodeType) else None


def is_builtin_callable(value: Any) -> bool:
    """Whether `value` is a function or method of Python's own that is written in C."""
    if isinstance(value, BuiltinFunctionType):
        return value.__module__ in ("builtins", "math", "operator")
    return getattr(value, "__objclass__", None) in _BUILTIN_TYPES


_BUILTIN_TYPES: Final[frozenset[Any]] = frozenset(t for t in vars(builtins).values() if isinstance(t, type))
