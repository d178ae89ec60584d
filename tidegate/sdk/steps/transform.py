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
    """A step under a label. Authors subclass `PTransform`; steps that are typed by their `__call__` subclass this."""

    label: str | None = None
    input_type: Any = None
    output_type: Any = None

    def expand(self, input: Any) -> Any:
        """Build the step: apply transforms to `input` and return the last result."""
        raise NotImplementedError(f"{type(self).__name__}.expand is missing")

    def default_label(self) -> str:
        """The automatic label. It is made of names only, so that it survives edits elsewhere in the file."""
        return type(self).__name__

    def with_label(self, label: str) -> Self:
        """A copy of this step with another label."""
        check_label(label)
        labelled = copy.copy(self)
        labelled.label = label
        return labelled

    def __rrshift__(self, label: str) -> Self:
        return self.with_label(label)

    def __or__(self, other: object) -> NoReturn:
        """Refuse `tg.Create(...) | tg.Map(f)`, which no pipeline is part of."""
        later = other.default_label() if isinstance(other, Transform) else shorten(other, 40)
        raise BuildError(
            f"{self.default_label()} has not been applied to anything, so {later} can't follow it: begin with the "
            "pipeline, `p | tg.Create(...) | ...`, or with a collection, `pcoll | tg.Map(...) | ...`"
        )

    def with_input_types(self, hint: Any) -> Self:
        """A copy that declares the type of elements the step takes, which the input is checked against."""
        typed = copy.copy(self)
        typed.input_type = hint
        return typed

    def with_output_types(self, hint: Any) -> Self:
        """A copy that declares the type of elements the step emits."""
        typed = copy.copy(self)
        typed.output_type = hint
        return typed

    def check_input(self, actual: Any, wanted: Any, what: str) -> None:
        """Raise TypeCheckError if elements of type `actual` can't be of type `wanted`; `what` names their consumer."""
        reason = compatibility.clash(actual, wanted)
        if reason:
            raise TypeCheckError(
                f"{what} takes {hints.type_name(wanted)}, but its input holds {hints.type_name(actual)}: {reason}. "
                "If the annotation is wrong, correct it, or use .with_input_types(...)"
            )


class PTransform(Transform, Generic[In, Out]):
    """A step, or several under one name. Subclass and override `expand`."""

    def expand(self, input: In) -> Out:
        """Build the step: apply transforms to `input` and return the last result."""
        raise NotImplementedError(f"{type(self).__name__}.expand is missing")

    def __ror__(self, inputs: tuple[Any, ...] | list[Any] | dict[str, Any]) -> Any:
        """`(a, b) | Join()`: a transform of several collections."""
        return pipeline_of(inputs, self).apply(self, inputs)


def pipeline_of(inputs: Any, transform: Transform) -> Any:
    """The pipeline that all of `inputs` belong to; BuildError if there is none, or more than one."""
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
    """Raise BuildError unless `label` is a non-empty string."""
    if not label or not isinstance(label, str):
        raise BuildError(f"a label is a non-empty string, not {label!r}")
