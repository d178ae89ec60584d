"""A graph as arrays: vertices by consecutive numbers, and the columns of all edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from itertools import chain
from numbers import Real
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from tidegate.graph.edges import Edge
from tidegate.sdk.data.keys import check_keys, key_bytes
from tidegate.sdk.errors import shorten

Numbers: TypeAlias = npt.NDArray[np.intp]
"""Vertices by their numbers."""

Column: TypeAlias = npt.NDArray[Any] | list[Any]

Block: TypeAlias = tuple[Column, Column, Column | None]
"""Edges: their sources, targets, and values, if they have any."""

VertexBlock: TypeAlias = tuple[Column, Column | None]
"""Vertices: their ids, and values, if they have any."""

SPARSE = 4
"""Ids are numbered by a table of all integers between the least and the greatest, up to so many for each mention."""

_TIMES: Final = {
    "M": (date, "dates", "datetime64[D]"),
    "m": (timedelta, "timedeltas", "timedelta64[us]"),
}
"""What ids are that NumPy has as times or as lengths of time. A time of day has no time zone there, so it can't be a
key, and of nanoseconds, or of months, Python has no more than a number."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class GraphArrays:
    """A graph whose vertices have the numbers 0 to `size` - 1, in the order of their ids."""

    ids: Column
    sources: Numbers
    targets: Numbers
    edge_values: Column | None
    vertex_values: list[Any] | None
    directed: bool

    @property
    def size(self) -> int:
        """The number of vertices."""
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<graph of {self.size} vertices and {len(self.sources)} edges>"

    def listed_ids(self) -> list[Any]:
        """The ids as Python objects, by number."""
        return _listed(self.ids)

    def weights(self, of: str) -> npt.NDArray[np.float64]:
        """The values of the edges as numbers, or 1 if no edge has one; ValueError, naming `of`, otherwise."""
        if self.edge_values is None:
            return np.ones(len(self.sources))
        values = self.edge_values
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            values = _listed(values)
            wrong = next((at for at, value in enumerate(values) if not _is_float(value)), None)
            if wrong is not None:
                raise ValueError(
                    f"{of} takes numbers as the values of edges: {self.shown_edge(wrong)}. With weighted=False each "
                    "edge counts as 1"
                )
        return np.asarray(values, np.float64)

    def shown_edge(self, at: int) -> str:
        """An edge, for messages."""
        source, target = (shorten(_listed(self.ids[number : number + 1])[0], 40) for number in self._ends(at))
        value = None if self.edge_values is None else _listed(self.edge_values[at : at + 1])[0]
        return f"the edge from {source} to {target} has the value {shorten(value, 40)}"

    def _ends(self, at: int) -> tuple[int, int]:
        return int(self.sources[at]), int(self.targets[at])

    def both_ways(self) -> tuple[Numbers, Numbers, Numbers]:
        """Sources and targets with each edge in both directions, loops in one, and which edge each is."""
        back = np.flatnonzero(self.sources != self.targets)
        return (
            np.concatenate([self.sources, self.targets[back]]),
            np.concatenate([self.targets, self.sources[back]]),
            np.concatenate([np.arange(len(self.sources)), back]),
        )

    def ways(self) -> tuple[Numbers, Numbers, Numbers | slice]:
        """Sources and targets of the ways along edges, both ways if the graph is undirected, and which edge each is."""
        return self.both_ways() if not self.directed else (self.sources, self.targets, slice(None))

    def neighbours(self) -> tuple[Numbers, Numbers]:
        """Pairs of different vertices that have an edge between them, each pair once in each direction, sorted."""
        between = self.sources != self.targets
        one, other = self.sources[between], self.targets[between]
        keys = np.unique(np.concatenate([one * self.size + other, other * self.size + one]))
        return keys // self.size, keys % self.size


def edge_block(edges: Sequence[Edge[Any, Any]]) -> Block:
    """Edges as columns."""
    sources, targets, values = zip(*edges)
    return _ids(sources), _ids(targets), None if _are_none(values) else _values(values)


def vertex_block(vertices: Sequence[tuple[Any, Any]]) -> VertexBlock:
    """Vertices as columns."""
    ids, values = zip(*vertices)
    return _ids(ids), None if _are_none(values) else list(values)


def edges_of(block: Block) -> Iterator[Edge[Any, Any]]:
    """The edges of a block."""
    sources, targets, values = block
    yield from map(
        Edge, _listed(sources), _listed(targets), _listed([None] * len(sources) if values is None else values)
    )


