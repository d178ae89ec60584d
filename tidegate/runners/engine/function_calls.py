"""Says of each function in a plan whether the loops over its elements contain its text or call it, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tidegate.runners.engine.elementwise.fused_node import load_link
from tidegate.runners.engine.grouping.combiners import load_combiner
from tidegate.runners.engine.grouping.fold_codegen import adding_function
from tidegate.runners.engine.grouping.operator import TABLE_PATHS
from tidegate.runners.engine.loops.inlining import Inlining
from tidegate.runners.engine.loops.inlining import Step as Inlinable
from tidegate.runners.engine.sources.timestamps import TimestampFunction
from tidegate.runners.plan import Plan, Step
from tidegate.sdk.portable.model import AssignWindows, CombinePerKey, ParDo, Pipeline, Read
from tidegate.sdk.relational.python.generated_functions import GeneratedCombineFn
from tidegate.sdk.runner import RunOptions
from tidegate.sdk.user_code.user_fn import UserFn

OFF: Final = "--inline is off"
NOT_LOADED: Final = "its code is loaded only when it runs"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """How the function of a step is run, and the reason; "unknown" if its code would have to be loaded to know that."""

    step: str
    fn: UserFn
    how: Literal["inlined", "called", "unknown"]
    reason: str = ""


def function_calls(plan: Plan, options: RunOptions, *, load: bool = True) -> Iterator[FunctionCall]:
    """How each function is run, in the order of the plan. Unpickles the functions, unless `load` is False."""
    always = _always_called(options)
    for step in plan.steps:
        if isinstance(step.head, Read) and step.head.stamping is not None and step.head.stamping.timestamp is not None:
            yield _call_for_timestamps(step.label, step.head.stamping.timestamp, inline=options.inline, load=load)
        if step.phase != "merge":
            yield from _calls_of(step, plan.pipeline, always, load=load)


def _calls_of(step: Step, pipeline: Pipeline, always: str, *, load: bool) -> Iterator[FunctionCall]:
    not_inlined: dict[str, str] | None = None
    for node in step.nodes:
        if isinstance(node, (ParDo, CombinePerKey)):
            reason = always or _why_called(node, step)
            if not reason and load:
                not_inlined = not_inlined if not_inlined is not None else _why_not_inlined(step, pipeline)
                reason = not_inlined.get(node.label, "")
            elif not reason and node.fn.body is not None:
                yield FunctionCall(node.label, node.fn, "unknown", NOT_LOADED)
                continue
            elif not reason:
                reason = "its source is not known"
            yield FunctionCall(node.label, node.fn, "called" if reason else "inlined", reason)


def _call_for_timestamps(step: str, fn: UserFn, *, inline: str, load: bool) -> FunctionCall:
    """How the function is run that returns the timestamps of a source's elements."""
    if inline != "off" and not load and fn.body is not None:
        return FunctionCall(step, fn, "unknown", NOT_LOADED)
    if inline != "off" and fn.body is None:
        return FunctionCall(step, fn, "called", "its source is not known")
    reason = TimestampFunction(fn, inline=True).reason if inline != "off" else OFF
    return FunctionCall(step, fn, "called" if reason else "inlined", reason)


def _always_called(options: RunOptions) -> str:
    """Why all functions are called with these options; "" if they need not be."""
    if options.inline == "off":
        return OFF
    return "--checks all checks every element" if options.inline == "on" and options.checks == "all" else ""


def _why_called(node: ParDo | CombinePerKey, step: Step) -> str:
    """Why a function is called, as far as its step says so; "" if it depends on the function."""
    match node:
        case CombinePerKey(params=params) if params:
            return "it is a combiner with extra arguments"
        case CombinePerKey(key="none"):
            return "it is a combiner without keys"
        case CombinePerKey() if step.path not in TABLE_PATHS:
            return f"it is a combiner, and its grouping takes the {step.path} path"
        case ParDo(calls=calls) if calls is not None:
            return "it is called beside the stream"
    return ""


def _why_not_inlined(step: Step, pipeline: Pipeline) -> dict[str, str]:
    """By label, why the functions of a step are not inlined, without those that are."""
    nodes = [node for node in step.nodes if isinstance(node, (ParDo, AssignWindows))]
    links: list[Inlinable] = [load_link(node, pipeline) for node in nodes]
    labels, reasons = [node.label for node in nodes], {}
    match step.tail:
        case CombinePerKey() as node if not _why_called(node, step):
            combiner = load_combiner(node)
            adding = adding_function(combiner, node.fn.body, "whole")
            if adding is not None:
                links, labels = [*links, adding], [*labels, node.label]
            elif not isinstance(combiner, GeneratedCombineFn) or combiner.adding is None:
                reasons[node.label] = "it is a combiner"  # loops have the lines of a generated one in any case
    return reasons | {labels[k]: reason for k, reason in Inlining(links).reasons.items()}
