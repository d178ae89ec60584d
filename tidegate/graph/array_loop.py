"""Algorithms over the arrays of a graph as loops: what each is made of, and the steps that run it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from tidegate.sdk.authoring.side_inputs import AsSingleton
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.primitives import Filter, FlatMap, Map
from tidegate.sdk.primitives.iteration import Iterate, Round
from tidegate.sdk.steps.transform import Transform

if TYPE_CHECKING:
    from tidegate.graph.arrays import GraphArrays


class State(Protocol):
    """What changes in a round."""

    @property
    def again(self) -> bool:
        """Whether another round would change something."""
        ...


S = TypeVar("S", bound=State)
C = TypeVar("C")


class ArrayProgram(ABC, Generic[C, S]):
    """An algorithm over arrays: `constants` are made once, `begin` gives the state before round 1, `step` the next."""

    title: ClassVar[str]
    """The default label."""

    @abstractmethod
    def constants(self, graph: GraphArrays) -> C:
        """What all rounds read."""

    @abstractmethod
    def begin(self, constants: C) -> S:
        """The state before the first round."""

    @abstractmethod
    def step(self, state: S, constants: C) -> S:
        """The state after another round."""

    @abstractmethod
    def result(self, state: S, constants: C) -> Iterable[Any]:
        """What the algorithm emits, from the state after the last round."""


class ArrayLoop(Transform):
    """The rounds of a program, until its state says that no other is needed, or `rounds`; if not `ends`, exactly so
    many."""

    def __init__(
        self,
        program: ArrayProgram[Any, Any],
        element_type: Any,
        rounds: int | None = None,
        *,
        ends: bool = True,
        strict: bool = False,
        name: str | None = None,
    ) -> None:
        self.program = program
        self.element_type = element_type
        self.rounds = rounds
        self.ends = ends
        self.strict = strict
        self.label = name

    def default_label(self) -> str:
        return self.program.title

    def expand(self, input: PCollection[GraphArrays]) -> PCollection[Any]:
        need_numpy(self.program.title)
        check_rounds(self.rounds)
        program = self.program
        constants = AsSingleton(input | Map(program.constants, name="constants").with_output_types(Any))
        start = constants.pcoll | Map(program.begin, name="begin").with_output_types(Any)

        def body(state: PCollection[Any]) -> Any:
            after = state | Map(program.step, constants, name="step").with_output_types(Any)
            return Round(after, again=after | Filter(_again, name="again")) if self.ends else after

        loop: Any = start | Iterate(body, rounds=self.rounds, strict=self.strict, name="rounds")
        last: PCollection[Any] = loop.result if self.ends else loop
        return last | FlatMap(program.result, constants, name="result").with_output_types(self.element_type)


class OnArrays(Transform):
    """A function of the arrays of a graph, which returns what to emit."""

    def __init__(
        self, fn: Callable[[GraphArrays], Iterable[Any]], title: str, element_type: Any, name: str | None
    ) -> None:
        self.fn = fn
        self.title = title
        self.element_type = element_type
        self.label = name

    def default_label(self) -> str:
        return self.title

    def expand(self, input: PCollection[GraphArrays]) -> PCollection[Any]:
        call: Any = FlatMap(self.fn, name="count")
        result: PCollection[Any] = input | call.with_output_types(self.element_type)
        return result


def _again(state: State) -> bool:
    return state.again


def need_numpy(of: str) -> None:
    """Raise BuildError, naming the step `of` and the extra to install, if NumPy is missing."""
    try:
        import numpy as numpy
    except ImportError:
        raise BuildError(f"{of} needs the package numpy: pip install 'tidegate[graph]'") from None


def check_rounds(rounds: Any) -> None:
    """Raise BuildError unless `rounds` is None or a number of rounds."""
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 0):
        raise BuildError(f"rounds is a number, at least 0, not {shorten(rounds)}")
