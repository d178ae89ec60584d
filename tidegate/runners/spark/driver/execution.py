"""One run on Spark: levels become DataFrames of rows, each action is started, and what its tasks tell is gathered.

Most pipelines are one action. Each depth of computed side inputs is one more, before it; what the later ones need of an
earlier one's elements is persisted in between, and freed at the end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidegate import _version
from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.sources.created import created
from tidegate.runners.plan import Plan, Step
from tidegate.runners.spark.driver.element_counts import LiveCounts
from tidegate.runners.spark.driver.split_assignment import assign_inputs, without_values
from tidegate.runners.spark.driver.worker_env import packages_in
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts
from tidegate.runners.spark.plan.column_types import columns_read, united, wished
from tidegate.runners.spark.plan.failures import NOT_DETERMINISTIC, raised_by
from tidegate.runners.spark.plan.levels import assign_levels, shuffles
from tidegate.runners.spark.plan.task_spec import Inputs, TaskSpec, numbered_edges
from tidegate.runners.spark.shuffle.row_codec import (
    ORDER,
    RESULT,
    decode_blocks,
    decode_result,
    joined,
    schema,
)
from tidegate.runners.spark.side_inputs.broadcast import SideInputBroadcaster
from tidegate.runners.spark.task_io.frames import (
    DataFrameSink,
    DataFrameSource,
    arrow_schema,
    columns_of,
    framed_by,
    frames_made,
    frames_read,
    spoken_schema,
    together,
    union,
)
from tidegate.runners.spark.worker.entry import entry
from tidegate.sdk.connectors.sinks import Committable
from tidegate.sdk.errors import RunError, TidegateError, visible
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.options.defaults import default_memory_budget
from tidegate.sdk.portable.model import Create

if TYPE_CHECKING:
    from tidegate.runners.spark.plan.options import SparkOptions

_BATCH_BYTES: Final = 4 << 20
"""No Arrow batch that Spark hands to a worker is longer, but for one row."""


@dataclass(slots=True)
class Outcome:
    """What a run gave: what each sink prepared, by step, and what is to be a DataFrame, by step."""

    committables: dict[int, list[Committable]] = field(default_factory=dict)
    columns: dict[int, list[bytes]] = field(default_factory=dict)


class Execution:
    """A run. `metrics` grow as actions end; `tell` hears how far it is."""

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
        local: bool,
        describe: Callable[[str], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._spark = spark
        self._metrics = metrics
        self._describe = describe
        self._name = visible(plan.pipeline.name)
        self._levels = assign_levels(plan)
        self._partitions = options.spark_partitions or parallelism(spark)
        self._local = local
        self._paths = _paths(options, local=local)
        self._artifacts = artifacts
        self._counts = counts
        self._run_id = run_id
        self._feeds = frames_read(plan)
        self._sinks = frames_made(plan)
        elsewhere = {step.id for step in plan.steps if self._levels.of_step[step.id] < 0}  # side inputs' alone
        self._inputs = assign_inputs(plan, self._partitions, self._artifacts, elsewhere.union(self._feeds))
        self._opened = {id: self._open(source, plan.steps[id]) for id, source in self._feeds.items()}
        self._frames = {id: self._schema_of(sink, plan.steps[id]) for id, sink in self._sinks.items()}
        read = {id: frame.schema for id, frame in self._opened.items()} if None in self._frames.values() else {}
        self._columns = {id: columns_read(plan, read, id) for id, schema in self._frames.items() if schema is None}
        self._plan = without_values(plan)
        self._persisted: list[Any] = []
        self._kept: list[tuple[int, Any]] = []
        self._payloads: dict[int, bytes | Artifact] = {}
        self._sums: Counter[int] = Counter()
        self._sides = SideInputBroadcaster(plan, self._artifacts, self._side_context(options))
        self._create_sides(plan)
        self._work = TaskSpec(
            self._plan,
            self._levels,
            numbered_edges(self._plan),
            Inputs({}, {}, {}),
            self._partitions,
            options.memory_budget,
            options.temp_dir,
            options.type_check == "runtime",
            options.max_end_timers,
            frames=self._frames,
            wished={id: wished(columns) for id, columns in self._columns.items()},
        )
        self._outcome = Outcome()
        self._last: Any = None

    def run(self) -> Outcome:
        """Every action, in order."""
        if self._levels.count:  # a pipeline that nobody reads has no steps
            for action, start in enumerate(self._levels.starts):
                self._act(action, start)
        return self._outcome

    def dataframes(self) -> dict[str, Any]:
        """Make those DataFrames that the author gets, by label, in one action; then write those that are to be written,
        in an action each."""
        frames: dict[int, Any] = {}
        kept: dict[int, Any] = {}
        try:
            for id, sink in self._sinks.items():
                with _in_step(self._plan.steps[id]):
                    frames[id] = self._typed(self._plan.steps[id], sink)
                    if sink.kept:
                        kept[id] = frames[id].persist()
            self._materialize(kept)
            for id in [id for id in frames if id not in kept]:
                step = self._plan.steps[id]
                with self._describe(f"{self._name}: {visible(step.label)}"), _in_step(step):
                    self._sinks[id].save_dataframe(frames[id])
        except BaseException:
            for frame in kept.values():
                with contextlib.suppress(Exception):
                    frame.unpersist()
            raise
        return {self._plan.steps[id].label: frame for id, frame in kept.items()}

    def _materialize(self, kept: dict[int, Any]) -> None:
        """Have Spark compute all of some persisted DataFrames, in one action."""
        if not kept:
            return
        labels = ", ".join(self._plan.steps[id].label for id in kept)
        with self._describe(f"{self._name}: {visible(labels)}"):
            try:
                with raised_by():
                    union([frame.selectExpr("0") for frame in kept.values()]).count()
            except RunError:
                for id, frame in kept.items():  # whose fault it is; the others are there by now
                    with _in_step(self._plan.steps[id]):
                        frame.count()
                raise

    def close(self) -> None:
        """Free what the run persisted."""
        for frame in self._persisted:
            with contextlib.suppress(Exception):  # the session may be over
                frame.unpersist()

    def _open(self, source: DataFrameSource, step: Step) -> Any:
        with _in_step(step):
            return source.open_dataframe(self._spark)

    def _schema_of(self, sink: DataFrameSink, step: Step) -> bytes | None:
        with _in_step(step):
            return None if sink.columns is None else arrow_schema(self._spark, sink.columns)

    # -- side inputs

    def _side_context(self, options: SparkOptions) -> Context:
        def no_folder() -> Path:
            raise RunError("a side input does not fit --memory_budget on the driver, which groups it")

        return Context(options.memory_budget or default_memory_budget(), no_folder, self._metrics)

    def _create_sides(self, plan: Plan) -> None:
        """The side inputs that are the elements of a `Create`: there is nothing to run for them."""
        asides = {edge.collection for edge in plan.edges if edge.side is not None}
        for step in plan.steps:
            if isinstance(step.head, Create) and step.outputs[0] in asides:
                block = created(step.head.values.load())
                self._sides.add(step.outputs[0], [block])
                if self._levels.of_step[step.id] < 0 and len(block):
                    self._metrics.count(MetricKey(step.label, ENGINE, "elements_out"), len(block))

    # -- actions

    def _act(self, action: int, start: int) -> None:
        levels, plan = self._levels, self._plan
        end = levels.starts[action + 1] if action + 1 < len(levels.starts) else levels.count
        steps = [step for step in plan.steps if start <= levels.of_step[step.id] < end]
        spec = replace(self._work, inputs=self._inputs, sides=self._sides.views_of(steps))
        kept = [number for number, edge in enumerate(spec.edges) if levels.kept(edge)]
        labels = ", ".join(dict.fromkeys(node.label for step in steps for node in step.nodes))
        with self._describe(f"{self._name}: {visible(labels)}"), raised_by():
            frame = self._frame(spec, start, end, kept)
            told = frame.where(frame["edge"] == RESULT) if self._frames and end == levels.count else frame
            rows = told.collect()
        self._take(map(decode_result, joined((src, seq, left, bytes(data)) for _, _, src, seq, left, data in rows)))
        if self._counts is not None:
            self._counts.settle()

    def _frame(self, spec: TaskSpec, start: int, end: int, kept: list[int]) -> Any:
        """The rows that the last of some levels gives; those that are on `kept` edges are persisted."""
        levels = self._levels
        makers = {levels.of_step[spec.edges[number].source] for number in kept}
        frame: Any = None
        for level in range(start, end):
            if level == start:
                frame = self._first(spec, level)
            else:
                frame = frame.repartitionById(levels.partitions(level, self._partitions), "target")
                frame = self._mapped(frame.sortWithinPartitions(*ORDER), spec, level)
            if level in makers or (level == levels.count - 1 and self._frames):
                frame = frame.persist()
                self._persisted.append(frame)
                if level in makers:
                    self._kept.append((level, frame))
                    frame = frame.where(~frame["edge"].isin(kept))
        self._last = frame
        return frame

    def _first(self, spec: TaskSpec, level: int) -> Any:
        """The first level of an action: over elements of sources and kept ones, and beside it over each DataFrame."""
        steps = spec.levels.steps(spec.plan, level)
        feeds = [step for step in steps if step.id in self._feeds]
        frames = []
        if not self._only_fed(level, steps):
            frames.append(self._mapped(self._entering(spec, level, steps), spec, level))
        for ids, read in together({step.id: self._opened[step.id] for step in feeds}):
            frames.append(self._mapped(read, spec, level, ids))
        return union(frames)

    def _only_fed(self, level: int, steps: list[Step]) -> bool:
        """Whether DataFrames alone bring what a level gets, and a DataFrame without partitions would bring nothing that
        is missed: the levels after it run all the same.
        """
        sources = [step for step in steps if step.is_source]
        last = level + 1 in (*self._levels.starts, self._levels.count)
        return bool(sources) and not last and level == 0 and all(step.id in self._feeds for step in sources)

    def _entering(self, spec: TaskSpec, level: int, steps: list[Step]) -> Any:
        """The rows that an action begins with; rows that say nothing where tasks read all by themselves."""
        levels = self._levels
        numbers = [
            number
            for number, edge in enumerate(spec.edges)
            if levels.kept(edge) and levels.action(levels.of_step[edge.target]) == levels.action(level)
        ]
        by_level: dict[int, list[int]] = {}
        for number in numbers:
            by_level.setdefault(levels.of_step[spec.edges[number].source], []).append(number)
        parts = [frame.where(frame["edge"].isin(by_level[made])) for made, frame in self._kept if made in by_level]
        if not parts:
            alone = all(step.id in self._feeds for step in steps if step.is_source)
            tasks = 1 if alone and any(step.is_source for step in steps) else self._partitions
            return self._spark.range(0, tasks, 1, tasks)
        frame = parts[0]
        for part in parts[1:]:
            frame = frame.unionAll(part)
        if (
            len(parts) > 1
            or any(shuffles(spec.edges[n]) for n in numbers)
            or not self._has_own_partitions(next(iter(by_level)))
        ):
            frame = frame.repartitionById(self._partitions, "target")
        return frame.sortWithinPartitions(*ORDER)

    def _has_own_partitions(self, level: int) -> bool:
        """Whether a level has as many tasks as there are partitions; DataFrames that are read bring more."""
        fed = any(step.id in self._feeds for step in self._levels.steps(self._plan, level))
        return not fed and self._levels.partitions(level, self._partitions) == self._partitions

    def _mapped(self, frame: Any, spec: TaskSpec, level: int, feeds: tuple[int, ...] = ()) -> Any:
        steps = [spec.plan.steps[id] for id in feeds] or spec.levels.steps(spec.plan, level)
        name = " + ".join(dict.fromkeys(node.label for step in steps for node in step.nodes)) or "pass on"
        counts = None if self._counts is None else self._counts.accumulator
        run = entry(name[:200], self._paths, self._packed(spec, level), self._run_id, level, feeds, counts)
        return frame.mapInArrow(run, schema())

    def _packed(self, spec: TaskSpec, level: int) -> bytes | Artifact:
        """What a level's tasks must know: in the closure, or as a file if it is long."""
        found = self._payloads.get(level)
        if found is None:
            data = pickle.dumps(spec.of_level(level), 5)
            found = data if len(data) <= 2 * CLOSURE_BYTES else self._artifacts.give_bytes(data)
            self._payloads[level] = found
        return found

    # -- what tasks tell

    def _take(self, results: Iterable[tuple[str, Any]]) -> None:
        outcome = self._outcome
        asides: list[tuple[str, int, int, bytes]] = []
        found: Counter[int] = Counter()
        for kind, value in results:
            match kind:
                case "metrics":
                    self._metrics.merge(value)
                case "committables":
                    outcome.committables.setdefault(value[0], []).extend(value[1])
                case "columns":
                    outcome.columns.setdefault(value[0], []).extend(value[1])
                case "side":
                    asides.append(value)
                case "kept":
                    self._sums.update(value)
                case "found":
                    found.update(value)
        if any(self._sums[number] != total for number, total in found.items()):
            raise RunError(f"the run can't be finished: {NOT_DETERMINISTIC}")
        for collection, _, _, data in sorted(asides, key=lambda each: each[:3]):
            self._sides.add(collection, decode_blocks(data))

    def _typed(self, step: Step, sink: DataFrameSink) -> Any:
        """A step's elements as columns."""
        schema = self._frames[step.id]
        if schema is not None:
            spoken = spoken_schema(self._spark, sink.columns or "")
        else:
            found = united(self._outcome.columns.get(step.id, ()), self._columns[step.id])
            if found is None:
                raise RunError("there are no elements, so what the columns are is not known: give schema=…")
            schema, spoken = found
        rows = self._last.where(
            self._last["edge"] == framed_by(step.id)
        )  # in order, as the task that made them left it
        return rows.mapInArrow(columns_of(schema, step.label[:200]), spoken)


