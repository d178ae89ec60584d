"""The vertex programs of a graph: what vertices send, and what they make of what they get."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tidegate.graph.array_loop import need_numpy
from tidegate.graph.edges import Edge
from tidegate.graph.parts import GraphParts
from tidegate.graph.vertex_programs import GatherSumApply, Pregel, VertexProgram
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives.iteration import Until

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E")
S = TypeVar("S")
M = TypeVar("M")


class GraphPrograms(GraphParts[K, V, E]):
    """Programs of functions that are called for vertices and edges, in rounds."""

    def pregel(
        self,
        send: Callable[[S, Edge[K, E]], M | None],
        combine: Any,
        update: Callable[[S, M], S],
        start: Callable[[K, V], S] | None = None,
        *,
        changed: Callable[[S, S], object] | None = None,
        arrays: bool = False,
        rounds: int | None = None,
        strict: bool = False,
        name: str | None = None,
    ) -> PCollection[tuple[K, S]]:
        """`(id, state)` of each vertex, after rounds in which vertices send messages along their edges.

        `start(id, value)` is a vertex's state before the first round; without it, its value. In the first round all
        vertices are active, later those whose state the round before has changed. `send(state, edge)` is the message
        that an active vertex sends over an edge that leaves it, or None. `combine`, any combiner, makes one of the
        messages that a vertex gets, and `update(state, message)` is its new state. States have changed if they are
        unequal; `changed(old, new)` says otherwise. It is over when no vertex is active, or after `rounds` (10,000,
        unless given); with `strict` the run fails if vertices are then active.

        With `arrays` each function is called once a round, with NumPy arrays: `send(states, edges)` with the state of
        the source of each active edge, and an `Edge` of arrays, and `update(states, messages)` with those of vertices
        that got messages. `start(ids, values)` gets all vertices, `combine` is `min`, `max` or `sum`, and each edge
        carries a message.
        """
        if not arrays:
            return self._program(Pregel(send, combine, update, start, changed, rounds, strict, name))
        need_numpy("pregel(arrays=True)")
        from tidegate.graph.array_programs import ArrayPregel, check_pregel

        check_pregel(send, combine, update, start, changed)
        return self._loop(ArrayPregel(send, combine, update, start), Any, rounds, strict=strict, name=name)

    def scatter_gather(
        self,
        scatter: Callable[[S, Edge[K, E]], M | None],
        gather: Callable[[S, list[M]], S],
        start: Callable[[K, V], S] | None = None,
        *,
        changed: Callable[[S, S], object] | None = None,
        rounds: int | None = None,
        strict: bool = False,
        name: str | None = None,
    ) -> PCollection[tuple[K, S]]:
        """`pregel` whose vertices get all messages in a list, in any order: `gather(state, messages)` is the new state
        of a vertex that got some."""
        program = Pregel(scatter, list, gather, start, changed, rounds, strict, name)
        program.title = "scatter_gather"
        return self._program(program)

    def gather_sum_apply(
        self,
        gather: Callable[[S, Edge[K, E]], M | None],
        sum: Any,
        apply: Callable[[S, M | None], S],
        start: Callable[[K, V], S] | None = None,
        *,
        rounds: int | None = None,
        until: Until | Callable[..., PCollection[Any]] | None = None,
        strict: bool = False,
        name: str | None = None,
    ) -> PCollection[tuple[K, S]]:
        """`(id, state)` of each vertex, after rounds in which every vertex looks at all that have edges to it.

        `gather(state, edge)` is what a vertex contributes to the target of an edge that leaves it, or None. `sum`, any
        combiner, makes one of the contributions to a vertex, and `apply(state, total)` is its new state; `total` is
        None if there were none. It ends as `tg.Iterate` does, after `rounds` or with `until`, such as
        `tg.Settled(by=1e-6)`; one of them is needed.
        """
        return self._program(GatherSumApply(gather, sum, apply, start, rounds, until, strict, name))

    def _program(self, program: VertexProgram) -> PCollection[Any]:
        program.directed = self.directed
        result: PCollection[Any] = self._apply(program, self.vertices, self.edges)
        return result
