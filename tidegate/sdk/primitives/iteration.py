"""Iterate: a part of a pipeline applied to its own result, round after round, until a condition holds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, NoReturn, TypeVar, overload

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline, capture
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.primitives.loop_body import (
    add_loop,
    before_round,
    check_body,
    check_names,
    check_takes,
    checked_collection,
    checked_outputs,
    like,
    parts_of,
)
from tidegate.sdk.steps.transform import Transform, pipeline_of
from tidegate.sdk.user_code.user_fn import name_of

MANY_ROUNDS: Final = 10_000
"""After how many rounds a loop ends whose condition has not been met, if the author gave no number."""

MAX_UNROLLED: Final = 64
"""The most rounds of a loop over unbounded input."""

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Round(Generic[S]):
    """What a body returns if the next round's input is not all: `Round(new, again=…, out={"name": …})`.

    `new` is what the next round takes. There is another round only if `again` has an element. `out` are collections to
    use outside the loop: each will hold what all rounds put in it. The body of a `Feedback` may return one, unnamed.
    """

    new: S
    again: PCollection[Any] | None = None
    out: Mapping[str, PCollection[Any]] | PCollection[Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IterateResult(Generic[S]):
    """What a loop gives whose body returns a `Round`: the `result` of its last round, and `out` of all rounds."""

    result: S
    out: Mapping[str, PCollection[Any]]

    def __iter__(self) -> Iterator[PCollection[Any]]:
        """All collections, those of the result first."""
        yield from (pcoll for _, pcoll in parts_of(self.result))
        yield from self.out.values()

    def __or__(self, other: object) -> NoReturn:
        out = "".join(f", or loop.out[{name!r}] | …" for name in self.out)
        raise BuildError(
            f"the body of this loop returns a Round, so it has several results: write loop.result | …{out}"
        )


class LoopOutputs(dict[str, PCollection[Any]]):
    """What leaves a loop early, by name. BuildError for a name that the loop doesn't have."""

    def __missing__(self, name: object) -> NoReturn:
        raise BuildError(f"the loop has no output {name!r}; it has: {', '.join(self) or 'none'}")


def named_outputs(turn: Round[Any]) -> Mapping[str, PCollection[Any]]:
    """The collections that leave a loop, by name."""
    if not isinstance(turn.out, Mapping):
        raise BuildError(f'out names what leaves the loop, as in out={{"name": pcoll}}: it is {shorten(turn.out)}')
    return checked_outputs(turn.out)


class Until(ABC):
    """A condition under which a loop is over, such as `tg.Settled` and `tg.Empty`."""

    of: str | int | None = None
    """Which loop variable it looks at, by name; those of a tuple are 1, 2, …. Needed if there are several."""

    @abstractmethod
    def again(self, before: PCollection[Any], after: PCollection[Any]) -> PCollection[Any]:
        """A collection that has an element if there is to be another round, from the variable before and after one."""


