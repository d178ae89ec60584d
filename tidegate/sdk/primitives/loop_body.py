"""The body of a loop while it is built: its variables, what a round returns, and the node that repeats it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidegate.sdk.authoring.dofn import called, refuse_injection, signature_or_none
from tidegate.sdk.errors import BuildError, TypeCheckError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.integrity import reads
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.steps.transform import Transform
from tidegate.sdk.typehints import compatibility, hints
from tidegate.sdk.windowing.strategy import compatible

if TYPE_CHECKING:
    from tidegate.sdk.steps.builder import Body


def check_takes(fn: Any, what: str, arguments: int, given: str) -> None:
    """Raise BuildError unless a function of a loop, which is its `what`, takes so many arguments, which are `given`."""
    refuse_injection(fn, f"{what} is called while the pipeline is built: ask for it in the functions of its steps")
    signature = signature_or_none(fn)
    if signature is None:
        return
    try:
        signature.bind(*range(arguments))
    except TypeError as error:
        raise BuildError(
            f"{what} is called with {given}, and {called(fn, signature)} can't be called so: {error}"
        ) from None


def parts_of(value: Any) -> list[tuple[str, Any]]:
    """The loop variables in what is iterated, with their names; "" for a single collection."""
    match value:
        case Mapping():
            return list(value.items())
        case tuple() if hasattr(value, "_fields"):
            return list(zip(value._fields, value, strict=True))
        case tuple():
            return [(str(number), pcoll) for number, pcoll in enumerate(value, 1)]
        case _:
            return [("", value)]


def like(value: Any, pcolls: Sequence[PCollection[Any]]) -> Any:
    """The collections in the form that `value` has."""
    match value:
        case Mapping():
            return dict(zip(value, pcolls, strict=True))
        case tuple() if hasattr(value, "_fields"):
            return type(value)(*pcolls)
        case tuple():
            return tuple(pcolls)
        case _:
            return pcolls[0]


def before_round(pipeline: Pipeline, name: str, start: PCollection[Any]) -> PCollection[Any]:
    """A loop variable as a round finds it."""
    id = f"{pipeline.step}:{name}~before" if name else f"{pipeline.step}~before"
    return PCollection(pipeline, id, portable.MAIN, start.element_type, start.windowing, start.is_bounded)


def check_names(names: Iterable[object], of: str) -> None:
    """Raise BuildError unless names that an author gave are text."""
    if bad := [name for name in names if not isinstance(name, str) or not name]:
        raise BuildError(f"{of} are non-empty strings, not {', '.join(map(shorten, bad))}")


def checked_outputs(outputs: Mapping[str, PCollection[Any]]) -> Mapping[str, PCollection[Any]]:
    """What leaves a loop, by name; BuildError if it isn't collections whose names are text."""
    check_names(outputs, "the names in out")
    for name, pcoll in outputs.items():
        checked_collection(pcoll, f"out[{name!r}]")
    return outputs


def checked_collection(value: Any, what: str) -> PCollection[Any]:
    """The value if it is a collection, else BuildError."""
    if not isinstance(value, PCollection):
        raise BuildError(f"{what} of a loop is a PCollection, not {shorten(value)}")
    return value


def check_body(
    body: Body,
    names: Sequence[str],
    before: Sequence[PCollection[Any]],
    after: Sequence[PCollection[Any]],
    others: Iterable[PCollection[Any]],
) -> None:
    """Raise BuildError or TypeCheckError unless a round can take what the round before it gave, and all that the body
    returns, `others` among it, is of this pipeline."""
    _check_pipeline(before[0].pipeline, (*after, *others))
    for node in (*body.repeated, *body.once):
        match node:
            case portable.Write():
                raise BuildError(
                    f"{node.label!r} writes in the body of a loop: write what the loop gives, or what its rounds put "
                    "in tg.Round(new, out={...})"
                )
            case portable.Read() | portable.TestStream():
                raise BuildError(
                    f"{node.label!r} reads in the body of a loop: read in front of it. A body can use every collection "
                    "of the pipeline, and finds the same elements in all rounds"
                )
            case _:
                pass
    inside = {pcoll.id for pcoll in before} | {out.collection for node in body.repeated for out in node.outputs}
    if not any(pcoll.id in inside for pcoll in after):
        raise BuildError(
            "what the body returns does not come from what it takes, so no round would differ from another"
        )
    for name, old, new in zip(names, before, after, strict=True):
        which = f" as {name}" if name else ""
        reason = compatibility.clash(new.element_type, old.element_type) if new.pipeline.checks_types else None
        if reason:
            given, taken = hints.type_name(new.element_type), hints.type_name(old.element_type)
            raise TypeCheckError(
                f"the body returns {given}{which} and takes {taken}, so no other round can follow: {reason}. If the "
                "type of its last step is wrong, correct it with .with_output_types(...)"
            )
        reason = compatible(old.windowing, new.windowing)
        if reason:
            raise BuildError(
                f"the body returns{which} other windows than it takes, so no other round can follow: {reason}"
            )
        if old.is_bounded and not new.is_bounded:
            raise BuildError(
                f"the body returns an unbounded collection{which} and takes a bounded one, so no other round can follow"
            )


def _check_pipeline(pipeline: Pipeline, returned: Iterable[PCollection[Any]]) -> None:
    """Raise BuildError for a collection of another pipeline: its id may be that of a collection of this one."""
    for pcoll in returned:
        if pcoll.pipeline is not pipeline:
            raise BuildError(f"{shorten(pcoll)} belongs to another pipeline than the loop")


def add_loop(
    transform: Transform,
    pipeline: Pipeline,
    body: Body,
    variables: Sequence[LoopVariable],
    after: Sequence[PCollection[Any]],
    *,
    again: Sequence[PCollection[Any]],
    until: PCollection[Any] | None,
    gives: Mapping[str, PCollection[Any]],
    **more: Any,
) -> list[PCollection[Any]]:
    """Add the node of a loop with these variables, and return its results: the variables, which are as `after` a round,
    and what its rounds give. `more` are further fields of the node."""
    tags = [variable.name or portable.MAIN for variable in variables]
    if twice := [tag for tag in gives if tag in tags]:
        of = "the result of a loop with one variable" if twice[0] == portable.MAIN else "a loop variable"
        raise BuildError(f"out can't be named {twice[0]!r}, which is the name of {of}")
    results = [
        pipeline.collection(
            tag,
            element_type=transform.output_type or pcoll.element_type,
            windowing=pcoll.windowing,
            bounded=pcoll.is_bounded,
        )
        for tag, pcoll in zip((*tags, *gives), (*after, *gives.values()), strict=True)
    ]
    deciding = again if until is None else (*again, until)
    known = {id for node in body.repeated for id in reads(node)} | {
        pcoll.id for pcoll in (*after, *deciding, *gives.values())
    }
    made = body.collections.keys() | {out.collection for node in body.repeated for out in node.outputs}
    pipeline.add(
        portable.Iterate,
        results,
        dict.fromkeys((*(variable.start for variable in variables), *sorted(known - made))),
        variables=tuple(variables),
        body=body.repeated,
        collections=tuple(body.collections.values()),
        again=tuple(pcoll.id for pcoll in again),
        until=None if until is None else until.id,
        gives=tuple(pcoll.id for pcoll in gives.values()),
        **more,
    )
    return results
