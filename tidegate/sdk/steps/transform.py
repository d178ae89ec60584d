"""Transforms: the steps that authors apply to collections, under labels."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Generic, NoReturn, Self, TypeVar

from tidegate.sdk.errors import BuildError, TypeCheckError, shorten
from tidegate.sdk.steps.pvalue import Applier, PValue
from tidegate.sdk.typehints import compatibility, hints
from tidegate.sdk.user_code.keywords import Keywords

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)


class Transform(Keywords):
    """A step under a label. Authors subclass `PTransform`; a step whose type shows best on `__call__`, this."""

    label: str | None = None
    input_type: Any = None
    output_type: Any = None

    def expand(self, input: Any) -> Any:
        """What the step is made of: apply transforms to `input` and return the last result."""
        raise NotImplementedError(f"{type(self).__name__}.expand is missing")

    def default_label(self) -> str:
        """The automatic label, from names alone: never from line numbers."""
        return type(self).__name__

    def with_label(self, label: str) -> Self:
        """The same under another label."""
        check_label(label)
        labelled = copy.copy(self)
        labelled.label = label
        return labelled

    def __rrshift__(self, label: str) -> Self:
        return self.with_label(label)

    def __or__(self, other: object) -> NoReturn:
        """Refuse `tg.Create(...) | tg.Map(f)`, which has nothing to apply to."""
        later = other.default_label() if isinstance(other, Transform) else shorten(other, 40)
        raise BuildError(
            f"{self.default_label()} has not been applied to anything, so {later} can't follow it: begin with the "
            "pipeline, `p | tg.Create(...) | ...`, or with a collection, `pcoll | tg.Map(...) | ...`"
        )

    def with_input_types(self, hint: Any) -> Self:
        """Say what elements the step takes; checked against what comes in."""
        typed = copy.copy(self)
        typed.input_type = hint
        return typed

    def with_output_types(self, hint: Any) -> Self:
        """Say what elements the step gives."""
        typed = copy.copy(self)
        typed.output_type = hint
        return typed

    def check_input(self, actual: Any, wanted: Any, what: str) -> None:
        """Raise TypeCheckError if elements of type `actual` can't be what `what` wants."""
        reason = compatibility.clash(actual, wanted)
        if reason:
            raise TypeCheckError(
                f"{what} takes {hints.type_name(wanted)}, but its input holds {hints.type_name(actual)}: {reason}. "
                "If the annotation is wrong, correct it, or say .with_input_types(...)"
            )


class PTransform(Transform, Generic[In, Out]):
    """A step, or several under one name. Subclass and override `expand`."""

    def expand(self, input: In) -> Out:
        """What the step is made of: apply transforms to `input` and return the last result."""
        raise NotImplementedError(f"{type(self).__name__}.expand is missing")

    def __ror__(self, inputs: tuple[Any, ...] | list[Any] | dict[str, Any]) -> Any:
        """`(a, b) | Join()`: a transform of several collections."""
        return pipeline_of(inputs, self).apply(self, inputs)


def pipeline_of(inputs: Any, transform: Transform) -> Any:
    """The one pipeline that all of `inputs` belong to; BuildError if there is none, or more than one."""
    found: dict[int, Applier] = {}
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, (tuple, list)) else ()
    for part in parts:
        match part:
            case PValue():
                found[id(part.pipeline)] = part.pipeline
            case Applier():
                found[id(part)] = part
            case _:
                raise BuildError(f"{transform.default_label()} takes PCollections, not {type(part).__name__}")
    if len(found) != 1:
        problem = "PCollections of two different pipelines" if found else f"no PCollection in {inputs!r}"
        raise BuildError(f"{transform.default_label()}: {problem}")
    return next(iter(found.values()))


def check_label(label: object) -> None:
    """Raise BuildError for what is no label."""
    if not label or not isinstance(label, str):
        raise BuildError(f"a label is a string that says something, not {label!r}")
