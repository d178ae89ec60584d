"""Coders: how values are encoded when they cross an exchange or are spilled to disk.

A block's columns are encoded as one pickle, which takes 25 to 60 ns per value for both ways; row by row it would take
several times as long. A type that pickle can't handle, or that is used for keys, can have a coder of its own:
`tg.register_coder`.

The registry is data: `registered()` is sealed with the pipeline, and `install` restores it in a worker. It does not
affect pickling outside Tidegate.

Spilled columns are not compressed: zlib at level 1 takes 80 to 200 ns per value, several times as long as encoding.

>>> columns = (["a", "b"], [1, 2])
>>> decode_columns(encode_columns(columns)) == columns
True
"""

from __future__ import annotations

import copyreg
import dataclasses
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeAlias, TypeVar

from tidegate.sdk.data import keys as _keys
from tidegate.sdk.errors import BuildError, PicklingError, RunError, shorten
from tidegate.sdk.user_code.redefined_classes import dumps

T = TypeVar("T")


class Coder(ABC, Generic[T]):
    """Encodes the values of one type as bytes: `decode(encode(v)) == v`.

    A `deterministic` coder encodes equal values as equal bytes, and unequal values as different ones, in every process
    and run. Values of a type with a coder can be keys only if the coder is deterministic.
    """

    deterministic: bool = False

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """The bytes of `value`."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """The value that was encoded as `data`."""


class PickleCoder(Coder[Any]):
    """Encodes any value that pickle or a registered coder supports. Not deterministic: equal values may have different
    pickles."""

    def encode(self, value: Any) -> bytes:
        """The pickle of `value`; PicklingError, naming the part that can't be pickled."""
        return _dump(value)

    def decode(self, data: bytes) -> Any:
        """The value pickled in `data`; RunError if it can't be restored."""
        return _load(data)


CoderRegistry: TypeAlias = "tuple[tuple[type[Any], Coder[Any]], ...]"
Reducers: TypeAlias = Mapping[type[Any], Callable[[Any], tuple[Any, ...]]]
"""For each class, a function that pickle uses in place of the instances' `__reduce__`."""
_BufferCallback: TypeAlias = Callable[[pickle.PickleBuffer], bool]
_NO_REDUCERS: Final[Reducers] = {}


def register_coder(cls: type[T], coder: Coder[T]) -> None:
    """Encode values of exactly the type `cls` with `coder`, in all pipelines that are sealed from now on.

    A deterministic coder also allows them as keys. Registering a type again replaces its coder. BuildError for a type
    that pickle always encodes itself (int, list, a function…), and for a deterministic coder of a type whose values
    equal those of another type, such as a subclass of str.
    """
    if not isinstance(cls, type) or not isinstance(coder, Coder):
        raise BuildError(f"register_coder takes a class and an instance of Coder, not {shorten(cls)}, {shorten(coder)}")
    if cls in _ALWAYS_BUILTIN:
        raise BuildError(f"{cls.__name__} can't have a coder of its own: wrap its values in a class and register that")
    if coder.deterministic:
        _keys.encode_with(cls, coder.encode)
    else:
        _keys.forget_encoding(cls)
    _coders[cls] = coder


def registered() -> CoderRegistry:
    """The registered coders, in the order of registration; they are sealed with a pipeline."""
    return tuple(_coders.items())


def install(registry: CoderRegistry) -> None:
    """Replace the registry of this process: called in a worker before it decodes or groups anything.

    Earlier registrations are removed, so that a worker that is reused for another job encodes keys like a new worker.
    """
    for cls in _coders:
        _keys.forget_encoding(cls)
    _coders.clear()
    for cls, coder in registry:
        register_coder(cls, coder)


def encode_columns(columns: tuple[object, ...], reducers: Reducers = _NO_REDUCERS) -> bytes:
    """The columns of a block (lists, or one value for all elements) as one pickle.

    An object that occurs repeatedly is written once, and is one object again when read. PicklingError, naming the part
    of a column that can't be pickled.
    """
    return _dump(columns, columns, reducers=reducers)


