"""Sealing a pipeline: replacing live code by data, before the pipeline leaves the process that built it."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any, TypeVar

from tidegate.sdk.errors import BuildError, PicklingError
from tidegate.sdk.portable.code_parts import code_of, map_code
from tidegate.sdk.portable.effects import has_effects
from tidegate.sdk.portable.model import Environment, Feedback, Iterate, Node, Pipeline, Write
from tidegate.sdk.portable.values import Values
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.sealing import Sealer
from tidegate.sdk.user_code.user_fn import ImportRef, UserFn
from tidegate.sdk.user_code.validation import warn

E = TypeVar("E", bound=BuildError)


def seal(pipeline: Pipeline, *, values: bool) -> Pipeline:
    """The pipeline with all functions sealed; with `values`, the elements of `Create` as well.

    Raises PicklingError, naming the step and the variable.
    """
    sealer = Sealer()

    def sealed(part: UserFn | Values, label: str) -> UserFn | Values:
        match part:
            case UserFn():
                return sealer.seal(part)
            case Values():
                return part.sealed(sealer, f"the values of {label!r}") if values else part

    def sealed_node(node: Node) -> Node:
        if isinstance(node, (Iterate, Feedback)):  # first, so that an error names the step in its body
            node = replace(node, body=tuple(map(sealed_node, node.body)))
        try:
            return map_code(node, lambda part: sealed(part, node.label))
        except PicklingError as error:
            raise located(error, node.label, node.where) from error.__cause__

    nodes = list(map(sealed_node, pipeline.nodes))
    collections = map_code(pipeline.collections, lambda part: sealed(part, ""))
    coders = _coders(sealer)
    known = {fn.name for fn in pipeline.classes}
    new = sealer.classes()  # last, since sealing collects them
    classes = (*pipeline.classes, *(fn for fn in new if fn.name not in known))
    distributions = {
        (part.code.distribution, part.code.version or "")
        for part in code_of((tuple(nodes), collections, coders))
        if isinstance(part, UserFn) and isinstance(part.code, ImportRef) and part.code.distribution
    }
    return replace(
        pipeline,
        nodes=tuple(nodes),
        collections=collections,
        classes=classes,
        coders=coders,
        environment=replace(pipeline.environment, distributions=tuple(sorted(distributions))),
    )


def warn_if_idle(pipeline: Pipeline) -> None:
    """Warn the author of a pipeline that is about to run if all its steps will be dropped."""
    if pipeline.nodes and not any(map(has_effects, pipeline.nodes)):
        last = pipeline.nodes[-1]
        warn(
            f"the pipeline {pipeline.name!r} does nothing: no step reads what {last.label!r} makes, so that step and "
            "all before it are dropped. Write it, print it with `| tg.Map(print)`, or look at it with collect()",
            last.where,
        )


def interrupt_message(pipeline: Pipeline) -> tuple[str, str]:
    """The two lines shown when Ctrl-C has ended a run of this pipeline."""
    writes = any(isinstance(node, Write) for node in pipeline.nodes)
    return (
        f"Interrupted: the run of the pipeline {pipeline.name!r} was stopped.",
        "Its output is as it was before: it appears when a run succeeds." if writes else "Nothing is left of it.",
    )


def located(error: E, label: str, where: Where, inside: Where | None = None) -> E:
    """Add the step and the line at which it was applied to the error's message, unless an inner step has done so.

    `inside` is the author's line in the step's `expand` that was refused.
    """
    if getattr(error, "step", None) is None:
        place = f"\n  in step {label!r}, applied at {where}"
        if inside is not None:
            place += f"\n  while its expand was at {inside}"
        error.args = (redacted(str(error.args[0] if error.args else error)) + place,)
        error.step = label  # type: ignore[attr-defined]
    return error


def this_environment() -> Environment:
    """The minor version of this Python and the version of Tidegate."""
    from tidegate._version import __version__

    return Environment(f"{sys.version_info.major}.{sys.version_info.minor}", __version__)


def _coders(sealer: Sealer) -> tuple[tuple[UserFn, UserFn], ...]:
    coders = sys.modules.get("tidegate.sdk.data.coders")
    if coders is None:
        return ()
    pairs: Any = coders.registered()
    return tuple((sealer.seal(UserFn.of(cls)), sealer.seal(UserFn.of(coder))) for cls, coder in pairs)
