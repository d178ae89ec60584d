"""Vertex programs over arrays: the functions of a Pregel program, called once a round for all active edges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from tidegate.graph.array_loop import ArrayProgram
from tidegate.graph.arrays import Column, GraphArrays, Numbers
from tidegate.graph.edges import Edge, check_function
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.user_code.user_fn import name_of

COMBINERS: Final[dict[Any, np.ufunc]] = {min: np.minimum, max: np.maximum, sum: np.add}
"""What messages in arrays can be combined by, with what computes it."""


EXACT: Final = 2**53
"""Up to here every integer is a float."""

_TEXTS: Final = frozenset("US")
"""The kinds of arrays of text and of bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Ways:
    """The ways along edges, in the order of their targets."""

    graph: GraphArrays
    sources: Numbers
    targets: Numbers
    source_ids: npt.NDArray[Any]
    target_ids: npt.NDArray[Any]
    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class VertexStates:
    """The state of each vertex, and which vertices are active: those whose state the last round has changed."""

    states: npt.NDArray[Any]
    active: npt.NDArray[np.bool_]

    @property
    def again(self) -> bool:
        return bool(self.active.any())


@dataclass(frozen=True, slots=True)
class ArrayPregel(ArrayProgram[Ways, VertexStates]):
    """Active vertices send messages along their edges; those that get some are updated."""

    title: ClassVar[str] = "pregel"

    send: Callable[[Any, Edge[Any, Any]], Any]
    combine: Any
    update: Callable[[Any, Any], Any]
    start: Callable[[Any, Any], Any] | None

    def constants(self, graph: GraphArrays) -> Ways:
        return _ways(graph, graph.edge_values)

    def begin(self, constants: Ways) -> VertexStates:
        graph = constants.graph
        values = _array([None] * graph.size if graph.vertex_values is None else graph.vertex_values)
        states = values if self.start is None else np.asarray(self.start(_array(graph.ids), values.copy()))
        if states.shape[:1] != (graph.size,):
            what = "the values of the vertices" if self.start is None else f"what {name_of(self.start)} returned"
            raise ValueError(f"{what} must have one entry for each of {graph.size} vertices, not {states.shape}")
        return VertexStates(states, np.ones(graph.size, bool))

    def step(self, state: VertexStates, constants: Ways) -> VertexStates:
        at: Any = slice(None) if state.active.all() else np.flatnonzero(state.active[constants.sources])
        targets = constants.targets[at]
        active = np.zeros(len(state.states), bool)
        if not len(targets):
            return VertexStates(state.states, active)
        edges = Edge(constants.source_ids[at], constants.target_ids[at], constants.values[at])
        messages = np.asarray(self.send(state.states[constants.sources[at]], edges))
        if messages.shape[:1] != targets.shape:
            raise ValueError(
                f"{name_of(self.send)} must return a message for each of {len(targets)} edges, not an array of the "
                f"shape {messages.shape}"
            )
        begins = np.flatnonzero(np.diff(targets, prepend=-1))
        receivers = targets[begins]
        before = state.states[receivers]
        combined = _combined(COMBINERS[self.combine], messages, begins)
        after = np.asarray(self.update(before.copy(), combined))  # which it may change
        if after.shape[:1] != receivers.shape:
            raise ValueError(
                f"{name_of(self.update)} must return a state for each of {len(receivers)} vertices, not an array of "
                f"the shape {after.shape}"
            )
        states = state.states.astype(_common(state.states, after))
        states[receivers] = after
        changed = (after != before) & ((after == after) | (before == before))  # NaN equals NaN
        active[receivers] = changed.reshape(len(receivers), -1).any(axis=1)
        return VertexStates(states, active)

    def result(self, state: VertexStates, constants: Ways) -> Iterable[tuple[Any, Any]]:
        states = list(state.states) if state.states.ndim > 1 else state.states.tolist()
        return zip(constants.graph.listed_ids(), states)


@dataclass(frozen=True, slots=True)
class ShortestPaths(ArrayProgram[Ways, VertexStates]):
    """The least sum of weights on the way from `source` to each vertex that can be reached."""

    title: ClassVar[str] = "ShortestPaths"

    source: Any
    weighted: bool
    edges: int
    """How many edges each way may become longer by in a round."""

    def constants(self, graph: GraphArrays) -> Ways:
        weights = graph.weights("shortest_paths") if self.weighted else np.ones(len(graph.sources))
        negative = np.flatnonzero(~(weights >= 0))
        if len(negative):
            raise ValueError(f"shortest_paths takes weights of at least 0: {graph.shown_edge(negative[0])}")
        return _ways(graph, weights)

    def begin(self, constants: Ways) -> VertexStates:
        try:
            number = constants.graph.listed_ids().index(self.source)
        except ValueError:
            raise ValueError(f"shortest_paths: the graph has no vertex {shorten(self.source, 40)}") from None
        active = np.zeros(constants.graph.size, bool)
        active[number] = True
        return VertexStates(np.where(active, 0.0, np.inf), active)

    def step(self, state: VertexStates, constants: Ways) -> VertexStates:
        for _ in range(self.edges):
            if not state.again:
                break
            with np.errstate(over="ignore"):  # there may be a shorter way
                state = _RELAX.step(state, constants)
        return state

    def result(self, state: VertexStates, constants: Ways) -> Iterator[tuple[Any, float]]:
        before, lengths = state.states[constants.sources], np.asarray(constants.values, np.float64)
        with np.errstate(over="ignore"):
            beyond = np.isinf(before + lengths) & np.isfinite(before) & np.isfinite(lengths)
        if (beyond & np.isinf(state.states[constants.targets])).any():
            raise ValueError(
                f"shortest_paths: the shortest way to a vertex is longer than any float, {np.finfo(float).max:.2g}: "
                "give lengths in a larger unit"
            )
        pairs = zip(constants.graph.listed_ids(), state.states.tolist())
        return (pair for pair in pairs if pair[1] != np.inf)