def encode_columns_out_of_band(columns: tuple[object, ...]) -> tuple[bytes, list[memoryview]]:
    """Like `encode_columns`, but large buffers of values, such as arrays, are returned separately, without a copy."""
    buffers: list[memoryview] = []

    def buffer_callback(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _MIN_OUT_OF_BAND:
            return True  # keep it in the pickle
        buffers.append(raw)
        return False

    return _dump(columns, columns, buffer_callback), buffers


def decode_columns(
    data: bytes | bytearray | memoryview, buffers: Iterable[bytes | bytearray | memoryview] = ()
) -> tuple[Any, ...]:
    """The columns encoded by `encode_columns`, or by `encode_columns_out_of_band` with its `buffers`, which the values
    continue to use. RunError if `data` is corrupt or a value can't be restored."""
    columns = _load(data, buffers)
    if type(columns) is not tuple:
        raise RunError(f"expected encoded columns, found {type(columns).__name__}: the data is not that of a block")
    return columns


def explain_unpicklable(value: object) -> str:
    """Which part of `value` can't be pickled, and why: `value.cache["a"].lock, a lock: cannot pickle …`.

    Follows the members of lists, tuples, sets and dicts, and the pickled state of objects, down to the innermost part
    that fails.
    """
    path, part, error = "value", value, _failure(value)
    if error is None:
        return f"{shorten(value)} can be pickled"
    on_path = [part]
    while len(on_path) < _MAX_DEPTH:
        for step, child in _parts(part):
            if not any(child is above for above in on_path) and (child_error := _failure(child)) is not None:
                path, part, error = path + step, child, child_error
                on_path.append(child)
                break
        else:
            break
    return f"{path}, {shorten(part, 60)} of type {type(part).__name__}: {error}"


# --- Pickling with coders ---------------------------------------------------------------------------------------------

_coders: Final[dict[type[Any], Coder[Any]]] = {}

_ALWAYS_BUILTIN: Final = frozenset(
    {int, float, complex, str, bytes, bool, type(None), tuple, list, dict, set, frozenset, bytearray, type}
    | {type(lambda: None), type(len), type(...), type(NotImplemented), object}
)
"""Types that pickle encodes itself, without consulting a dispatch table."""


_MIN_OUT_OF_BAND: Final = 16 << 10
"""Bytes. Copying a smaller buffer costs no more than managing it separately."""


def _dump(
    value: object,
    columns: tuple[object, ...] = (),
    buffer_callback: _BufferCallback | None = None,
    reducers: Reducers = _NO_REDUCERS,
) -> bytes:
    try:
        return _dump_raw(value, buffer_callback, reducers)
    except MemoryError:
        raise
    except Exception as error:  # pickle raises several kinds, and a class's __getstate__ may raise any
        elements = (element for column in columns if isinstance(column, list) for element in column)
        culprit = next((element for element in elements if _failure(element, reducers) is not None), value)
        raise PicklingError(
            f"{shorten(culprit)} can't be sent between steps: {explain_unpicklable(culprit)}; omit that part "
            "(__getstate__), use plain data as the element, or register a coder for its type"
        ) from error


def _dump_raw(
    value: object, buffer_callback: _BufferCallback | None = None, reducers: Reducers = _NO_REDUCERS
) -> bytes:
    table = {**copyreg.dispatch_table, **dict.fromkeys(_coders, _reduce), **reducers} if _coders or reducers else None
    return dumps(value, buffer_callback=buffer_callback, table=table)


def _reduce(value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    cls = type(value)
    return _rebuild, (cls, _coders[cls].encode(value))


def _rebuild(cls: type[Any], data: bytes) -> Any:
    coder = _coders.get(cls)
    if coder is None:
        raise RunError(f"no coder for {cls.__module__}.{cls.__qualname__} is registered in the process reading a value")
    return coder.decode(data)


def _load(data: bytes | bytearray | memoryview, buffers: Iterable[bytes | bytearray | memoryview] = ()) -> Any:
    try:
        return pickle.loads(data, buffers=buffers)
    except (RunError, MemoryError):
        raise
    except Exception as error:
        raise RunError(
            f"an encoded element can't be decoded: {type(error).__name__}: {shorten(str(error))}; either the "
            "data is corrupt, or a class's pickled form does not fit its __init__, __setstate__ or __reduce__"
        ) from error


# --- Finding the part that can't be pickled ---------------------------------------------------------------------------

_MAX_DEPTH: Final = 50


def _failure(value: object, reducers: Reducers = _NO_REDUCERS) -> str | None:
    try:
        _dump_raw(value, reducers=reducers)
    except RecursionError:
        return "it is nested too deeply"
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """The parts of `value` that pickle writes, each with its access path in Python's notation."""
    match value:
        case dict():
            for key, member in value.items():
                yield f", its key {shorten(key, 40)}", key
                yield f"[{shorten(key, 40)}]", member
        case list() | tuple():
            for index, member in enumerate(value):
                yield f"[{index}]", member
        case set() | frozenset():
            for member in value:
                yield ", its member", member
    if type(value) not in _ALWAYS_BUILTIN and type(value) not in _coders:
        yield from _pickled_state(value)


def _pickled_state(value: object) -> Iterator[tuple[str, object]]:
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:
        return  # no part of `value` is the cause, but `value` itself
    if isinstance(reduced, str):
        return
    match reduced[2] if len(reduced) > 2 else None:
        case dict() as attributes:
            yield from _named(attributes)
        case (None | dict() as attributes, dict() as slots):
            yield from _named(attributes or {})
            yield from _named(slots)
        case list() as fields if dataclasses.is_dataclass(value):  # the state of a frozen dataclass with slots
            yield from _named(dict(zip([field.name for field in dataclasses.fields(value)], fields)))
        case None:
            pass
        case state:
            yield ", its __getstate__()", state
    for argument in reduced[1]:
        yield ", an argument of its __reduce__", argument


def _named(attributes: dict[str, object]) -> Iterator[tuple[str, object]]:
    return ((f".{name}", child) for name, child in attributes.items())
