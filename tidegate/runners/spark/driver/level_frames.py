"""DataFrames of the rows that levels emit."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts
from tidegate.runners.spark.plan.task_spec import BroadcastView, Round, TaskSpec
from tidegate.runners.spark.shuffle.row_codec import schema
from tidegate.runners.spark.worker.entry import task_function

if TYPE_CHECKING:
    from tidegate.runners.spark.driver.element_counts import LiveCounts


class LevelFrames:
    """Has the tasks of a run's levels run on DataFrames."""

    def __init__(
        self,
        spark: Any,
        run_id: str,
        partitions: int,
        package_paths: tuple[str, ...],
        artifacts: Artifacts,
        counts: LiveCounts | None,
    ) -> None:
        self.spark = spark
        self.run_id = run_id
        self.partitions = partitions
        self.package_paths = package_paths
        self._artifacts = artifacts
        self._counts = counts
        self._payloads: dict[int, bytes | Artifact] = {}

    def map_level(
        self,
        frame: Any,
        spec: TaskSpec,
        level: int,
        frame_steps: tuple[int, ...] = (),
        of_round: tuple[str, Round] | None = None,
    ) -> Any:
        """The rows that a level emits for a DataFrame of rows, or of what `frame_steps` read. `of_round`: the label of
        the loop in whose body the level is, and its round."""
        steps = [spec.plan.steps[id] for id in frame_steps] or spec.levels.steps(spec.plan, level)
        name = " + ".join(dict.fromkeys(node.label for step in steps for node in step.nodes)) or "pass on"
        counts = None if self._counts is None else self._counts.accumulator
        told = None if of_round is None else (of_round[0], pickle.dumps(of_round[1], 5))
        payload = self._payload(spec, level)
        run = task_function(name[:200], self.package_paths, payload, self.run_id, level, frame_steps, counts, told)
        return frame.mapInArrow(run, schema())

    def discard(self, sides: Iterable[BroadcastView]) -> None:
        """Remove the files of side inputs that no task reads again."""
        for side in sides:
            if not isinstance(side.data, bytes):
                self._artifacts.discard(side.data)

    def end_action(self) -> None:
        """An action is over, and the run's metrics are complete as far as it."""
        if self._counts is not None:
            self._counts.end_action()

    def _payload(self, spec: TaskSpec, level: int) -> bytes | Artifact:
        """The pickled specification of a level: bytes for the closure, or an artifact if it is large."""
        payload = self._payloads.get(level)
        if payload is None:
            data = pickle.dumps(spec.of_level(level), 5)
            payload = data if len(data) <= 2 * CLOSURE_BYTES else self._artifacts.publish_bytes(data)
            self._payloads[level] = payload
        return payload
