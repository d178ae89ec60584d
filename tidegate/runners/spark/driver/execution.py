"""One run on Spark: builds a DataFrame of rows from the levels of each action, runs it, and collects its results.

Most pipelines run as one action. Each depth of computed side inputs needs an action before that, and so does each round
of a loop. Elements that a later action needs are persisted until the run ends.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidegate import _version
from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Edge, Plan, Step
from tidegate.runners.spark.driver.element_counts import LiveCounts
from tidegate.runners.spark.driver.level_frames import LevelFrames
from tidegate.runners.spark.driver.loop_rounds import LoopRounds
from tidegate.runners.spark.driver.native_steps import NativeSteps
from tidegate.runners.spark.driver.results import Results, results_of
from tidegate.runners.spark.driver.spark_settings import parallelism
from tidegate.runners.spark.driver.split_assignment import assign_inputs, without_values
from tidegate.runners.spark.driver.stored_rows import StoredRows, filtered, moved_to_places, to_partitions, united
from tidegate.runners.spark.driver.worker_env import packages_in
from tidegate.runners.spark.plan.artifacts import Artifacts
from tidegate.runners.spark.plan.column_types import inherited_columns, preferred_schema, unify
from tidegate.runners.spark.plan.failures import RowsLost, translated_errors
from tidegate.runners.spark.plan.levels import assign_levels, shuffles
from tidegate.runners.spark.plan.task_spec import Inputs, TaskSpec, labels_read, numbered_edges
from tidegate.runners.spark.shuffle.row_codec import ORDER, RESULT, decode_blocks, read_rows
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
        self._artifacts = artifacts
        self._run_id = run_id
        self._frames = LevelFrames(
            spark, run_id, self._partitions, package_paths(options, local=local), artifacts, counts
        )
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
        self._stored: dict[int, StoredRows] = {}
        """The rows that later actions read, by their number."""
        self._counted = -1
        """The last action whose metrics count: actions may run again."""
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
        self._loops = {
            actions.first: LoopRounds(
                self._plan.loop(actions.label), actions, self._frames, self._spec, self._side_inputs, metrics, describe
            )
            for actions in self._levels.loops
        }
        self._staging = staging
        self._outcome = Outcome()
        self._last_level_rows: Any = None

    def run(self) -> Outcome:
        """Run every action, in order. If what a loop has left is lost, go on from the first loop again, once."""
        action = 0
        restarted = False
        while action < len(self._levels.starts) and self._levels.count:  # the plan has no steps if none has an effect
            try:
                action = self._run_from(action)
            except RowsLost:
                if restarted or action <= min(self._loops, default=action):
                    raise
                action, restarted = min(self._loops), True
        return self._outcome

    def _run_from(self, action: int) -> int:
        """Run an action, or all rounds of the loop that begins with it; returns the number of the next action."""
        rounds = self._loops.get(action)
        if rounds is None:
            self._run_action(action, self._levels.starts[action])
            return action + 1
        self._stored |= rounds.run(self._stored)
        return rounds.actions.last + 1

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
                # By itself only the DataFrame to blame fails again. If none does, the plan had one of the author's
                # checkpoints several times, and Spark didn't find what it has persisted of it.
                for id, frame in persisted.items():
                    with _located_in(self._plan.steps[id]):
                        frame.count()

    def close(self) -> None:
        """Unpersist the elements that were persisted between actions."""
        self._native.close()
        for rounds in self._loops.values():
            rounds.close()
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
                self._side_inputs.put(step.outputs[0], [block])
                if self._levels.of_step[step.id] < 0 and len(block):
                    self._metrics.count(MetricKey(step.label, ENGINE, "elements_out"), len(block))

    # -- actions

    def _run_action(self, action: int, start: int) -> None:
        levels, plan = self._levels, self._plan
        end = levels.end(action)
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
                    frame = frame.where(f"edge = {RESULT}")
                rows = frame.collect()
        self._take(results_of(rows), first_time=action > self._counted)
        self._counted = max(self._counted, action)
        self._frames.end_action()

    def _frame(self, spec: TaskSpec, start: int, end: int, persisted: list[int]) -> Any:
        """The DataFrame of the rows that the last of these levels emits. Rows on `persisted` edges are persisted."""
        levels = self._levels
        by_producer: dict[int, list[int]] = {}
        for number in persisted:
            by_producer.setdefault(levels.of_step[spec.edges[number].source], []).append(number)
        frame: Any = None
        for level in range(start, end):
            if level == start:
                frame = self._first_level(spec, level)
            else:
                frame = frame.repartitionById(levels.partitions(level, self._partitions), "target")
                frame = self._frames.map_level(frame.sortWithinPartitions(*ORDER), spec, level)
            if level in by_producer or (level == levels.count - 1 and self._frame_schemas):
                frame = frame.persist()
                self._persisted.append(frame)
                stored = by_producer.get(level, ())
                self._stored |= {number: StoredRows((frame,)) for number in stored}
                if stored:  # what earlier actions have persisted passes through, to later levels of this one
                    frame = frame.where(f"edge NOT IN ({', '.join(map(str, stored))})")
        self._last_level_rows = frame
        return frame

    def _first_level(self, spec: TaskSpec, level: int) -> Any:
        """The first level of an action: tasks for sources and persisted elements, and further ones for DataFrames."""
        steps = spec.levels.steps(spec.plan, level)
        frame_steps = [step for step in steps if step.id in self._frame_sources]
        frames = []
        if not self._reads_only_dataframes(level, steps):
            frames.append(self._frames.map_level(self._action_input(spec, level, steps), spec, level))
        for ids, read in grouped_by_schema({step.id: self._opened_frames[step.id] for step in frame_steps}):
            frames.append(self._frames.map_level(read, spec, level, ids))
        return union(frames)

    def _reads_only_dataframes(self, level: int, steps: list[Step]) -> bool:
        """Whether a level reads nothing but DataFrames, and may have no task at all because these have no partitions:
        not in the last level of an action, whose tasks report results even without elements."""
        sources = [step for step in steps if step.is_source]
        last = level + 1 in (*self._levels.starts, self._levels.count)
        return bool(sources) and not last and level == 0 and all(step.id in self._frame_sources for step in sources)

    def _action_input(self, spec: TaskSpec, level: int, steps: list[Step]) -> Any:
        """The rows with which an action begins: persisted ones, or one empty row per task if all tasks read sources."""
        levels, edges = self._levels, spec.edges
        read = labels_read(edges, levels, lambda edge: levels.persisted(edge) and levels.start_of(edge) == level)
        parts = filtered(self._stored, sorted(read))
        if not parts:
            sources = [step for step in steps if step.is_source]
            tasks = 1 if sources and all(step.id in self._frame_sources for step in sources) else self._partitions
            return self._spark.range(0, tasks, 1, tasks)
        if len(parts) > 1:
            moved = [moved_to_places(part, self._partitions, self._partitions) for part in parts]
            frame = to_partitions(united(moved, self._partitions), self._partitions)
        elif all(self._stays(label, edges) for label in read if label in self._stored):
            frame = parts[0]
        else:
            frame = parts[0].repartitionById(self._partitions, "target")
        return frame.sortWithinPartitions(*ORDER)

    def _stays(self, label: int, edges: Sequence[Edge]) -> bool:
        """Whether the rows of a number are in the partitions that read them."""
        if self._stored[label].moved:
            return True
        return not shuffles(edges[label]) and self._has_run_partitions(self._levels.of_step[edges[label].source])

    def _has_run_partitions(self, level: int) -> bool:
        """Whether a level has one task per partition of the run. A level that reads DataFrames has more."""
        reads_frames = any(step.id in self._frame_sources for step in self._levels.steps(self._plan, level))
        return not reads_frames and self._levels.partitions(level, self._partitions) == self._partitions

    # -- results of tasks

    def _take(self, results: Results, *, first_time: bool) -> None:
        """Take the results of an action. Metrics count the `first_time` that it runs."""
        outcome = self._outcome
        if first_time:
            self._metrics.merge(results.metrics)
        for id, committables in results.committables.items():
            outcome.committables.setdefault(id, []).extend(committables)
        for step, *piece in results.staged:
            add_piece(staging_folder(self._staging, self._run_id, step), *piece)
        for id, columns in results.columns.items():
            outcome.columns.setdefault(id, []).extend(columns)
        for label, checksum in results.written.items():
            self._stored[label] = replace(self._stored[label], checksum=checksum)
        results.check_reread(Counter({label: rows.checksum for label, rows in self._stored.items()}))
        added: dict[str, list[Block]] = {}
        for collection, _, _, data in results.sides:
            added.setdefault(collection, []).extend(decode_blocks(data))
        for collection, blocks in added.items():
            self._side_inputs.put(collection, blocks)

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
        rows = self._last_level_rows.where(f"edge = {dataframe_edge(step.id)}")
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
