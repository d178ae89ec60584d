"""One run on Spark: builds a DataFrame of rows from the levels of each action, runs it, and collects its results.

Most pipelines run as one action. Each depth of computed side inputs needs an action before that. Elements that a later
action needs are persisted until the run ends.
"""

from __future__ import annotations

import contextlib
import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import _version
from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Plan, Step
from tidegate.runners.spark.driver.element_counts import LiveCounts
from tidegate.runners.spark.driver.native_steps import NativeSteps
from tidegate.runners.spark.driver.spark_settings import parallelism
from tidegate.runners.spark.driver.split_assignment import assign_inputs, without_values
from tidegate.runners.spark.driver.worker_env import packages_in
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts
from tidegate.runners.spark.plan.column_types import inherited_columns, preferred_schema, unify
from tidegate.runners.spark.plan.failures import NOT_DETERMINISTIC, translated_errors
from tidegate.runners.spark.plan.levels import assign_levels, shuffles
from tidegate.runners.spark.plan.task_spec import Inputs, TaskSpec, numbered_edges
from tidegate.runners.spark.shuffle.row_codec import (
    ORDER,
    RESULT,
    decode_blocks,
    decode_result,
    read_rows,
    reassembled,
    schema,
)
from tidegate.runners.spark.side_inputs.broadcast import SideInputBroadcaster
from tidegate.runners.spark.task_io.frames import (
    DataFrameSink,
    DataFrameSource,
    arrow_schema,
    dataframe_edge,
    dataframe_sinks,
    dataframe_sources,
    grouped_by_schema,
    spark_schema,
    typed_batches,
    union,
)
from tidegate.runners.spark.task_io.staging import add_piece, staging_folder
from tidegate.runners.spark.worker.entry import task_function
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError, TidegateError, visible
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.options.defaults import default_memory_budget
from tidegate.sdk.portable.model import Create
from tidegate.sdk.portable.secrets import secrets_of

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions


@dataclass(slots=True)
class Outcome:
    """The results of a run: the committables of each sink, and the reported schemas of each DataFrame, by step."""

    committables: dict[int, list[Committable]] = field(default_factory=dict)
    columns: dict[int, list[bytes]] = field(default_factory=dict)