def vertices_of(block: VertexBlock) -> Iterator[tuple[Any, Any]]:
    """The vertices of a block."""
    ids, values = block
    yield from zip(_listed(ids), _listed([None] * len(ids) if values is None else values))


def given_edges(element: Any) -> Block:
    """An element of `Graph.from_arrays` as a block; ValueError unless it is two or three arrays of one length."""
    match element:
        case (np.ndarray() as sources, np.ndarray() as targets):
            _check_lengths(sources, targets)
            return _given_ids(sources, "sources"), _given_ids(targets, "targets"), None
        case (np.ndarray() as sources, np.ndarray() as targets, np.ndarray() as values):
            _check_lengths(sources, targets, values)
            return _given_ids(sources, "sources"), _given_ids(targets, "targets"), _unmasked(values, "values")
    raise ValueError(
        f"edges in arrays are (sources, targets) or (sources, targets, values), each a NumPy array, not "
        f"{shorten(element, 60)}"
    )


def given_vertices(element: Any) -> VertexBlock:
    """An element of the vertices of `Graph.from_arrays` as a block; ValueError unless it is one array, or two."""
    match element:
        case np.ndarray() as ids:
            _check_lengths(ids)
            return _given_ids(ids, "ids"), None
        case (np.ndarray() as ids, np.ndarray() as values):
            _check_lengths(ids, values)
            return _given_ids(ids, "ids"), _unmasked(values, "values")
    raise ValueError(
        f"vertices in arrays are an array of ids, or a pair of arrays, (ids, values), not {shorten(element, 60)}"
    )


def _check_lengths(*columns: npt.NDArray[Any]) -> None:
    shapes = [column.shape for column in columns]
    if len(shapes[0]) != 1 or len(set(shapes)) != 1:
        raise ValueError(f"the arrays of a block have one dimension, and the same length, not the shapes {shapes}")


