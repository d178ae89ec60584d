"""Applying steps: choosing their labels, appending their nodes, and replacing the steps of a cell that is run again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tidegate.sdk.errors import BuildError
from tidegate.sdk.notebook import Execution, current_execution
from tidegate.sdk.portable import model as nodes
from tidegate.sdk.portable.integrity import reads
from tidegate.sdk.portable.seal import located
from tidegate.sdk.steps.applied_steps import AppliedStep, AppliedSteps
from tidegate.sdk.steps.pvalue import PValue, inputs_of, values_in
from tidegate.sdk.steps.transform import Transform, check_label
from tidegate.sdk.user_code.frames import Where, calling_instruction
from tidegate.sdk.user_code.never_run import PipelineUsage
from tidegate.sdk.user_code.validation import warn

T = TypeVar("T")


class StepBuilder:
    """Applies steps, which may be nested, and records them in `steps`; `usage` counts them, if given."""

    def __init__(self, steps: AppliedSteps, usage: PipelineUsage | None = None) -> None:
        self.steps = steps
        self._usage = usage
        self._stack: list[AppliedStep] = []
        self._loops = 0
        """How many loops have bodies that are being built."""

    @property
    def current(self) -> AppliedStep:
        """The innermost step being applied."""
        return self._stack[-1]

    def enter(self, step: AppliedStep) -> None:
        """Make `step`, which is inside the current step, the current one."""
        self._stack.append(step)

    def leave(self) -> None:
        """Make the enclosing step the current one again."""
        self._stack.pop()

    def begin(self, transform: Transform, input: Any, where: Where) -> AppliedStep:
        """Record the step that is about to be applied under a unique label, and remove the steps it replaces."""
        outer = self._stack[-1] if self._stack else None
        execution = current_execution() if outer is None else outer.execution
        inputs = inputs_of(input)
        if transform.label is not None:
            check_label(transform.label)
        name = transform.label or transform.default_label()
        path = label = f"{outer.path}/{name}" if outer is not None else name
        at = calling_instruction() if outer is None and execution is not None else None
        step = AppliedStep(path, where, outer=outer, execution=execution, at=at)
        try:
            for value in inputs:
                check_not_removed(value)
            if outer is None:
                self.remove_steps_of_earlier_runs(execution, inputs, where)
            other = self.steps.by_path.get(path)
            if other is not None and transform.label:
                if not self._may_replace(other, step):
                    raise BuildError(f"another step is already labelled {path!r}: give this one a label of its own")
                self._replace([other.outermost], inputs, where)
        except BuildError as error:
            raise located(error, path, where).with_traceback(None) from error.__cause__
        ordinal = 2
        while path in self.steps.by_path:
            path = f"{label}#{ordinal}"
            ordinal += 1
        step = replace(step, path=path, numbered=path != label)
        self.steps.by_path[path] = step
        return step

    def add(
        self, make: Callable[..., nodes.Node], outputs: Sequence[PValue], inputs: Iterable[str], **parts: Any
    ) -> None:
        """Append the node of the primitive being applied; `outputs` begins with the main one."""
        step = self.current
        node = make(
            label=step.path,
            where=step.where,
            composite="" if step.outer is None else step.outer.path,
            inputs=tuple(inputs),
            outputs=tuple(nodes.Output(out.tag, out.id) for out in outputs),
            numbered=any(s.numbered for s in self._stack),
            **parts,
        )
        for id in reads(node):
            self.check_readable(id)
        if reads_round(node) and not self._loops:
            raise BuildError(
                "tg.DoFn.RoundParam is the number of a loop's round, and this step is in no loop: apply it in the body "
                "of a tg.Iterate"
            )
        self.steps.nodes.append(node)
        if self._usage is not None:
            self._usage.steps += 1
        for out in outputs:
            self.steps.collections[out.id] = out.as_data()

    @property
    def in_loop(self) -> bool:
        """Whether the body of a loop is being built."""
        return self._loops > 0

    def check_readable(self, id: str) -> None:
        """Raise BuildError if no new step can read the collection: it was removed, or exists in a loop's body alone."""
        if id in self.steps.collections:
            return
        if loop := self.steps.loop_of.get(id):
            raise BuildError(
                f"PCollection({id!r}) exists only in the rounds of {loop!r}, and can't be used outside. To get what "
                "all rounds put in it, return it from the body: tg.Round(new, out={...})"
            )
        raise BuildError(_removed(id))

    def leading_to(self, id: str) -> list[nodes.Node]:
        """The nodes upstream of a collection; BuildError if they can't be run by themselves."""
        self.check_readable(id)
        leading = self.steps.leading_to(id)
        made = {out.collection for node in leading for out in node.outputs}
        if {id, *(each for node in leading for each in reads(node))} - made:
            raise BuildError(
                f"PCollection({id!r}) exists only in the rounds of a loop, and nothing runs while the loop's body is "
                "called. To look at what all rounds put in it, return it from the body: tg.Round(new, out={...})"
            )
        return leading

    def capture(self, variables: Sequence[PValue], build: Callable[[], T]) -> tuple[T, Body]:
        """Call `build`, which applies the steps of a loop's body to `variables`, and take them out of the pipeline.

        The steps that depend on no variable stay, in front of the loop, so that they run once.
        """
        steps, before = self.steps, len(self.steps.nodes)
        steps.collections.update((variable.id, variable.as_data()) for variable in variables)
        self._loops += 1
        try:
            result = build()
        finally:
            self._loops -= 1
            inside = {variable.id: steps.collections.pop(variable.id) for variable in variables}
            steps.loop_of.update(dict.fromkeys(inside, self.current.path))
        body: list[nodes.Node] = []
        once: list[nodes.Node] = []
        for node in steps.nodes[before:]:
            if reads_round(node) or any(id in inside for id in reads(node)):
                body.append(node)
                inside |= {out.collection: steps.collections.pop(out.collection) for out in node.outputs}
            else:
                once.append(node)
        steps.nodes[before:] = once
        steps.loop_of.update(dict.fromkeys(inside, self.current.path))
        return result, Body(tuple(body), tuple(once), inside)

    def claim(self, written: Hashable, name: str) -> None:
        """Record that the current step writes `written`, called `name` in messages; BuildError if another step does."""
        step = self.current
        other = self.steps.claimed.get(written, step)
        if other is not step and self._may_replace(other, step):
            self._replace([other.outermost], (), step.where)
            other = step
        self.steps.claimed[written] = other
        if other is not step:
            raise BuildError(
                f"the step {other.path!r}, applied at {other.where}, already writes {name!r}: one step would overwrite "
                "the other's output. Write to another name, or write both collections in one step: "
                "`(a, b) | tg.Flatten() | ...`"
            )

    def remove(self, steps: Sequence[AppliedStep]) -> None:
        """Remove steps with everything inside them; no other step may read their outputs, which can't be used again."""
        made = self.steps.made_by(steps)
        for result in self.steps.remove(steps):
            for value in values_in(result):
                value.is_removed = value.is_removed or value.id in made
        if self._usage is not None:
            self._usage.steps = len(self.steps.nodes)

    def drop_scratch(self, values: Iterable[PValue]) -> None:
        """Remove the steps applied in the same expression that computes `values`, as in `(pcoll | Map(f)).head()`.

        No variable holds their results, so nothing can use them later. This is done only in notebooks and at prompts,
        where a failed attempt would otherwise stay in the pipeline. Steps that write or that others read are left.
        """
        execution, call = current_execution(), calling_instruction()
        if execution is None or call is None:
            return
        for value in values:
            scratch = {
                step
                for node in self.steps.leading_to(value.id)
                for step in [self.steps.by_path[node.label].outermost]
                if step.execution == execution and step.at is not None and step.at.in_one_expression_with(call)
            }
            derived = self.steps.with_derived(scratch)
            if set(derived) == scratch and not any(
                isinstance(node, nodes.Write) for node in self.steps.nodes_of(scratch)
            ):
                self.remove(derived)

    def remove_steps_of_earlier_runs(
        self, execution: Execution | None, inputs: Sequence[PValue] = (), where: Where | None = None
    ) -> None:
        """In a cell that is run again, remove the steps that its earlier runs applied."""
        if execution is None or execution.cell is None:
            return

        def of_earlier_run(step: AppliedStep) -> bool:
            earlier = step.execution
            return earlier is not None and earlier.cell == execution.cell and earlier != execution

        self._replace(self.steps.outermost(of_earlier_run), inputs, where)

    def _may_replace(self, other: AppliedStep, step: AppliedStep) -> bool:
        """Whether a step whose label is taken is a later version of that step, like a variable assigned again."""
        return (
            step.execution is not None
            and other.execution is not None
            and other.execution != step.execution
            and step.outermost not in self.steps.with_derived([other.outermost])
        )

    def _replace(self, steps: Sequence[AppliedStep], inputs: Sequence[PValue], where: Where | None = None) -> None:
        """Remove steps that are being applied again, and all steps downstream of them.

        Warns of removed steps that other cells must apply again. BuildError if the new step reads a removed collection.
        """
        if not steps:
            return
        removed = self.steps.with_derived(steps)
        made = self.steps.made_by(removed)
        for value in inputs:
            if value.id in made:
                raise BuildError(
                    f"this step replaces {steps[0].path!r}, applied at {steps[0].where}, but its input {value.id!r} "
                    "was made by that step or downstream of it. First run the cell that gives the input its first "
                    "value, or assign what this cell makes to another variable"
                )
        self.remove(removed)
        applied_again = {step.execution for step in steps}
        others = [step for step in removed if step.execution not in applied_again]
        if others:
            named = ", ".join(f"{step.path!r} ({step.where})" for step in others)
            warn(
                f"removed from the pipeline, because a step they read from was replaced: {named}. Run them again", where
            )


@dataclass(frozen=True, slots=True)
class Body:
    """The steps of a loop's body that depend on its variables, the steps that run once in front of the loop, and the
    collections that exist in the body alone, by id."""

    repeated: tuple[nodes.Node, ...]
    once: tuple[nodes.Node, ...]
    collections: Mapping[str, nodes.Collection]


def reads_round(node: nodes.Node) -> bool:
    """Whether the author's function asks for the number of the round."""
    if not isinstance(node, nodes.ParDo):
        return False
    params = (*node.params, *(param for callback in node.callbacks for param in callback.params))
    return any(param.kind == "round" for param in params)


def check_not_removed(value: PValue) -> None:
    """Raise BuildError for a collection whose step has been removed."""
    if value.is_removed:
        raise BuildError(_removed(value.id))


def _removed(id: str) -> str:
    return (
        f"PCollection({id!r}) is no longer in the pipeline: its step, or one upstream of it, was deleted or replaced. "
        "Apply its step again; in a notebook, run its cell again"
    )
