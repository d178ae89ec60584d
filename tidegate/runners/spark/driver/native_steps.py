"""The part of a run that Spark computes itself: the DataFrames of its regions, and runs that need no worker at all."""

from __future__ import annotations

import contextlib
import hashlib
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.runners.plan import Plan
from tidegate.runners.spark.catalyst.frames import NativeFrames
from tidegate.runners.spark.catalyst.regions import regions_of
from tidegate.runners.spark.catalyst.session import require_settings
from tidegate.runners.spark.catalyst.sources import NativeRows
from tidegate.runners.spark.plan.levels import Levels
from tidegate.runners.spark.plan.task_spec import TaskSpec
from tidegate.runners.spark.task_io.frames import DataFrameSource
from tidegate.sdk.portable.model import ParDo, Read, Write
from tidegate.sdk.user_code.user_fn import Payload, UserFn


@dataclass(slots=True)
class NativeSteps:
    """The sources of a plan whose rows Spark computes, by step, and their DataFrames (None if there are none)."""

    rows: dict[int, NativeRows]
    frames: NativeFrames | None = None

    @staticmethod
    def of(sources: Mapping[int, DataFrameSource], spark: Any) -> NativeSteps:
        """Those among the DataFrame sources. Raises OptionsError if the session isn't set for them."""
        rows = {id: source for id, source in sources.items() if isinstance(source, NativeRows)}
        if not rows:
            return NativeSteps(rows)
        steps = ", ".join(repr(each.collection) for each in rows.values())
        sessions = [spark, *(found for each in rows.values() for found in each.sessions)]
        for session in {id(each): each for each in sessions}.values():
            require_settings(session, steps)
        return NativeSteps(rows, NativeFrames(spark, regions_of(rows), [each.collection for each in rows.values()]))

    def frame(self, step: int) -> Any:
        """The DataFrame that a step reads; None if it is not of a region."""
        return self.frames.frame(self.rows[step].collection) if self.frames is not None and step in self.rows else None

    def attributed_errors(self) -> contextlib.AbstractContextManager[None]:
        """Attributes errors of expressions to the step that has the expression."""
        return contextlib.nullcontext() if self.frames is None else self.frames.attributed_errors()

    def close(self) -> None:
        """Unpersist what was persisted."""
        if self.frames is not None:
            self.frames.close()

    def for_workers(self, plan: Plan) -> Plan:
        """The plan as tasks need it: the sources without their regions."""
        if not self.rows:
            return plan
        steps = list(plan.steps)
        nodes = {node.label: node for node in plan.pipeline.nodes}
        for id, rows in self.rows.items():
            head = steps[id].head
            assert isinstance(head, Read)
            bare = replace(head, source=_sealed(replace(rows, region=None)))
            steps[id] = replace(steps[id], nodes=(bare, *steps[id].nodes[1:]))
            nodes[bare.label] = bare
        return replace(plan, steps=tuple(steps), pipeline=replace(plan.pipeline, nodes=tuple(nodes.values())))

    def run_here(self, spec: TaskSpec, run_id: str, levels: Levels) -> Iterator[Any] | None:
        """If the steps just record rows that Spark computes, for this process to read them, run them in this process.

        Returns the Arrow batches that the tasks emit; None for other plans.
        """
        if not self.rows or not needs_no_workers(spec.plan, levels):
            return None
        sinks = [step.tail.sink.load() for step in spec.plan.steps if isinstance(step.tail, Write)]
        return self._run_here(spec, run_id, sinks[-1].limit if sinks and len(self.rows) == 1 else None)

    def _run_here(self, spec: TaskSpec, run_id: str, most: int | None) -> Iterator[Any]:
        from tidegate.runners.spark.worker.task import LevelTask

        yield from LevelTask(spec, run_id, 0, 0).run(())
        for id in self.rows:
            frame = self.frame(id)
            table = (frame if most is None else frame.limit(most)).toArrow()
            yield from LevelTask(spec, run_id, 0, 0, id).run(table.to_batches())


def needs_no_workers(plan: Plan, levels: Levels) -> bool:
    """Whether all that a plan does after Spark has computed rows is to record them for this process to read."""
    if levels.count != 1:
        return False
    for node in (node for step in plan.steps for node in step.nodes):
        match node:
            case Read(source=source) if isinstance(source.load(), NativeRows):
                pass
            case ParDo(fn=fn, side_inputs=()) if getattr(type(fn.load()), "light", False):
                pass
            case Write(sink=sink) if sink.load().read_back:
                pass
            case _:
                return False
    return True


def _sealed(rows: NativeRows) -> UserFn:
    data = pickle.dumps(rows, protocol=5)
    return UserFn(rows.name, None, Payload(data, hashlib.sha256(data).hexdigest()))