def _given_ids(column: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """An array of ids; ValueError if Python has no values that are these ids, and can be keys."""
    if column.dtype.kind in _TIMES:
        kind, name, exact = _TIMES[column.dtype.kind]
        wrong = next((at for at, each in enumerate(column.tolist()) if type(each) is not kind), None)
        if wrong is not None:
            raise ValueError(
                f"the {what} of a block have the type {column.dtype}, and {column[wrong]} can't be an id: "
                f"give {name}, as in array.astype({exact!r}), or numbers, as in array.astype('int64')"
            )
    return _unmasked(column, what)


def _unmasked(column: npt.NDArray[Any], what: str) -> npt.NDArray[Any]:
    """An array without a mask; ValueError if there are entries that it hides."""
    if not isinstance(column, np.ma.MaskedArray):
        return column
    if np.ma.is_masked(column):
        raise ValueError(
            f"the {what} of a block are an array that masks some of its entries, and an edge or a vertex can't be "
            "left half out: leave masked entries out of all arrays of the block, or fill them with array.filled(value)"
        )
    return np.asarray(column.data)


def graph_arrays(_: object, edges: Sequence[Block], vertices: Sequence[VertexBlock], directed: bool) -> GraphArrays:
    """The graph of all blocks. ValueError if a vertex is given twice, with different values."""
    sources, targets = _joined([block[0] for block in edges]), _joined([block[1] for block in edges])
    given = _joined([block[0] for block in vertices])
    ids, (from_, to, own) = _numbered([sources, targets, given])
    values = None
    if any(block[2] is not None and len(block[0]) for block in edges):
        values = _joined([_none(len(block[0])) if block[2] is None else block[2] for block in edges])
    vertex_values: list[Any] | None = None
    if any(block[1] is not None and len(block[0]) for block in vertices):
        vertex_values = [None] * len(ids)
        pairs = chain.from_iterable(map(vertices_of, vertices))
        for number, (_, value) in zip(own.tolist(), pairs):
            vertex_values[number] = value
    twice = np.flatnonzero(np.bincount(own, minlength=len(ids)) > 1)
    if len(twice):
        raise ValueError(f"the vertex {shorten(_listed(ids[twice[0] : twice[0] + 1])[0], 40)} is given twice")
    return GraphArrays(ids, from_, to, values, vertex_values, directed)


def _numbered(columns: list[Column]) -> tuple[Column, list[Numbers]]:
    """All ids that occur, in order, and each column by their numbers."""
    filled = [column for column in columns if len(column)]
    if not filled:
        return np.empty(0, np.int64), [np.empty(0, np.intp) for _ in columns]
    if all(isinstance(column, np.ndarray) and column.dtype.kind == "i" for column in filled):
        return _numbered_integers([np.asarray(column, np.int64) for column in columns])
    listed = [_listed(column) for column in columns]
    known = _in_order(_distinct(listed))
    number = {id: at for at, id in enumerate(known)}
    return known, [np.fromiter(map(number.__getitem__, column), np.intp, len(column)) for column in listed]


def _distinct(columns: list[list[Any]]) -> list[Any]:
    """The ids that occur, each once; KeyEncodingError for one that can't be a key, as other steps raise it."""
    try:
        distinct = list(dict.fromkeys(chain.from_iterable(columns)))
    except TypeError:  # one of them is a list, say, which has no hash
        check_keys(chain.from_iterable(columns))
        raise
    check_keys(distinct)
    return distinct


def _numbered_integers(columns: list[npt.NDArray[np.int64]]) -> tuple[Column, list[Numbers]]:
    filled = [column for column in columns if len(column)]
    least = min(int(column.min()) for column in filled)
    span = max(int(column.max()) for column in filled) - least + 1
    if span > SPARSE * sum(map(len, columns)) + 1024:
        known = np.unique(np.concatenate(columns))
        return known, [np.searchsorted(known, column) for column in columns]
    places = [np.asarray(column - least if least else column, np.intp) for column in columns]
    occurs = np.zeros(span, bool)
    for column in places:
        occurs[column] = True
    if occurs.all():
        return np.arange(span) + least, places  # the end of arange(least, least + span) may exceed 64 bits
    numbers = np.cumsum(occurs) - 1
    return np.flatnonzero(occurs) + least, [numbers[column] for column in places]


def _in_order(ids: list[Any]) -> list[Any]:
    """Ids in an order that is the same in every run: their own, if they have one."""
    kinds = set(map(type, ids))
    if not (kinds <= {int, float, bool} or kinds <= {str} or kinds <= {bytes}):
        # Of some of these, such as sets, neither may be less, or they can't be compared: it is this order that counts.
        ids = sorted(ids, key=key_bytes)
    try:
        return sorted(ids)
    except Exception:  # those of an author's class may raise any
        return ids


def _ids(values: Sequence[Any]) -> Column:
    if set(map(type, values)) == {int}:
        try:
            return np.array(values, np.int64)
        except OverflowError:
            pass
    return list(values)


def _values(values: Sequence[Any]) -> Column:
    kinds = set(map(type, values))
    if kinds == {float}:
        return np.array(values, np.float64)
    return _ids(values)


def _are_none(values: Sequence[Any]) -> bool:
    """Whether all values are None; arrays among them are not compared."""
    return all(value is None for value in values)


def _is_float(value: Any) -> bool:
    """Whether a value is a number that a float can be."""
    try:
        # NumPy calls its lengths of time integers, in units of their own.
        number = isinstance(value, (Real, Decimal, np.bool_)) and not isinstance(value, np.timedelta64)
        return number and isinstance(float(value), float)
    except (OverflowError, ValueError):  # ValueError: a signaling NaN
        return False


def _none(count: int) -> Column:
    return [None] * count


def _joined(columns: Sequence[Column]) -> Column:
    """One column of all values, each as it is: arrays of several kinds, of which NumPy makes one, become a list."""
    filled = [column for column in columns if len(column)]
    if len(filled) < 2:
        return (*filled, *columns, [])[0]
    kinds = set(map(_kind, filled))
    if len(kinds) == 1 and None not in kinds:
        return np.concatenate(filled)
    return list(chain.from_iterable(map(_listed, filled)))


def _kind(column: Column) -> str | None:
    """What arrays have in common that can be joined without changing their values; None for a list."""
    if not isinstance(column, np.ndarray):
        return None
    return column.dtype.str if column.dtype.kind in _TIMES else column.dtype.kind


def _listed(column: Column) -> list[Any]:
    """The values of a column as Python objects, or as those of NumPy where Python has none that are the same."""
    if not isinstance(column, np.ndarray):
        return column
    listed: list[Any] = column.tolist()
    if column.dtype.kind in _TIMES and not all(isinstance(each, (date, timedelta)) for each in listed):
        return list(column)
    return listed