@contextlib.contextmanager
def _in_step(step: Step) -> Iterator[None]:
    """What is raised inside, as an error of Tidegate's in that step."""
    try:
        with raised_by():
            yield
    except TidegateError as error:
        rethrow(located(error, step.label, step.tail.where))


def parallelism(spark: Any) -> int:
    """How many tasks run at once, as far as can be told."""
    context = getattr(spark, "_sc", None)
    return max(2, context.defaultParallelism if context is not None else os.cpu_count() or 1)


def _paths(options: SparkOptions, *, local: bool) -> tuple[str, ...]:
    """Where workers look for what they lack: those of a local master where this process finds Tidegate, others in the
    archive that was sent to them."""
    if local:
        return (str(Path(_version.__file__).resolve().parents[1]),)
    return packages_in(options.spark_archive)


_WANTED: Final = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(_BATCH_BYTES),
    # Planning anew at each shuffle takes time, and the plan would stay as it is.
    "spark.sql.adaptive.enabled": "false",
}
_runs: Final[weakref.WeakKeyDictionary[Any, tuple[int, dict[str, str | None]]]] = weakref.WeakKeyDictionary()
"""How many runs each session has at the moment, and its own settings."""
_counting: Final = threading.Lock()


@contextlib.contextmanager
def settings(spark: Any) -> Iterator[None]:
    """Spark's settings for a run, and afterwards, when no other run of the session needs them, as they were."""
    with _counting:
        runs, before = _runs.get(spark) or (0, {name: spark.conf.get(name, None) for name in _WANTED})
        _runs[spark] = runs + 1, before
        for name, value in _WANTED.items():
            spark.conf.set(name, value)
    try:
        yield
    finally:
        with _counting:
            runs, before = _runs.pop(spark)
            if runs > 1:
                _runs[spark] = runs - 1, before
            else:
                _restore(spark, before)


def _restore(spark: Any, before: dict[str, str | None]) -> None:
    with contextlib.suppress(Exception):  # the session may be over
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)
