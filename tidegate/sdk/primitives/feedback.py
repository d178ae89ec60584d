"""Feedback: a part of a stream that goes round. What its body feeds back, the body takes again, element by element."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline, are_bounded, capture, in_loop
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.integrity import reads, with_bodies
from tidegate.sdk.primitives.iteration import Round
from tidegate.sdk.primitives.loop_body import check_body, check_takes, checked_collection, checked_outputs
from tidegate.sdk.primitives.multi_output import MultiOutput
from tidegate.sdk.relational.relations import Compute
from tidegate.sdk.steps.builder import Body, reads_round
from tidegate.sdk.steps.transform import Transform, pipeline_of
from tidegate.sdk.user_code.user_fn import name_of
from tidegate.sdk.user_code.validation import warn
from tidegate.sdk.windowing.triggers import waits_for_watermark

T = TypeVar("T")

TOO_FAR: Final = "too_far"
"""The output for what has gone round `max_hops` times."""


class Feedback(Transform, Generic[T]):
    """Applies `body` to a collection and, element by element, to what the body feeds back: a loop in a stream.

    `body` takes a collection and returns `tg.Round(back, out=…)`: what `back` has comes round again, each element once,
    with its timestamp and windows; `out`, a collection or a dict of them, leaves the loop. There are no rounds: the
    body sees the input and what is fed back as one unbounded stream, in the order in which they come, and its state
    is one for good. The loop is over when its input has ended and nothing is under way.

    The result is `out`. With `max_hops`, elements that have gone round so many times leave by another output,
    `too_far`, and the result has several, like that of `with_outputs`. New input waits while more than `max_backlog`
    bytes (`"64MB"`) are fed back and wait for their turn.

    Raises BuildError for a body that can't be a loop, and TypeCheckError if it feeds back elements of another type.
    """

    def __init__(
        self,
        body: Callable[[PCollection[T]], Round[PCollection[T]]],
        max_backlog: int | str = 64_000_000,
        max_hops: int | None = None,
        *,
        name: str | None = None,
    ) -> None:
        if not callable(body):
            raise BuildError(f"Feedback takes a function of a PCollection, not {shorten(body)}")
        if isinstance(max_hops, bool) or not isinstance(max_hops, int | None):
            raise BuildError(f"max_hops is a number, not {shorten(max_hops)}")
        if max_hops is not None and max_hops < 0:
            raise BuildError(f"max_hops is at least 0, not {max_hops}")
        check_takes(body, "a body", 1, "the collection that goes round")
        self.body = body
        self.max_backlog = _size(max_backlog)
        self.max_hops = max_hops
        self.label = name

    def __call__(self, pcoll: PCollection[T]) -> Any:
        return pipeline_of((pcoll,), self).apply(self, pcoll)

    def __ror__(self, pcoll: PCollection[T]) -> Any:
        return pipeline_of(pcoll, self).apply(self, pcoll)

    def expand(self, input: Any) -> Any:
        if not isinstance(input, PCollection):
            raise BuildError(f"Feedback applies to a PCollection, not to {shorten(input)}")
        pipeline: Pipeline = input.pipeline
        if in_loop(pipeline):
            raise BuildError(
                "a Feedback can't be in the body of another loop: apply it to what that loop gives, or feed back in "
                "the outer loop"
            )
        before: PCollection[Any] = PCollection(
            pipeline, f"{pipeline.step}~before", portable.MAIN, input.element_type, input.windowing, False
        )

        def build() -> tuple[PCollection[Any], dict[str, PCollection[Any]]]:
            return _returned(name_of(self.body), self.body(before))

        (after, gives), body = capture(pipeline, [before], build)
        inside = body.collections.keys()
        if after.id not in inside:
            raise BuildError("what is fed back does not come from what the body takes, so nothing would go round")
        check_body(body, [""], [before], [after], gives.values())
        for name, pcoll in gives.items():
            if pcoll.id not in inside:
                raise BuildError(
                    f"out{'' if name == portable.MAIN else f'[{name!r}]'} does not come from what the body takes: use "
                    "it outside the loop, where it is the same"
                )
        _check_steps(body)
        _warn_of_panes(body, before.id, after)
        outer = {id for node in body.repeated for id in reads(node) if id not in inside}
        bounded = input.is_bounded and are_bounded(pipeline, outer)
        results = {
            tag: pipeline.collection(
                tag,
                element_type=pcoll.element_type,
                windowing=pcoll.windowing,
                bounded=bounded,
            )
            for tag, pcoll in ({**gives, TOO_FAR: before} if self.max_hops is not None else gives).items()
        }
        pipeline.add(
            portable.Feedback,
            list(results.values()),
            dict.fromkeys((input.id, *sorted(outer))),
            before=before.id,
            after=after.id,
            body=body.repeated,
            collections=tuple(body.collections.values()),
            gives=tuple(pcoll.id for pcoll in gives.values()),
            max_backlog=self.max_backlog,
            max_hops=self.max_hops,
        )
        return results[portable.MAIN] if results.keys() == {portable.MAIN} else MultiOutput(results)


def _size(size: Any) -> int:
    match size:
        case bool():
            pass
        case int() if size >= 0:
            return size
        case str():
            from tidegate.sdk.options.quantities import parse_size  # imports decimal

            try:
                return parse_size(size)
            except ValueError as error:
                raise BuildError(f"max_backlog: {error}") from None
    raise BuildError(f'max_backlog is a number of bytes, such as "64MB", not {shorten(size)}')


def _returned(body: str, turn: Any) -> tuple[PCollection[Any], dict[str, PCollection[Any]]]:
    """What a body feeds back, and what leaves the loop, by tag."""
    if not isinstance(turn, Round) or not isinstance(turn.new, PCollection):
        raise BuildError(
            f"{body} must return tg.Round(back, out=…), the collection that comes round again and what leaves the "
            f"loop, and returned {shorten(turn)}"
        )
    if turn.again is not None:
        raise BuildError(
            "a Feedback has no rounds, so there is no `again`: it is over when its input has ended and nothing is "
            "under way. What is not to come round again, leave out of what is fed back"
        )
    match turn.out:
        case Mapping() if turn.out:
            checked_outputs(turn.out)
            if TOO_FAR in turn.out:
                raise BuildError(f"out can't be named {TOO_FAR!r}, the name of the output for max_hops")
            return turn.new, dict(turn.out)
        case PCollection():
            return turn.new, {portable.MAIN: turn.out}
        case Mapping():
            raise BuildError("nothing leaves this loop: say what does, as in tg.Round(back, out=done)")
    return turn.new, {portable.MAIN: checked_collection(turn.out, "out")}


def _check_steps(body: Body) -> None:
    """Raise BuildError for steps that a loop without rounds can't have."""
    inside = body.collections.keys()
    for node in with_bodies(body.repeated):
        for ref in portable.side_inputs(node):
            if ref.collection in inside:
                raise BuildError(
                    f"the side input {ref.collection!r} of {node.label!r} comes from the loop itself, whose elements "
                    "would wait for one another: keep it in state, or take it from outside the loop"
                )
        if reads_round(node):
            raise BuildError(
                f"{node.label!r} takes tg.DoFn.RoundParam, the number of a round, and a Feedback has no rounds: count "
                "in the element how often it has gone round"
            )
        if isinstance(node, portable.Iterate):
            raise BuildError(f"{node.label!r} is a loop with rounds in the body of a Feedback: apply it outside")


def _warn_of_panes(body: Body, before: str, after: PCollection[Any]) -> None:
    """Warn of groupings that wait for the watermark and lead back: it is past what they emit."""
    makers = {out.collection: node for node in body.repeated for out in node.outputs}

    def upstream(id: str) -> Iterator[portable.Node]:
        seen, todo = {before}, [id]
        while todo:
            if (used := todo.pop()) in seen or used not in makers:
                continue
            seen.add(used)
            yield makers[used]
            todo += makers[used].inputs

    for node in upstream(after.id):
        match node:
            case portable.Relate(relation=Compute()):
                pass
            case portable.GroupByKey() | portable.CombinePerKey() | portable.Relate():
                source = body.collections.get(node.inputs[0])
                if source is not None and waits_for_watermark(source.windowing.trigger):
                    warn(
                        f"{node.label!r} emits when the watermark has passed a window, and what it emits is fed back, "
                        "where it is late: use a trigger that fires as elements come, such as "
                        "tg.Repeatedly(tg.AfterCount(1)), or tg.Iterate for each window"
                    )
            case _:
                pass
