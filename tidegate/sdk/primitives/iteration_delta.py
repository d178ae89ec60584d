"""IterateDelta: a loop with a solution that stays where it is, of which a round changes only a part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NoReturn, TypeVar

from tidegate.sdk.authoring.combine import NOTHING, AssociativeFn, CombineFn, Fold, combiner_name
from tidegate.sdk.authoring.dofn import refuse_injection
from tidegate.sdk.errors import BuildError, RunError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline, capture
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.primitives.elementwise import Map, require_pairs
from tidegate.sdk.primitives.grouping import CombinePerKey, checked_combiner, pair_type
from tidegate.sdk.primitives.iteration import MANY_ROUNDS, IterateResult, LoopOutputs, Round, named_outputs
from tidegate.sdk.primitives.loop_body import add_loop, before_round, check_body, check_takes, checked_collection
from tidegate.sdk.steps.transform import Transform, pipeline_of
from tidegate.sdk.typehints import compatibility
from tidegate.sdk.user_code.user_fn import UserFn, name_of
from tidegate.sdk.windowing.assigners import is_merging
from tidegate.sdk.windowing.strategy import TimestampCombiner, WindowingStrategy, can_fire_twice

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")

_ONLY_LOOKUPS = "a Solution can only be looked up: write `pairs | solution.lookup()`, which gives (key, (value, known))"


class Solution(Generic[K, V]):
    """The solution of an `IterateDelta` as a round finds it: one value for each key and window.

    `pairs | solution.lookup()` is the only way to read it.
    """

    def __init__(self, pcoll: PCollection[tuple[K, V]]) -> None:
        self._pcoll = pcoll

    def lookup(self, *, name: str | None = None) -> Lookup[K, V]:
        """A step that emits `(key, (value, known))` for each pair `(key, value)`: `known` is the value that the
        solution had for the key, in the pair's window, when the round began, or None."""
        return Lookup(self._pcoll, name=name)

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and name in dir(PCollection):
            raise BuildError(_ONLY_LOOKUPS)
        raise AttributeError(f"a Solution has no attribute {name!r}: {_ONLY_LOOKUPS}")

    def __or__(self, other: object) -> NoReturn:
        raise BuildError(_ONLY_LOOKUPS)

    def __iter__(self) -> NoReturn:
        raise BuildError(_ONLY_LOOKUPS)


class Lookup(Transform, Generic[K, V]):
    """Looks pairs up in the solution of a loop; see `Solution.lookup`."""

    def __init__(self, solution: PCollection[tuple[K, V]], *, name: str | None = None) -> None:
        self._solution = solution
        self.label = name

    def __call__(self, pcoll: PCollection[tuple[K, W]]) -> PCollection[tuple[K, tuple[W, V | None]]]:
        result: PCollection[tuple[K, tuple[W, V | None]]] = pcoll.pipeline.apply(self, pcoll)
        return result

    def expand(self, input: Any) -> Any:
        if not isinstance(input, PCollection):
            raise BuildError(f"Lookup applies to a PCollection, not to {shorten(input)}")
        require_pairs(input, self.default_label())
        if input.windowing.assigner != self._solution.windowing.assigner:
            raise BuildError(
                f"the pairs are in other windows than the solution: {input.windowing.assigner!r} and "
                f"{self._solution.windowing.assigner!r}. Give both the same WindowInto"
            )
        key, value = compatibility.kv_of(input.element_type) or (Any, Any)
        _, known = compatibility.kv_of(self._solution.element_type) or (Any, Any)
        found = Any if known is Any else known | None
        made = input.pipeline.collection(
            element_type=self.output_type or pair_type(key, pair_type(value, found)),
            windowing=input.windowing,
            bounded=input.is_bounded,
        )
        input.pipeline.add(portable.Lookup, [made], [input.id, self._solution.id])
        return made


