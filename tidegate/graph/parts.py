"""The collections of a graph, and how algorithms and programs are applied to them."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from tidegate.graph.array_loop import ArrayLoop, ArrayProgram
from tidegate.graph.building import Parts, key_type
from tidegate.graph.edges import Edge
from tidegate.sdk.errors import BuildError
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import pair_type
from tidegate.sdk.steps.transform import Transform

K = TypeVar("K")
V = TypeVar("V")
E = TypeVar("E")


class GraphParts(Generic[K, V, E]):
    """Edges, vertices, and the arrays of both, which are made only if an algorithm reads them."""

    edges: PCollection[Edge[K, E]]
    """The edges, as `Edge`."""

    vertices: PCollection[tuple[K, V]]
    """All vertices, as pairs `(id, value)`."""

    directed: bool
    """Whether an edge leads only from its source to its target."""

    def __init__(self, parts: Parts, directed: bool) -> None:
        self.edges, self.vertices, self._arrays = parts
        self.directed = directed

    def _loop(
        self,
        program: ArrayProgram[Any, Any],
        value_type: Any,
        rounds: int | None = None,
        *,
        ends: bool = True,
        strict: bool = False,
        name: str | None = None,
    ) -> PCollection[Any]:
        """The `(id, value)` pairs that a program over arrays emits."""
        if strict and not ends:
            raise BuildError("strict fails a run whose values have not settled in time: give by=…, too")
        type_ = pair_type(key_type(self.vertices), value_type)
        loop = ArrayLoop(program, type_, rounds, ends=ends, strict=strict, name=name)
        result: PCollection[Any] = self._arrays.pipeline.apply(loop, self._arrays)
        return result

    def _apply(self, transform: Transform, *inputs: PCollection[Any]) -> Any:
        return self.edges.pipeline.apply(transform, inputs)
