"""Random pipelines as data: `pipelines()` draws descriptions that can be built on a `tg.Pipeline` and evaluated by the
model. A description is a list of steps; collections are numbered in the order in which steps make them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from hypothesis import strategies as st

from tests.support.random_pipelines.functions import COMBINERS, FUNCTIONS, Kind
from tests.support.random_pipelines.ordered import STRATEGIES

Windows: TypeAlias = tuple[Any, ...]
"""`("global",)`, `("fixed", size, offset)`, `("sliding", size, period, offset)` or `("sessions", gap)`, in seconds.

`("merged", gap)` are sessions that a grouping has merged: later steps do not change them.
"""

GLOBAL: Windows = ("global",)


@dataclass(frozen=True)
class Step:
    """One step. `name` is a function, a combiner or a strategy of the tables; `inputs` are numbers of collections.

    `values` of a create are pairs (element, seconds or None). `handling` is None, "whole" or "partial". `panes` groups
    with a named strategy and has two outputs: the panes, and the panes in the global window; `state` is a step with
    state and timers, in `windows`.
    """

    op: Literal[
        "create",
        "apply",
        "window",
        "group",
        "combine",
        "combine_globally",
        "combine_per_element",
        "reshuffle",
        "flatten",
        "panes",
        "state",
    ]
    inputs: tuple[int, ...] = ()
    name: str = ""
    values: tuple[tuple[Any, int | None], ...] = ()
    windows: Windows = GLOBAL
    handling: str | None = None

    @property
    def outputs(self) -> int:
        """The number of collections that the step makes."""
        if self.op == "panes":
            return 2
        if self.op != "apply":
            return 1
        return 1 + len(FUNCTIONS[self.name].tags) + (self.handling is not None)


@dataclass(frozen=True)
class Shape:
    """The properties of a collection that the generator needs in order to apply further steps."""

    kind: Kind
    windows: Windows
    grouped: bool = False


@dataclass(frozen=True)
class Description:
    """A pipeline; `read` are the collections whose elements are compared."""

    steps: tuple[Step, ...]
    shapes: tuple[Shape, ...]
    read: tuple[int, ...]

    def numbers(self, step: int) -> range:
        """The numbers of the collections that a step makes, the main one first."""
        first = sum(made.outputs for made in self.steps[:step])
        return range(first, first + self.steps[step].outputs)


_ints = st.integers(-20, 40)
_pairs = st.tuples(st.integers(0, 4), _ints)
_times = st.none() | st.integers(-40, 60)
_windows = st.one_of(
    st.just(GLOBAL),
    st.tuples(st.just("fixed"), st.integers(1, 15), st.just(0)),
    st.tuples(st.just("fixed"), st.just(10), st.integers(-9, 9)),
    st.tuples(st.just("sliding"), st.integers(1, 20), st.integers(3, 9), st.integers(-2, 2)),
    st.tuples(st.just("sessions"), st.integers(1, 9)),
    st.tuples(st.just("sessions"), st.integers(10, 30)),
)


@st.composite
def pipelines(draw: st.DrawFn, steps: int = 10, elements: int = 30) -> Description:
    """A pipeline of one to three sources and up to `steps` further steps, any of whose collections may be read."""
    made: list[Step] = []
    shapes: list[Shape] = []

    def add(step: Step, *outputs: Shape) -> None:
        assert len(outputs) == step.outputs
        made.append(step)
        shapes.extend(outputs)

    for _ in range(draw(st.integers(1, 3))):
        kind: Kind = draw(st.sampled_from(["int", "pair"]))
        one = _ints if kind == "int" else _pairs
        timed = _times if draw(st.booleans()) else st.none()
        fewest = draw(st.sampled_from([0, elements // 3, elements // 2]))
        values = draw(st.lists(st.tuples(one, timed), min_size=fewest, max_size=elements))
        add(Step("create", values=tuple(values)), Shape(kind, GLOBAL))
    for _ in range(draw(st.sampled_from([steps, steps // 2, 2, 1]))):
        # Mostly extend the newest collections: steps fuse in chains. Panes that depend on the order are not extended.
        open_ended = [n for n, shape in enumerate(shapes) if shape.windows[0] != "panes"]
        recent = st.sampled_from(open_ended[-2:])
        source = draw(st.one_of(recent, recent, st.sampled_from(open_ended)))
        _add_step(draw, source, shapes, add)
    read = draw(st.sets(st.integers(0, len(shapes) - 1), min_size=1, max_size=4))
    if draw(st.booleans()):
        read |= set(range(len(shapes))) - {source for step in made for source in step.inputs}
    return Description(tuple(made), tuple(shapes), tuple(sorted(read)))


def _add_step(draw: st.DrawFn, source: int, shapes: list[Shape], add: Any) -> None:
    shape = shapes[source]
    ops = ["apply"] * 4 + ["window", "window", "reshuffle", "flatten"]
    if shape.kind == "pair":
        ops += ["group", "group", "combine", "combine", "panes", "panes", "state", "state"]
    if shape.kind == "int":
        ops += ["combine_globally", "combine_per_element"]
    op = draw(st.sampled_from(ops))
    match op:
        case "apply":
            names = [name for name, fn in FUNCTIONS.items() if fn.input == shape.kind]
            to_pairs = [name for name in names if FUNCTIONS[name].output == "pair"]  # only pairs can be grouped
            name = draw(st.sampled_from(to_pairs if shape.kind != "pair" and draw(st.booleans()) else names))
            fn = FUNCTIONS[name]
            handling = draw(st.sampled_from(["whole", "partial"])) if fn.raises else None
            out = Shape(fn.output, shape.windows, shape.grouped)
            bad = [Shape(fn.input, shape.windows, shape.grouped)] if handling else []
            add(Step("apply", (source,), name, handling=handling), out, *[out for _ in fn.tags], *bad)
        case "window":
            windows = draw(_windows)
            add(Step("window", (source,), windows=windows), Shape(shape.kind, windows))
        case "reshuffle":
            add(Step("reshuffle", (source,)), shape)
        case "flatten":
            alike = [n for n, other in enumerate(shapes) if (other.kind, other.windows) == (shape.kind, shape.windows)]
            others = draw(st.lists(st.sampled_from(alike), min_size=1, max_size=3))
            add(Step("flatten", (source, *others)), shape)
        case "panes":
            name = draw(st.sampled_from(sorted(STRATEGIES)))
            raw = Shape("group", ("panes", name, len(shapes)), True)
            add(Step("panes", (source,), name), raw, Shape("group", GLOBAL, True))
        case "state":
            windows = draw(st.sampled_from([GLOBAL, ("fixed", 10, 0)]))
            add(Step("state", (source,), windows=windows), Shape("pair", windows))
        case "group":
            add(Step("group", (source,)), Shape("group", _after(shape.windows), True))
        case "combine":
            name = draw(st.sampled_from(sorted(COMBINERS)))
            kind: Kind = "pair" if COMBINERS[name].output == "int" else "group"
            add(Step("combine", (source,), name), Shape(kind, _after(shape.windows), True))
        case "combine_globally":
            name = draw(st.sampled_from([name for name, combiner in COMBINERS.items() if combiner.output == "int"]))
            add(Step("combine_globally", (source,), name), Shape("int", _after(shape.windows), True))
        case "combine_per_element":
            name = draw(st.sampled_from(["len", "sum", "squares", "middle"]))
            add(Step("combine_per_element", (source,), name), Shape("pair", _after(shape.windows), True))


def _after(windows: Windows) -> Windows:
    """The windows of what a grouping gives."""
    return ("merged", *windows[1:]) if windows[0] == "sessions" else windows
