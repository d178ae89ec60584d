"""Coders: how values become bytes, where they cross an exchange or are spilled to disk.

Elements travel as columns, one pickle a block: 25 to 60 ns per value both ways, against several times that row by
row. A type that pickle can't handle, or that is to be a key, gets a coder of its own: `tg.register_coder`.

What is registered is data: `registered()` is sealed with the pipeline, `install` makes it hold in a worker. Nothing
is registered with pickle at large: only what Tidegate itself encodes sees these coders.

Spilled columns are not compressed: zlib at level 1 takes 80 to 200 ns per value, several times what encoding does.
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
    """Values of one type as bytes and back: `decode(encode(v)) == v`.

    `deterministic` promises that equal values give equal bytes, and unequal values different ones, in every process
    and run. Only then can values of the type be keys.
    """

    deterministic: bool = False

    @abstractmethod
    def encode(self, value: T) -> bytes:
        """The bytes of `value`."""

    @abstractmethod
    def decode(self, data: bytes) -> T:
        """The value that gave `data`."""


class PickleCoder(Coder[Any]):
    """Anything that pickle, or a registered coder, can carry. Not deterministic: equal values may pickle unequally."""

    def encode(self, value: Any) -> bytes:
        """The pickle of `value`; PicklingError, naming the part at fault, if it has none."""
        return _dump(value)

    def decode(self, data: bytes) -> Any:
        """The value pickled in `data`; RunError if it can't be rebuilt."""
        return _load(data)


CoderRegistry: TypeAlias = "tuple[tuple[type[Any], Coder[Any]], ...]"
Reducers: TypeAlias = Mapping[type[Any], Callable[[Any], tuple[Any, ...]]]
"""What pickle writes for an instance of each class, in place of its `__reduce__`."""
_Beside: TypeAlias = Callable[[pickle.PickleBuffer], bool]
_NO_REDUCERS: Final[Reducers] = {}


def register_coder(cls: type[T], coder: Coder[T]) -> None:
    """Encode values of exactly the type `cls` with `coder`, wherever pipelines sealed from now on carry them.

    A deterministic coder also makes them keys. Registering a type again replaces its coder. BuildError for a type
    that pickle never asks about (int, list, a function…), and for a deterministic coder on a type whose values
    equal those of another, as a subclass of str.
    """
    if not isinstance(cls, type) or not isinstance(coder, Coder):
        raise BuildError(f"register_coder takes a class and an instance of Coder, not {shorten(cls)}, {shorten(coder)}")
    if cls in _PICKLED_BY_NATURE:
        raise BuildError(f"{cls.__name__} can't have a coder of its own: wrap its values in a class and register that")
    if coder.deterministic:
        _keys.encode_with(cls, coder.encode)
    else:
        _keys.forget_encoding(cls)
    _coders[cls] = coder


def registered() -> CoderRegistry:
    """What is registered now, in the order of registration: sealed with a pipeline."""
    return tuple(_coders.items())


def install(registry: CoderRegistry) -> None:
    """Make exactly `registry` hold in this process: for a worker, before it decodes or groups anything.

    What was registered before is forgotten, so that a worker used again for another job encodes keys as a fresh one.
    """
    for cls in _coders:
        _keys.forget_encoding(cls)
    _coders.clear()
    for cls, coder in registry:
        register_coder(cls, coder)


def encode_columns(columns: tuple[object, ...], reducers: Reducers = _NO_REDUCERS) -> bytes:
    """The columns of a block (lists, or one value that stands for all) as one pickle.

    Values that occur more than once are written once and are one object again when read. PicklingError, naming the
    part at fault, if something in a column can't be pickled.
    """
    return _dump(columns, columns, reducers=reducers)