class Execution:
    """Executes a plan. Merges the metrics of each action into `metrics` when it ends; runs each one inside
    `describe(text)`."""

    def __init__(
        self,
        spark: Any,
        plan: Plan,
        options: SparkOptions,
        run_id: str,
        metrics: MetricCells,
        artifacts: Artifacts,
        *,
        counts: LiveCounts | None = None,
        staging: Path,
        local: bool,
        describe: Callable[[str], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._spark = spark
        self._metrics = metrics
        self._describe = describe
        self._name = visible(plan.pipeline.name)
        self._levels = assign_levels(plan)
        self._partitions = options.spark_partitions or parallelism(spark)
        self._package_paths = package_paths(options, local=local)
        self._artifacts = artifacts
        self._counts = counts
        self._run_id = run_id
        self._frame_sources = dataframe_sources(plan)
        self._frame_sinks = dataframe_sinks(plan)
        only_side_inputs = {step.id for step in plan.steps if self._levels.of_step[step.id] < 0}
        self._inputs = assign_inputs(plan, self._partitions, artifacts, only_side_inputs.union(self._frame_sources))
        self._native = NativeSteps.of(self._frame_sources, spark)
        self._opened_frames = {id: self._open(source, plan.steps[id]) for id, source in self._frame_sources.items()}
        self._frame_schemas = {id: self._schema_of(sink, plan.steps[id]) for id, sink in self._frame_sinks.items()}
        inferred = [id for id, schema in self._frame_schemas.items() if schema is None]
        read = {id: frame.schema for id, frame in self._opened_frames.items()} if inferred else {}
        self._inherited = {id: inherited_columns(plan, read, id) for id in inferred}
        self._plan = self._native.for_workers(without_values(plan))
        self._persisted: list[Any] = []
        self._persisted_levels: list[tuple[int, Any]] = []
        self._payloads: dict[int, bytes | Artifact] = {}
        self._persisted_checksums: Counter[int] = Counter()
        self._side_inputs = SideInputBroadcaster(plan, self._artifacts, self._side_input_context(options))
        self._add_created_side_inputs(plan)
        self._spec = TaskSpec(
            self._plan,
            self._levels,
            numbered_edges(self._plan),
            Inputs({}, {}, {}),
            self._partitions,
            options.memory_budget,
            options.temp_dir,
            options.type_check == "runtime",
            options.max_end_timers,
            frames=self._frame_schemas,
            preferred={id: preferred_schema(columns) for id, columns in self._inherited.items()},
            staging=staging if local else None,
            secrets=secrets_of(plan.pipeline),
            inline=options.inline,
        )
        self._staging = staging
        self._outcome = Outcome()
        self._last_level_rows: Any = None

    def run(self) -> Outcome:
        """Run every action, in order."""
        if self._levels.count:  # the plan has no steps if none has an effect
            for action, start in enumerate(self._levels.starts):
                self._run_action(action, start)
        return self._outcome

    def dataframes(self) -> dict[str, Any]:
        """Compute the DataFrames that the run returns to its author, in one action, and write those of other sinks, in
        one action each. Returns the former by label."""
        frames: dict[int, Any] = {}
        persisted: dict[int, Any] = {}
        try:
            for id, sink in self._frame_sinks.items():
                with _located_in(self._plan.steps[id]):
                    frames[id] = self._with_columns(self._plan.steps[id], sink)
                    if sink.returned:
                        persisted[id] = frames[id].persist()
            self._materialize(persisted)
            for id in [id for id in frames if id not in persisted]:
                step = self._plan.steps[id]
                with self._describe(f"{self._name}: {visible(step.label)}"), _located_in(step):
                    self._frame_sinks[id].save_dataframe(frames[id])
        except BaseException:
            for frame in persisted.values():
                with contextlib.suppress(Exception):
                    frame.unpersist()
            raise
        return {self._plan.steps[id].label: frame for id, frame in persisted.items()}

    def _materialize(self, persisted: dict[int, Any]) -> None:
        """Have Spark compute persisted DataFrames, all in one action."""
        if not persisted:
            return
        labels = ", ".join(self._plan.steps[id].label for id in persisted)
        with self._describe(f"{self._name}: {visible(labels)}"):
            try:
                with translated_errors():
                    union([frame.selectExpr("0") for frame in persisted.values()]).count()
            except RunError:
                for id, frame in persisted.items():  # find the step to blame: only its DataFrame fails again
                    with _located_in(self._plan.steps[id]):
                        frame.count()
                raise

    def close(self) -> None:
        """Unpersist the elements that were persisted between actions."""
        self._native.close()
        for frame in self._persisted:
            with contextlib.suppress(Exception):  # the session may have been stopped
                frame.unpersist()

    def _open(self, source: DataFrameSource, step: Step) -> Any:
        with _located_in(step):
            native = self._native.frame(step.id)
            return source.open_dataframe(self._spark) if native is None else native

    def _schema_of(self, sink: DataFrameSink, step: Step) -> bytes | None:
        with _located_in(step):
            return None if sink.columns is None else arrow_schema(self._spark, sink.columns)

    # -- side inputs

    def _side_input_context(self, options: SparkOptions) -> Context:
        def no_folder() -> Path:
            raise RunError("a side input does not fit --memory_budget on the driver, which groups it")

        return Context(options.memory_budget or default_memory_budget(), no_folder, self._metrics)

    def _add_created_side_inputs(self, plan: Plan) -> None:
        """Add the elements of each `Create` that is a side input: they need no action."""
        side_collections = {edge.collection for edge in plan.edges if edge.side is not None}
        for step in plan.steps:
            if isinstance(step.head, Create) and step.outputs[0] in side_collections:
                block = Block.of_elements(step.head.values.load())
                self._side_inputs.add(step.outputs[0], [block])
                if self._levels.of_step[step.id] < 0 and len(block):
                    self._metrics.count(MetricKey(step.label, ENGINE, "elements_out"), len(block))

    # -- actions

    def _run_action(self, action: int, start: int) -> None:
        levels, plan = self._levels, self._plan
        end = levels.starts[action + 1] if action + 1 < len(levels.starts) else levels.count
        steps = [step for step in plan.steps if start <= levels.of_step[step.id] < end]
        spec = replace(self._spec, inputs=self._inputs, sides=self._side_inputs.views_of(steps))
        persisted = [number for number, edge in enumerate(spec.edges) if levels.persisted(edge)]
        labels = ", ".join(dict.fromkeys(node.label for step in steps for node in step.nodes))
        with self._describe(f"{self._name}: {visible(labels)}"), translated_errors(), self._native.attributed_errors():
            here = self._native.run_here(spec, self._run_id, levels)
            if here is not None:
                rows = list(read_rows(here))
            else:
                frame = self._frame(spec, start, end, persisted)
                if self._frame_schemas and end == levels.count:
                    frame = frame.where(frame["edge"] == RESULT)
                rows = frame.collect()
        pieces = ((src, seq, left, bytes(data)) for _, _, src, seq, left, data in rows)
        self._collect(map(decode_result, reassembled(pieces)))
        if self._counts is not None:
            self._counts.end_action()

    def _frame(self, spec: TaskSpec, start: int, end: int, persisted: list[int]) -> Any:
        """The DataFrame of the rows that the last of these levels emits. Rows on `persisted` edges are persisted."""
        levels = self._levels
        producers = {levels.of_step[spec.edges[number].source] for number in persisted}
        frame: Any = None
        for level in range(start, end):
            if level == start:
                frame = self._first_level(spec, level)
            else:
                frame = frame.repartitionById(levels.partitions(level, self._partitions), "target")
                frame = self._map_level(frame.sortWithinPartitions(*ORDER), spec, level)
            if level in producers or (level == levels.count - 1 and self._frame_schemas):
                frame = frame.persist()
                self._persisted.append(frame)
                if level in producers:
                    self._persisted_levels.append((level, frame))
                    frame = frame.where(~frame["edge"].isin(persisted))
        self._last_level_rows = frame
        return frame

    def _first_level(self, spec: TaskSpec, level: int) -> Any:
        """The first level of an action: tasks for sources and persisted elements, and further ones for DataFrames."""
        steps = spec.levels.steps(spec.plan, level)
        frame_steps = [step for step in steps if step.id in self._frame_sources]
        frames = []
        if not self._reads_only_dataframes(level, steps):
            frames.append(self._map_level(self._action_input(spec, level, steps), spec, level))
        for ids, read in grouped_by_schema({step.id: self._opened_frames[step.id] for step in frame_steps}):
            frames.append(self._map_level(read, spec, level, ids))
        return union(frames)

    def _reads_only_dataframes(self, level: int, steps: list[Step]) -> bool:
        """Whether a level reads nothing but DataFrames, and may have no task at all because these have no partitions:
        not in the last level of an action, whose tasks report results even without elements."""
        sources = [step for step in steps if step.is_source]
        last = level + 1 in (*self._levels.starts, self._levels.count)
        return bool(sources) and not last and level == 0 and all(step.id in self._frame_sources for step in sources)

    def _action_input(self, spec: TaskSpec, level: int, steps: list[Step]) -> Any:
        """The rows with which an action begins: persisted ones, or one empty row per task if all tasks read sources."""
        levels = self._levels
        numbers = [
            number
            for number, edge in enumerate(spec.edges)
            if levels.persisted(edge) and levels.action(levels.of_step[edge.target]) == levels.action(level)
        ]
        by_level: dict[int, list[int]] = {}
        for number in numbers:
            by_level.setdefault(levels.of_step[spec.edges[number].source], []).append(number)
        parts = [
            frame.where(frame["edge"].isin(by_level[source]))
            for source, frame in self._persisted_levels
            if source in by_level
        ]
        if not parts:
            sources = [step for step in steps if step.is_source]
            tasks = 1 if sources and all(step.id in self._frame_sources for step in sources) else self._partitions
            return self._spark.range(0, tasks, 1, tasks)
        frame = parts[0]
        for part in parts[1:]:
            frame = frame.unionAll(part)
        if (
            len(parts) > 1
            or any(shuffles(spec.edges[n]) for n in numbers)
            or not self._has_run_partitions(next(iter(by_level)))
        ):
            frame = frame.repartitionById(self._partitions, "target")
        return frame.sortWithinPartitions(*ORDER)

    def _has_run_partitions(self, level: int) -> bool:
        """Whether a level has one task per partition of the run. A level that reads DataFrames has more."""
        reads_frames = any(step.id in self._frame_sources for step in self._levels.steps(self._plan, level))
        return not reads_frames and self._levels.partitions(level, self._partitions) == self._partitions

    def _map_level(self, frame: Any, spec: TaskSpec, level: int, frame_steps: tuple[int, ...] = ()) -> Any:
        steps = [spec.plan.steps[id] for id in frame_steps] or spec.levels.steps(spec.plan, level)
        name = " + ".join(dict.fromkeys(node.label for step in steps for node in step.nodes)) or "pass on"
        counts = None if self._counts is None else self._counts.accumulator
        payload = self._payload(spec, level)
        run = task_function(name[:200], self._package_paths, payload, self._run_id, level, frame_steps, counts)
        return frame.mapInArrow(run, schema())

    def _payload(self, spec: TaskSpec, level: int) -> bytes | Artifact:
        """The pickled specification of a level: bytes for the closure, or an artifact if it is large."""
        payload = self._payloads.get(level)
        if payload is None:
            data = pickle.dumps(spec.of_level(level), 5)
            payload = data if len(data) <= 2 * CLOSURE_BYTES else self._artifacts.publish_bytes(data)
            self._payloads[level] = payload
        return payload

    # -- results of tasks

    def _collect(self, results: Iterable[tuple[str, Any]]) -> None:
        outcome = self._outcome
        side_rows: list[tuple[str, int, int, bytes]] = []
        reread: Counter[int] = Counter()
        for kind, value in results:
            match kind:
                case "metrics":
                    self._metrics.merge(value)
                case "committables":
                    outcome.committables.setdefault(value[0], []).extend(value[1])
                case "staged":
                    step, *piece = value
                    add_piece(staging_folder(self._staging, self._run_id, step), *piece)
                case "columns":
                    outcome.columns.setdefault(value[0], []).extend(value[1])
                case "side":
                    side_rows.append(value)
                case "persisted":
                    self._persisted_checksums.update(value)
                case "reread":
                    reread.update(value)
        if any(self._persisted_checksums[edge] != checksum for edge, checksum in reread.items()):
            raise RunError(f"the run can't be finished: {NOT_DETERMINISTIC}")
        for collection, _, _, data in sorted(side_rows, key=lambda row: row[:3]):
            self._side_inputs.add(collection, decode_blocks(data))

    def _with_columns(self, step: Step, sink: DataFrameSink) -> Any:
        """The DataFrame of a step's elements."""
        schema = self._frame_schemas[step.id]
        if schema is not None:
            columns = spark_schema(self._spark, sink.columns or "")
        else:
            inferred = unify(self._outcome.columns.get(step.id, ()), self._inherited[step.id])
            if inferred is None:
                raise RunError("the columns can't be inferred, because there are no elements: give schema=…")
            schema, columns = inferred
        # Spark keeps the order within a partition, so the pieces of a long row stay consecutive.
        rows = self._last_level_rows.where(self._last_level_rows["edge"] == dataframe_edge(step.id))
        return rows.mapInArrow(typed_batches(schema, step.label[:200]), columns)


@contextlib.contextmanager
def _located_in(step: Step) -> Iterator[None]:
    """Translate errors into Tidegate's, located in this step."""
    try:
        with translated_errors():
            yield
    except TidegateError as error:
        rethrow(located(error, step.label, step.tail.where))


def package_paths(options: SparkOptions, *, local: bool) -> tuple[str, ...]:
    """Additional entries of the workers' `sys.path`: for a local master the folder from which this process imports
    Tidegate, else the packages of the archive that was sent to the workers."""
    if local:
        return (str(Path(_version.__file__).resolve().parents[1]),)
    return packages_in(options.spark_archive)