def check_pregel(send: Any, combine: Any, update: Any, start: Any, changed: Any) -> None:
    """Raise BuildError unless a Pregel program of these functions can run over arrays."""
    check_function("pregel", "send", send)
    check_function("pregel", "update", update)
    if start is not None:
        check_function("pregel", "start", start)
    if changed is not None:
        raise BuildError("pregel(arrays=True) compares states by their elements: it takes no changed=…")
    if combine not in list(COMBINERS):  # a list has no need of a hash
        raise BuildError(f"pregel(arrays=True) combines messages by min, max or sum, not by {shorten(combine)}")


def _longer(distances: npt.NDArray[Any], edges: Edge[Any, Any]) -> Any:
    return distances + edges.value


_RELAX: Final = ArrayPregel(_longer, min, np.minimum, None)


def _ways(graph: GraphArrays, edge_values: Column | None) -> Ways:
    sources, targets, edge = graph.ways()
    order = np.argsort(targets, kind="stable")
    sources, targets = sources[order], targets[order]
    ids = _array(graph.ids)
    values = _array([None] * len(graph.sources) if edge_values is None else edge_values)
    shown = ids[sources], ids[targets], values[edge][order]
    for each in shown:
        each.setflags(write=False)  # the author's functions get them again in each round
    return Ways(graph, sources, targets, *shown)


def _combined(combine: np.ufunc, messages: npt.NDArray[Any], begins: Numbers) -> npt.NDArray[Any]:
    """The messages from each beginning to the next combined into one."""
    if combine is np.add and messages.dtype.kind in "iu":
        return _added(messages, begins)
    if messages.dtype.kind not in _TEXTS:
        return np.asarray(combine.reduceat(messages, begins))
    found = combine.reduceat(messages.astype(object), begins)  # NumPy compares texts, but finds no least one
    return np.asarray(found.astype(messages.dtype.kind))


def _added(messages: npt.NDArray[Any], begins: Numbers) -> npt.NDArray[Any]:
    """The sums of integers: as Python's integers if NumPy's, which overflow in silence, could not hold them all."""
    found = np.add.reduceat(messages, begins)
    largest = max(-int(messages.min()), int(messages.max()))
    held = np.iinfo(found.dtype)
    if largest * int(np.diff(begins, append=len(messages)).max()) <= held.max:
        return np.asarray(found)
    exact = np.add.reduceat(messages.astype(object), begins)
    return np.asarray(found if held.min <= exact.min() and exact.max() <= held.max else exact)


def _common(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> np.dtype[Any]:
    """The type of an array that holds the values of both as they are."""
    if one.dtype == other.dtype:
        return one.dtype
    kinds = {one.dtype.kind, other.dtype.kind}
    if len(kinds) > 1 and kinds & {*_TEXTS, "T"}:  # numbers would become text
        return np.dtype(object)
    common = np.result_type(one, other)
    return common if all(_fit(each, common) for each in (one, other)) else np.dtype(object)


def _fit(values: npt.NDArray[Any], type_: np.dtype[Any]) -> bool:
    """Whether integers stay what they are as that type; other values do."""
    if values.dtype.kind not in "iu" or type_.kind not in "fc" or not values.size:
        return True
    return bool(values.min() >= -EXACT and values.max() <= EXACT)


def _array(values: Any) -> npt.NDArray[Any]:
    """Values as an array of one dimension: of numbers or texts where all are, and NumPy has them as they are, else of
    objects."""
    if isinstance(values, np.ndarray):
        return values
    kinds = set(map(type, values))
    if kinds and (kinds <= {int, float, bool} or kinds == {str}):
        made = np.array(values)
        if _are(made, values, kinds):
            return made
    objects = np.empty(len(values), object)
    for at, value in enumerate(values):  # an assignment at once would take arrays apart
        objects[at] = value
    return objects


def _are(made: npt.NDArray[Any], values: Any, kinds: set[type]) -> bool:
    """Whether an array has the values, of those types, that it was made of: NumPy rounds large integers among floats,
    and drops NUL at the end of a text."""
    if made.dtype.kind == "f" and float not in kinds:  # of integers that no one type of integers has
        return False
    if made.dtype.kind not in "fU" or kinds == {float}:
        return True
    return all(new == old or old != old for new, old in zip(made.tolist(), values, strict=True))