def encode_columns_apart(columns: tuple[object, ...]) -> tuple[bytes, list[memoryview]]:
    """As `encode_columns`, but large buffers that a value offers (arrays do) are not copied: they come beside it."""
    apart: list[memoryview] = []

    def beside(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < _LEAST_APART:
            return True  # in the pickle, as if there were no other place
        apart.append(raw)
        return False

    return _dump(columns, columns, beside), apart


def decode_columns(
    data: bytes | bytearray | memoryview, apart: Iterable[bytes | bytearray | memoryview] = ()
) -> tuple[Any, ...]:
    """What `encode_columns`, or with the buffers in `apart` `encode_columns_apart`, was given; values keep those
    buffers. RunError if `data` is damaged or a value can't be rebuilt."""
    columns = _load(data, apart)
    if type(columns) is not tuple:
        raise RunError(f"encoded columns were expected, found {type(columns).__name__}: the data is not a block's")
    return columns


def explain_unpicklable(value: object) -> str:
    """Which part of `value` can't be pickled, and why: `value.cache["a"].lock, a lock: cannot pickle …`.

    Follows the members of lists, tuples, sets and dicts, and what an object's pickled state holds, down to the
    innermost part that fails.
    """
    path, part, error = "value", value, _failure(value)
    if error is None:
        return f"{shorten(value)} can be pickled"
    on_path = [part]
    while len(on_path) < _DEEPEST_PATH:
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

# Pickle writes these itself and consults no table for them.
_PICKLED_BY_NATURE: Final = frozenset(
    {int, float, complex, str, bytes, bool, type(None), tuple, list, dict, set, frozenset, bytearray, type}
    | {type(lambda: None), type(len), type(...), type(NotImplemented), object}
)


_LEAST_APART: Final = 16 << 10
"""Copying less costs no more than the bookkeeping of a buffer of its own."""


def _dump(
    value: object,
    columns: tuple[object, ...] = (),
    beside: _Beside | None = None,
    reducers: Reducers = _NO_REDUCERS,
) -> bytes:
    try:
        return _dump_raw(value, beside, reducers)
    except MemoryError:
        raise
    except Exception as error:  # pickle raises four kinds of its own, a class's __getstate__ whatever it likes
        elements = (element for column in columns if isinstance(column, list) for element in column)
        culprit = next((element for element in elements if _failure(element, reducers) is not None), value)
        raise PicklingError(
            f"{shorten(culprit)} can't travel between steps: {explain_unpicklable(culprit)}; leave that part out "
            "(__getstate__), make the element of plain data, or register a coder for its type"
        ) from error


def _dump_raw(value: object, beside: _Beside | None = None, reducers: Reducers = _NO_REDUCERS) -> bytes:
    table = {**copyreg.dispatch_table, **dict.fromkeys(_coders, _reduce), **reducers} if _coders or reducers else None
    return dumps(value, beside=beside, table=table)


def _reduce(value: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    cls = type(value)
    return _rebuild, (cls, _coders[cls].encode(value))


def _rebuild(cls: type[Any], data: bytes) -> Any:
    coder = _coders.get(cls)
    if coder is None:
        raise RunError(f"no coder is registered for {cls.__module__}.{cls.__qualname__} where its values are read")
    return coder.decode(data)


def _load(data: bytes | bytearray | memoryview, apart: Iterable[bytes | bytearray | memoryview] = ()) -> Any:
    try:
        return pickle.loads(data, buffers=apart)
    except (RunError, MemoryError):
        raise
    except Exception as error:
        raise RunError(
            f"an element that was encoded can't be rebuilt: {type(error).__name__}: {shorten(str(error))}; either the "
            "data is damaged, or a class's pickled form does not fit its __init__, __setstate__ or __reduce__"
        ) from error


# --- Looking for the part at fault ------------------------------------------------------------------------------------

_DEEPEST_PATH: Final = 50


def _failure(value: object, reducers: Reducers = _NO_REDUCERS) -> str | None:
    try:
        _dump_raw(value, reducers=reducers)
    except RecursionError:
        return "it is nested too deeply"
    except Exception as error:
        return str(error) or type(error).__name__
    return None


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """What pickle writes of `value`, each part with the step that leads to it, in Python's own notation."""
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
    if type(value) not in _PICKLED_BY_NATURE and type(value) not in _coders:
        yield from _pickled_state(value)


def _pickled_state(value: object) -> Iterator[tuple[str, object]]:
    try:
        reduced = value.__reduce_ex__(5)
    except Exception:
        return  # it is itself what can't be pickled
    if isinstance(reduced, str):
        return
    match reduced[2] if len(reduced) > 2 else None:
        case dict() as attributes:
            yield from _named(attributes)
        case (None | dict() as attributes, dict() as slots):
            yield from _named(attributes or {})
            yield from _named(slots)
        case list() as fields if dataclasses.is_dataclass(value):  # how a frozen dataclass with slots does it
            yield from _named(dict(zip([field.name for field in dataclasses.fields(value)], fields)))
        case None:
            pass
        case state:
            yield ", its __getstate__()", state
    for argument in reduced[1]:
        yield ", what its __reduce__ passes on", argument


def _named(attributes: dict[str, object]) -> Iterator[tuple[str, object]]:
    return ((f".{name}", child) for name, child in attributes.items())