class IterateDelta(Transform, Generic[K, V, W]):
    """Applies `body` to a solution and a workset, round after round, until the workset is empty: keyed values that stay
    where they are, and what is left to do with them.

    `(solution, workset) | IterateDelta(body)` gives the whole solution, in which each key and window has one value. The
    body takes the `Solution`, which it can look up, and the workset. It returns the updates of the solution, or the
    updates and the next workset. If it returns the updates alone, the next workset is `(key, new value)` of each key
    whose value they have changed. `tg.Round(…, again=…, out={…})` works as in `tg.Iterate`.

    `merge` makes one value of several of a key: of the initial solution, of a round's updates, and of an update and the
    value before. It is `min`, `max`, `sum` or `tg.associative(fn)`. Without it an update takes the place of the value,
    and two values for one key in one round fail the run. `changed(old, new)` says whether a value has changed; the
    default is whether they are unequal, where NaN equals NaN and arrays are compared by their elements.

    The loop is over after `rounds` (10,000, unless given) at the latest; `strict` is that of `tg.Iterate`. Input must
    be bounded. Raises BuildError for a body that can't be repeated, and TypeCheckError if it returns other types.
    """

    def __init__(
        self,
        body: Callable[[Solution[K, V], PCollection[tuple[K, W]]], Any],
        rounds: int | None = None,
        *,
        merge: Any = None,
        changed: Callable[[V, V], object] | None = None,
        strict: bool = False,
        name: str | None = None,
    ) -> None:
        if not callable(body):
            raise BuildError(f"IterateDelta takes a function of a Solution and a PCollection, not {shorten(body)}")
        if isinstance(rounds, bool) or not isinstance(rounds, int | None):
            raise BuildError(f"rounds is a number, not {shorten(rounds)}")
        if rounds is not None and rounds < 0:
            raise BuildError(f"rounds is at least 0, not {rounds}")
        if changed is not None and not callable(changed):
            raise BuildError(f"changed is a function of the old and the new value, not {shorten(changed)}")
        check_takes(body, "a body", 2, "the Solution and the workset")
        refuse_injection(changed, "changed is called with two values only")
        self.body = body
        self.rounds = rounds
        self.merge = None if merge is None else _merging(merge)
        self.changed = changed
        self.strict = strict
        self.label = name

    def __ror__(self, pcolls: tuple[PCollection[tuple[K, V]], PCollection[Any]]) -> Any:
        return pipeline_of(pcolls, self).apply(self, pcolls)

    def __call__(self, pcolls: tuple[PCollection[tuple[K, V]], PCollection[Any]]) -> Any:
        return pipeline_of(pcolls, self).apply(self, pcolls)

    def expand(self, input: Any) -> Any:
        match input:
            case (PCollection() as solution, PCollection() as workset):
                pass
            case _:
                raise BuildError(
                    "IterateDelta applies to a pair of PCollections, (solution, workset) | tg.IterateDelta(…), not to "
                    f"{shorten(input)}"
                )
        if not (solution.is_bounded and workset.is_bounded):
            raise BuildError(
                "IterateDelta needs bounded input: on unbounded input no round ever has all of its elements"
            )
        require_pairs(solution, "the solution")
        _check_windows(solution.windowing)
        pipeline: Pipeline = solution.pipeline
        start = self._one_value(solution, "start")
        before = [before_round(pipeline, "solution", start), before_round(pipeline, "workset", workset)]

        def build() -> tuple[Round[Any], list[PCollection[Any]]]:
            returned = self.body(Solution(before[0]), before[1])
            turn = returned if isinstance(returned, Round) else Round(returned)
            updates, following = _returned(name_of(self.body), turn)
            updates = self._one_value(updates, "updates")
            return turn, [updates, updates if following is None else following]

        (turn, after), body = capture(pipeline, before, build)
        out = named_outputs(turn)
        again = [] if turn.again is None else [turn.again]
        if not all(each.is_bounded for each in (*after, *again, *out.values())):
            raise BuildError("IterateDelta needs bounded input, and its body reads a collection that is unbounded")
        check_body(body, ["updates", "workset"], before, after, (*again, *out.values()))
        results = add_loop(
            self,
            pipeline,
            body,
            [
                LoopVariable("", start.id, before[0].id, after[0].id, "solution"),
                LoopVariable(
                    "workset",
                    workset.id,
                    before[1].id,
                    after[1].id,
                    "changes" if after[1] is after[0] else "all",
                    drives=True,
                ),
            ],
            after,
            again=again,
            until=None,
            gives=out,
            rounds=MANY_ROUNDS if self.rounds is None else self.rounds,
            strict=self.strict,
            merge=None if self.merge is None else UserFn.of(self.merge, combiner_name(self.merge)),
            changed=None if self.changed is None else UserFn.of(self.changed, name_of(self.changed)),
        )
        if out or turn.again is not None:
            return IterateResult(results[0], LoopOutputs(zip(out, results[2:], strict=True)))
        return results[0]

    def _one_value(self, pcoll: PCollection[Any], name: str) -> PCollection[Any]:
        """The collection with one value for each key."""
        if self.merge is not None:
            return pcoll | CombinePerKey(self.merge, name=f"OneValue({name})")
        key, value = compatibility.kv_of(pcoll.element_type) or (Any, Any)
        with_key: Map[Any, Any] = Map(_with_key, name=f"Keys({name})")
        with_key.keeps_key = True
        paired: PCollection[Any] = pcoll | with_key
        only = CombinePerKey(_OnlyValue(), name=f"OneValue({name})")
        return paired | only.with_output_types(pair_type(key, value))


