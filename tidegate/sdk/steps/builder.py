"""The steps of a pipeline while they are applied: their labels, the nodes they append, and what a step applied anew
replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tidegate.sdk.errors import BuildError
from tidegate.sdk.notebook import Execution, current_execution
from tidegate.sdk.portable import model as nodes
from tidegate.sdk.portable.integrity import reads
from tidegate.sdk.portable.seal import located
from tidegate.sdk.steps.applied_steps import AppliedStep, AppliedSteps
from tidegate.sdk.steps.pvalue import PValue, inputs_of, values_in
from tidegate.sdk.steps.transform import Transform, check_label
from tidegate.sdk.user_code.frames import Where, calling_instruction
from tidegate.sdk.user_code.never_run import Fate
from tidegate.sdk.user_code.validation import warn


class StepBuilder:
    """Applies steps to `steps`, one inside the other. `fate`: where to count them, if anything does."""

    def __init__(self, steps: AppliedSteps, fate: Fate | None = None) -> None:
        self.steps = steps
        self._fate = fate
        self._stack: list[AppliedStep] = []

    @property
    def current(self) -> AppliedStep:
        """The step being applied, the innermost one."""
        return self._stack[-1]

    def enter(self, step: AppliedStep) -> None:
        """Make `step`, a part of the current one, the one being applied."""
        self._stack.append(step)

    def leave(self) -> None:
        """Go back to the step around the current one."""
        self._stack.pop()

    def begin(self, transform: Transform, input: Any, where: Where) -> AppliedStep:
        """The step that is about to be applied, under its own label; what it replaces is removed."""
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
                check_there(value)
            if outer is None:
                self.replace_own_of_cell(execution, inputs, where)
            other = self.steps.by_path.get(path)
            if other is not None and transform.label:
                if not self._may_replace(other, step):
                    raise BuildError(f"there is a step {path!r} already: labels are unique, so give this one another")
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
        """Append the node of the primitive being applied; the main one of its outputs comes first."""
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
            if id not in self.steps.collections:
                raise BuildError(_gone(id))
        self.steps.nodes.append(node)
        if self._fate is not None:
            self._fate.steps += 1
        for out in outputs:
            self.steps.collections[out.id] = out.as_data()

    def claim(self, written: Hashable, name: str) -> None:
        """Note that the step being applied writes this; `name` is for people. BuildError if another step does."""
        step = self.current
        other = self.steps.claimed.get(written, step)
        if other is not step and self._may_replace(other, step):
            self._replace([other.outermost], (), step.where)
            other = step
        self.steps.claimed[written] = other
        if other is not step:
            raise BuildError(
                f"{name!r} is what the step {other.path!r}, applied at {other.where}, writes: one would overwrite the "
                "other's output. Give this step another name to write to, or write both collections in one step: "
                "`(a, b) | tg.Flatten() | ...`"
            )

    def remove(self, steps: Sequence[AppliedStep]) -> None:
        """Remove steps with all their parts; nothing else may read what they made. Its collections are gone."""
        made = self.steps.made_by(steps)
        for result in self.steps.take_out(steps):
            for value in values_in(result):
                value.is_gone = value.is_gone or value.id in made
        if self._fate is not None:
            self._fate.steps = len(self.steps.nodes)

    def drop_scratch(self, values: Iterable[PValue]) -> None:
        """Remove the steps that were applied in the very expression of a look at `values`.

        Nothing can use them later, since nothing holds what they gave. Only in notebooks and at prompts, where a failed
        attempt would otherwise stay; steps that write, or that lead to others, stay there too.
        """
        execution, look = current_execution(), calling_instruction()
        if execution is None or look is None:
            return
        for value in values:
            scratch = {
                step
                for node in self.steps.leading_to(value.id)
                for step in [self.steps.by_path[node.label].outermost]
                if step.execution == execution and step.at is not None and step.at.in_one_expression_with(look)
            }
            derived = self.steps.with_derived(scratch)
            if set(derived) == scratch and not any(
                isinstance(node, nodes.Write) for node in self.steps.nodes_of(scratch)
            ):
                self.remove(derived)

    def replace_own_of_cell(
        self, execution: Execution | None, inputs: Sequence[PValue] = (), where: Where | None = None
    ) -> None:
        """In a cell that is run again, remove the steps that its earlier runs have applied."""
        if execution is None or execution.cell is None:
            return

        def of_earlier_run(step: AppliedStep) -> bool:
            earlier = step.execution
            return earlier is not None and earlier.cell == execution.cell and earlier != execution

        self._replace(self.steps.outermost(of_earlier_run), inputs, where)

    def _may_replace(self, other: AppliedStep, step: AppliedStep) -> bool:
        """Whether a step that collides with another is a later version of it, as a variable assigned anew is."""
        return (
            step.execution is not None
            and other.execution is not None
            and other.execution != step.execution
            and step.outermost not in self.steps.with_derived([other.outermost])
        )

    def _replace(self, steps: Sequence[AppliedStep], inputs: Sequence[PValue], where: Where | None = None) -> None:
        """Remove steps that are applied anew, and those that derive from them; warn of those that won't come back.

        BuildError if the new step is to read what is removed.
        """
        if not steps:
            return
        gone = self.steps.with_derived(steps)
        made = self.steps.made_by(gone)
        for value in inputs:
            if value.id in made:
                raise BuildError(
                    f"this step takes the place of {steps[0].path!r}, applied at {steps[0].where}, and its input "
                    f"{value.id!r} is what that step, or one after it, made. Run the cell first that gives the input "
                    "its first value, or give what this cell makes a name of its own"
                )
        self.remove(gone)
        again = {step.execution for step in steps}
        others = [step for step in gone if step.execution not in again]
        if others:
            named = ", ".join(f"{step.path!r} ({step.where})" for step in others)
            warn(f"no longer in the pipeline, because what they read is applied anew: {named}. Run them again", where)


def check_there(value: PValue) -> None:
    """Raise BuildError for a collection whose step has been removed."""
    if value.is_gone:
        raise BuildError(_gone(value.id))


def _gone(id: str) -> str:
    return (
        f"PCollection({id!r}) is no longer in the pipeline: the step that made it, or one before that, has been "
        "deleted or applied anew. Apply its step again; in a notebook, run its cell again"
    )