class Iterate(Transform, Generic[In, Out]):
    """Applies `body` to a collection, then to what it returned, and so on: `x | Iterate(body, rounds=2)` holds what
    `x | body | body` holds.

    `body` takes what `Iterate` is applied to, a PCollection or a tuple, NamedTuple or dict of them, and returns the
    same, or a `Round`. Steps of the body that don't depend on what it takes run once. The loop is over after `rounds`;
    when `until` holds, which is `tg.Settled(by=…)`, `tg.Empty()` or a function of what a round takes and returns to a
    collection that has an element when the loop is to end; or when `again` of the Round is empty. If it is over after
    `rounds` (10,000, unless given) although one of these conditions is not met, the metric `converged` is 0 and a
    warning is logged; with `strict` the run fails with a RunError.

    Raises BuildError for a body that can't be repeated, and TypeCheckError if it returns elements of another type.
    """

    @overload
    def __init__(
        self: Iterate[S, IterateResult[S]],
        body: Callable[[S], Round[S]],
        rounds: int | None = None,
        until: Until | Callable[[S, S], PCollection[Any]] | None = None,
        strict: bool = False,
        *,
        name: str | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: Iterate[S, S],
        body: Callable[[S], S],
        rounds: int | None = None,
        until: Until | Callable[[S, S], PCollection[Any]] | None = None,
        strict: bool = False,
        *,
        name: str | None = None,
    ) -> None: ...
    def __init__(
        self,
        body: Any,
        rounds: int | None = None,
        until: Any = None,
        strict: bool = False,
        *,
        name: str | None = None,
    ) -> None:
        if not callable(body):
            raise BuildError(f"Iterate takes a function of a PCollection, not {shorten(body)}")
        if isinstance(rounds, bool) or not isinstance(rounds, int | None):
            raise BuildError(f"rounds is a number, not {shorten(rounds)}")
        if rounds is not None and rounds < 0:
            raise BuildError(f"rounds is at least 0, not {rounds}")
        if isinstance(until, type) and issubclass(until, Until):
            raise BuildError(f"tg.{until.__name__} is a class: write until=tg.{until.__name__}()")
        if until is not None and not isinstance(until, Until) and not callable(until):
            raise BuildError(
                f"until is tg.Settled(by=…), tg.Empty() or a function of what a round takes and what it returns, not "
                f"{shorten(until)}"
            )
        check_takes(body, "a body", 1, "what Iterate is applied to, several collections being one tuple or dict")
        if not isinstance(until, Until | None):
            check_takes(until, "until", 2, "what a round takes and what it returns")
        self.body = body
        self.rounds = rounds
        self.until = until
        self.strict = strict
        self.label = name

    def __call__(self, pcoll: In) -> Out:
        result: Out = pipeline_of((pcoll,) if isinstance(pcoll, PCollection) else pcoll, self).apply(self, pcoll)
        return result

    def __ror__(self, pcolls: In) -> Out:
        result: Out = pipeline_of(pcolls, self).apply(self, pcolls)
        return result

    def expand(self, input: Any) -> Any:
        given = parts_of(input)
        if not given or not all(isinstance(pcoll, PCollection) for _, pcoll in given):
            raise BuildError(
                f"Iterate applies to a PCollection, or to a tuple, NamedTuple or dict of them, not to {shorten(input)}"
            )
        if isinstance(input, Mapping):
            check_names(input, "the names of loop variables")
        pipeline: Pipeline = given[0][1].pipeline
        before = [before_round(pipeline, name, pcoll) for name, pcoll in given]
        shape = like(input, before)

        def build() -> tuple[Round[Any], PCollection[Any] | None, PCollection[Any] | None]:
            returned = self.body(shape)
            turn = returned if isinstance(returned, Round) else Round(returned)
            turn = replace(turn, new=_in_order_of(input, turn.new))
            _check_returned(name_of(self.body), [name for name, _ in given], turn)
            if self.until is None:
                return turn, None, None
            if isinstance(self.until, Until):
                at = _position(self.until, [name for name, _ in given])
                after = parts_of(turn.new)[at][1]
                return turn, self.until.again(before[at], after), None
            return turn, None, checked_collection(self.until(shape, turn.new), "until")

        (turn, again, until), body = capture(pipeline, before, build)
        after = [pcoll for _, pcoll in parts_of(turn.new)]
        out = named_outputs(turn)
        conditions = [pcoll for pcoll in (turn.again, again) if pcoll is not None]
        self._check_end(conditions, until)
        deciding = conditions if until is None else [*conditions, until]
        check_body(body, [name for name, _ in given], before, after, (*deciding, *out.values()))
        unbounded = not all(pcoll.is_bounded for pcoll in (*after, *deciding, *out.values()))
        rounds = MANY_ROUNDS if self.rounds is None else self.rounds
        if unbounded:
            _check_unbounded(before, rounds, ends=bool(deciding))
        variables = [
            LoopVariable(name, start.id, inside.id, pcoll.id)
            for (name, start), inside, pcoll in zip(given, before, after, strict=True)
        ]
        results = add_loop(
            self,
            pipeline,
            body,
            variables,
            after,
            again=conditions,
            until=until,
            gives=out,
            rounds=rounds,
            strict=self.strict,
        )
        result = like(input, results[: len(given)])
        if out or turn.again is not None:
            return IterateResult(result, LoopOutputs(zip(out, results[len(given) :], strict=True)))
        return result

    def _check_end(self, conditions: Sequence[PCollection[Any]], until: PCollection[Any] | None) -> None:
        if self.rounds is None and not conditions and until is None:
            raise BuildError(
                "this loop would never end: give rounds=…, until=…, or both, or return tg.Round(new, again=…)"
            )
        if self.strict and not conditions and until is None:
            raise BuildError(
                "strict fails loops whose condition is not met in time, and this one has none: give until=…"
            )


def _in_order_of(input: Any, returned: Any) -> Any:
    """What a body has returned, with the entries of a dict in the order in which it takes them."""
    match input, returned:
        case Mapping(), Mapping() if input.keys() == returned.keys():
            return {name: returned[name] for name in input}
    return returned


def _position(until: Until, names: Sequence[str]) -> int:
    """Which of the loop variables a condition looks at."""
    kind, of = type(until).__name__, until.of
    shown = ", ".join(map(repr, names))
    if of is None:
        if len(names) == 1:
            return 0
        raise BuildError(f"{kind} looks at one loop variable: say which, as in of={names[0]!r}; there are {shown}")
    if len(names) == 1 and names[0] == "":
        raise BuildError(f"{kind}(of={of!r}): there is only one loop variable, so leave of= out")
    if str(of) in names:
        return names.index(str(of))
    raise BuildError(f"{kind}(of={of!r}): there is no such loop variable; there are {shown}")


def _check_returned(body: str, names: Sequence[str], turn: Round[Any]) -> None:
    """Raise BuildError unless a body returned as many collections, with the same names, as it takes."""
    returned = parts_of(turn.new)
    wanted = "a PCollection" if names == [""] else f"the loop variables {', '.join(names)}"
    if [name for name, _ in returned] != list(names):
        got = "a PCollection" if isinstance(turn.new, PCollection) else shorten(turn.new)
        raise BuildError(f"{body} must return what the next round takes, {wanted}, and returned {got}")
    for _, pcoll in returned:
        if not isinstance(pcoll, PCollection):
            raise BuildError(f"{body} must return what the next round takes, {wanted}, and returned {shorten(pcoll)}")
    if turn.again is not None:
        checked_collection(turn.again, "again")
    named_outputs(turn)


def _check_unbounded(before: Sequence[PCollection[Any]], rounds: int, *, ends: bool) -> None:
    """Raise BuildError for a loop over unbounded input whose rounds would have to be told apart as it runs."""
    if ends:
        raise BuildError(
            "until and again need bounded input: on unbounded input no round ever has all of its elements, so it can't "
            f"be decided whether another follows. Give only rounds, at most {MAX_UNROLLED}"
        )
    if rounds > MAX_UNROLLED:
        raise BuildError(f"on unbounded input a loop has at most {MAX_UNROLLED} rounds, not {rounds:,}")