def _with_key(pair: tuple[K, V]) -> tuple[K, tuple[K, V]]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise RunError(f"the solution takes pairs (key, value), but got {shorten(pair)}")
    key, value = pair
    return key, (key, value)


class _OnlyValue(Fold[Any]):
    """The value of a key that has one, of pairs of the key and a value."""

    def add_input(self, accumulator: Any, element: Any) -> Any:
        if accumulator is not NOTHING:
            key, value = element
            raise RunError(
                f"the key {shorten(key, 40)} of the solution has two values, {shorten(accumulator[1], 40)} and "
                f"{shorten(value, 40)}: say how they become one, as in merge=min, or emit one"
            )
        return element

    def extract_output(self, accumulator: Any) -> Any:
        return accumulator[1]


def _merging(merge: Any) -> CombineFn[Any, Any, Any]:
    """The combiner by which values are merged; BuildError if it can't be applied to its own results."""
    combiner = checked_combiner(merge)
    if not isinstance(combiner, Fold | AssociativeFn):
        raise BuildError(
            "merge is applied to its own results, so it is min, max, sum or tg.associative(fn), not "
            f"{combiner_name(combiner)}"
        )
    return combiner


def _returned(body: str, turn: Round[Any]) -> tuple[PCollection[Any], PCollection[Any] | None]:
    """The updates that a body returned, and the next workset, if it returned one."""
    wanted = "the updates of the solution, or a tuple of them and of the next workset"
    match turn.new:
        case PCollection() as updates:
            following = None
        case (PCollection() as updates, PCollection() as following):
            pass
        case Solution():
            raise BuildError(f"{body} must return {wanted}, and returned the Solution: {_ONLY_LOOKUPS}")
        case _:
            raise BuildError(f"{body} must return {wanted}, and returned {shorten(turn.new)}")
    require_pairs(updates, "the solution")
    if turn.again is not None:
        checked_collection(turn.again, "again")
    named_outputs(turn)
    return updates, following


def _check_windows(windowing: WindowingStrategy) -> None:
    """Raise BuildError for windows in which a key of the solution could have several values."""
    if is_merging(windowing.assigner):
        raise BuildError(
            f"the solution is in windows that merge, {windowing.assigner!r}, which a round would merge with others: "
            "apply another WindowInto"
        )
    if can_fire_twice(windowing):
        raise BuildError(
            "the solution's trigger can fire more than once for a window, so a key would have several values: apply "
            "WindowInto with the trigger tg.AfterWatermark() and no allowed lateness"
        )
    if windowing.timestamp_combiner is not TimestampCombiner.END_OF_WINDOW:
        raise BuildError(
            "the values of the solution have the timestamps of their windows' ends: apply WindowInto with "
            "timestamp_combiner=tg.TimestampCombiner.END_OF_WINDOW"
        )
