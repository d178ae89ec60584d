"""Fingerprints: a digest of everything that determines the behaviour of each step, equal in every process.

They include the code of a step and the values it captures, but not the file and line at which it was written, nor the
way its code is pickled.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from itertools import islice
from typing import Any, Final

from tidegate.sdk.moved import MOVES
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.portable.model import Node, NodeBase, Pipeline, TypeRef
from tidegate.sdk.portable.pickle_graph import digest_of
from tidegate.sdk.portable.values import Values
from tidegate.sdk.user_code.by_value import pickle_by_value
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.sealing import import_ref
from tidegate.sdk.user_code.user_fn import ImportRef, Payload, UserFn

_BATCH: Final = 4096
_NOT_IN_DIGEST: Final = frozenset(
    {
        *("label", "composite", "numbered", "commit_by", "forks_safely", "replayable", "rate_limit", "discovers"),
        *("divides", "cogroups", "needs", "takes_columns", "takes_conditions", "stamps_by", "state_of", "pure"),
    }
)
"""The fields of nodes that are names, or say only how a step is run."""

_ADDED_TO_NODES: Final = frozenset(
    {"takes_columns", "takes_conditions", "columns", "conditions", "stamps_by", "state_of", "pure"}
)
"""The fields that nodes in loops have got since the first fingerprints of these; all of them say how a step is run."""

_ADDED_TO_VARIABLES: Final = frozenset({"form", "drives"})
"""The fields of loop variables that count unless they have their defaults: they were added later."""


def fingerprint(pipeline: Pipeline) -> dict[str, str]:
    """The digests of the parts of a pipeline, by the names of the parts in messages."""
    parts = {"the version of Python": pipeline.environment.python, "the pipeline's name": digest(pipeline.name)}
    for node in pipeline.nodes:
        parts[f"step {node.label!r}"] = _step(pipeline, node)
    if pipeline.coders:
        parts["the coders"] = digest(pipeline.coders)
    return parts


def digest(value: Any) -> str:
    """The digest of a value: equal values have equal digests in every process."""
    state = blake2b(digest_size=16)
    for piece in _encoded(value):
        state.update(len(piece).to_bytes(8, "big"))
        state.update(piece)
    return state.hexdigest()


def _step(pipeline: Pipeline, node: Node) -> str:
    outputs = [pipeline.collection(out.collection) for out in node.outputs]
    made = [(out.id, out.bounded, out.windowing) for out in outputs]
    return digest((*_fields(node), made))


def _fields(node: Node) -> Iterator[tuple[str, Any]]:
    """The names and values of the fields that determine what a step computes.

    Fields after `kind` have been added since the first fingerprints were stored. They count unless they have their
    default values, so that a job of before keeps its fingerprint.
    """
    added = False
    for field in fields(node):
        value = getattr(node, field.name)
        if field.name not in _NOT_IN_DIGEST and not (added and value == field.default):
            yield field.name, value
        added = added or field.name == "kind"


def _encoded(value: Any) -> Iterator[bytes]:
    """A value as a sequence of byte strings."""
    match value:
        case None | bool() | int() | float() | str() | bytes() if type(value).__module__ == "builtins":
            yield f"{type(value).__name__}:{value!r}".encode(errors="surrogatepass")
        case Where() | TypeRef():  # neither affects what is computed
            return
        case UserFn():
            yield _code(value)
        case Values():
            yield from _values(value)
        case enum.Enum():
            name = MOVES.original(type(value).__module__, type(value).__qualname__)[1]
            yield f"{name}.{value.name}".encode()
        case tuple() | list():
            yield f"{type(value).__name__} of {len(value)}".encode()
            for item in value:
                yield from _encoded(item)
        case Mapping():
            yield b"mapping"
            yield from _encoded(sorted((digest(key), digest(item)) for key, item in value.items()))
        case set() | frozenset():
            yield b"set"
            yield from _encoded(sorted(map(digest, value)))
        case _ if (
            is_dataclass(value) and not isinstance(value, type) and type(value).__module__.startswith("tidegate.")
        ):
            yield MOVES.original(type(value).__module__, type(value).__qualname__)[1].encode()
            for field in fields(value):
                item = getattr(value, field.name)
                added = isinstance(value, LoopVariable) and field.name in _ADDED_TO_VARIABLES
                if isinstance(value, NodeBase) and field.name in _ADDED_TO_NODES:
                    continue
                if field.compare and not (added and item == field.default):
                    yield field.name.encode()
                    yield from _encoded(item)
        case _:
            yield _pickled(value)


def _code(fn: UserFn) -> bytes:
    match fn.code or import_ref(fn.load()):
        case ImportRef(module=module, name=name):
            return ":".join(MOVES.original(module, name)).encode()
        case Payload(data=data):
            return _of_pickle(data)
        case _:
            return _pickled(fn.load())


def _values(values: Values) -> Iterator[bytes]:
    """The elements of a Create. Plain ones are marshalled, which is much faster than pickling."""
    import marshal

    if values.data is not None:
        yield _of_pickle(values.data)
        return
    elements = iter(values.load())
    while batch := list(islice(elements, _BATCH)):
        try:
            yield marshal.dumps(batch, 0)  # version 0: sets and equal strings give the same bytes in every process
        except ValueError:
            yield _pickled(batch)


def _pickled(value: Any) -> bytes:
    return _of_pickle(pickle_by_value(value)[0])


def _of_pickle(data: bytes) -> bytes:
    try:
        return digest_of(data)
    except (ValueError, AttributeError, IndexError, KeyError):  # not a pickle that `digest_of` can read
        return blake2b(data, digest_size=16).digest()
