"""The rounds of a loop: the driver runs the actions of its body again and again, and decides after each round.

What is the same in all rounds is shuffled and persisted once. Spark unites its partitions with those of what a round
has left, which are distributed alike, so no constant is shuffled again. What a round leaves is checkpointed, so a plan
does not grow with the number of rounds. A checkpoint on an executor dies with it: then the rounds since the last
reliable one run again.
"""

from __future__ import annotations

import contextlib
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.runners.engine.iteration.decision import (
    Decision,
    count_end,
    count_round,
    decide,
    decide_by_number,
    not_met,
)
from tidegate.runners.plan import Edge, Loop, left_for
from tidegate.runners.spark.driver.level_frames import LevelFrames
from tidegate.runners.spark.driver.results import Results, results_of
from tidegate.runners.spark.driver.stored_rows import (
    StoredRows,
    columns,
    filtered,
    moved_to_places,
    to_partitions,
    united,
    unites,
)
from tidegate.runners.spark.plan.actions import LoopActions
from tidegate.runners.spark.plan.failures import RowsLost, translated_errors
from tidegate.runners.spark.plan.task_spec import (
    BroadcastView,
    Round,
    TaskSpec,
    is_for_next_round,
    label_of,
    labels_read,
)
from tidegate.runners.spark.shuffle.row_codec import ORDER, RESULT, decode_blocks
from tidegate.runners.spark.side_inputs.broadcast import SideInputBroadcaster
from tidegate.runners.spark.task_io.frames import union
from tidegate.runners.spark.worker.entry import end_function
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import visible
from tidegate.sdk.metrics import MetricCells

RELIABLE_EVERY: Final = 10
"""After how many rounds there is a checkpoint that no lost executor takes with it, if Spark has a directory for it."""
_MOST_LOSSES: Final = 4
"""How often rounds run again without any progress between."""
_MERGED: Final = 16
"""How many DataFrames of what leaves a loop early become one."""
_VISITS: Final = 5
"""How often the driver runs tasks to reach the workers that have something to tear down."""


@dataclass(frozen=True, slots=True)
class _State:
    """What the first `done` rounds have left: rows, by their number, and elements of side inputs, by collection."""

    done: int = 0
    stored: Mapping[int, StoredRows] = field(default_factory=dict)
    sides: Mapping[str, list[Block]] = field(default_factory=dict)


class LoopRounds:
    """Runs the rounds of one loop: the actions of its body, in the order of their numbers."""

    def __init__(
        self,
        loop: Loop,
        actions: LoopActions,
        frames: LevelFrames,
        spec: TaskSpec,
        sides: SideInputBroadcaster,
        metrics: MetricCells,
        describe: Callable[[str], contextlib.AbstractContextManager[None]],
    ) -> None:
        self.actions = actions
        self._loop = loop
        self._frames = frames
        self._spec = spec
        self._sides = sides
        self._metrics = metrics
        self._describe = describe
        self._unites = unites(frames.spark)
        self._order = columns(frames.spark, ORDER)
        self._target = columns(frames.spark, ["target"])
        self._reliable = _has_checkpoint_dir(frames.spark)
        self._constants: dict[int, Any] = {}
        self._safe = _State()
        self._held: list[Any] = []
        self._views: list[BroadcastView] = []
        """The side inputs of the round before."""
        self._counted = 0
        """The last round whose metrics count."""

    def run(self, outer: Mapping[int, StoredRows]) -> Mapping[int, StoredRows]:
        """Run the rounds on what is stored for them; returns what they leave. If that is lost later, run them again."""
        node = self._loop.node
        self._prepare(outer)
        state, losses, furthest = self._safe, 0, 0
        decision = decide_by_number(node, state.done)
        workers: set[str] = set()
        while decision == "again":
            try:
                state, decision, found = self._round(state, outer)
            except RowsLost:
                losses += 1
                if losses > _MOST_LOSSES:
                    raise
                state = self._safe
                continue
            workers |= found.workers
            if state.done > furthest:
                losses, furthest = 0, state.done
            if self._is_reliable(state.done):
                self._safe = state
            self._release(state)
        text = f"{visible(node.label)}: end of the loop"
        _tear_down(self._frames, workers, self._metrics, lambda: self._describe(text))
        if decision == "unmet" and node.strict:
            raise not_met(node, state.done)
        left = _left_by(self.actions, self._spec, state.stored)
        self._held += {id(frame): frame for rows in left.values() for frame in rows.frames}.values()
        return left

    def close(self) -> None:
        """Free what is persisted."""
        for frame in self._constants.values():
            with contextlib.suppress(Exception):  # the session may have been stopped
                frame.unpersist()
        for frame in self._held:
            _unpersist(frame)
        self._constants, self._held = {}, []

    # -- what is the same in all rounds

    def _prepare(self, outer: Mapping[int, StoredRows]) -> None:
        """Distribute what all rounds read, once, and make the contents of its side inputs."""
        levels, spec = self._spec.levels, self._spec
        first, end = levels.starts[self.actions.first], levels.end(self.actions.last)
        for frame in self._constants.values():
            frame.unpersist()
        self._constants = {}
        for level in range(first, end):
            numbers = self._constant_edges(level)
            parts = filtered(outer, numbers)
            if parts:
                tasks = levels.partitions(level, spec.partitions)
                moved = [moved_to_places(frame, spec.partitions, tasks) for frame in parts]
                self._constants[level] = united(moved, tasks).sortWithinPartitions(*ORDER).persist()
        steps = [step for step in spec.plan.steps if first <= levels.of_step[step.id] < end]
        sides = self._sides.edges_of(steps)
        constant = {id for id, edges in sides.items() if not any(map(self._changes, edges))}
        self._spec = replace(spec, sides=self._sides.views_of(steps, only=constant))

    def _constant_edges(self, level: int) -> list[int]:
        levels = self._spec.levels
        edges = enumerate(self._spec.edges)
        return [at for at, edge in edges if levels.is_constant(edge) and levels.of_step[edge.target] == level]

    def _changes(self, edge: Edge) -> bool:
        """Whether rounds change what an edge carries."""
        return edge.turn is not None or self._is_inside(edge)

    def _is_inside(self, edge: Edge) -> bool:
        """Whether a step of the body makes what an edge carries."""
        return self._spec.plan.loop_of(self._spec.plan.steps[edge.source].stage) == self._loop

    # -- a round

    def _round(self, state: _State, outer: Mapping[int, StoredRows]) -> tuple[_State, Decision, Results]:
        number, node = state.done + 1, self._loop.node
        began = time.monotonic()
        made: dict[int, StoredRows] = {}
        sides: dict[str, list[Block]] = {}
        total = Results()
        before, self._views = self._views, []
        for action in range(self.actions.first, self.actions.last + 1):
            inside = {label: rows for label, rows in made.items() if not is_for_next_round(label)}
            found, frame = self._run_action(action, number, {**outer, **state.stored, **inside}, state.sides, sides)
            for label in self._written(action):
                made[label] = StoredRows((frame,), found.written[label], placed=True)
            for collection, _, _, data in found.sides:
                sides.setdefault(collection, []).extend(decode_blocks(data))
            total.metrics.merge(found.metrics)
            total.emitted.update(found.emitted)
            total.workers |= found.workers
        used = [view.data for view in (*self._views, *self._spec.sides.values())]
        self._frames.discard(view for view in before if view.data not in used)
        emitted = {result: sum(total.emitted[part] for part in parts) for result, parts in self._loop.results.items()}
        emitted |= {each.before: emitted.get(left_for(node, each), 0) for each in node.variables}
        decision = decide(node, number, emitted)
        if number > self._counted:
            self._counted = number
            self._count(number, total.metrics, emitted, time.monotonic() - began, decision)
        return _State(number, self._stored(number, state.stored, made), sides), decision, total

    def _stored(
        self, number: int, before: Mapping[int, StoredRows], made: Mapping[int, StoredRows]
    ) -> dict[int, StoredRows]:
        """What is stored after a round: what it has left, and what all rounds have for those that leave the loop."""
        stored = dict(made)
        for label, edge in enumerate(self._spec.edges):
            if edge.turn == "all" and label in made:
                known, new = before.get(label, StoredRows((), placed=True)), made[label]
                frames = (*known.frames, *(new.frames if new.checksum else ()))
                merged = self._merged(number, frames, label)
                stored[label] = replace(known, frames=merged, checksum=known.checksum + new.checksum)
        return stored

    def _merged(self, number: int, frames: tuple[Any, ...], label: int) -> tuple[Any, ...]:
        """The DataFrames with what has left the loop early, of which many small ones become one; a reliable one with a
        reliable checkpoint."""
        safe = self._safe.stored[label].frames if label in self._safe.stored else ()
        reliable = self._is_reliable(number)
        small = frames[len(safe) :]
        if not small or not (reliable or len(small) == _MERGED):
            return frames
        rows = union([frame.where(f"edge = {label}") for frame in small])
        rows = rows.repartition(self._spec.partitions, "target")
        merged = rows.checkpoint() if reliable else rows.localCheckpoint()
        self._held.append(merged)
        return (*safe, merged)

    def _is_reliable(self, number: int) -> bool:
        """Whether no lost executor takes away what a round leaves."""
        return self._reliable and number % RELIABLE_EVERY == 0

    def _run_action(
        self,
        action: int,
        number: int,
        stored: Mapping[int, StoredRows],
        before: Mapping[str, list[Block]],
        now: Mapping[str, list[Block]],
    ) -> tuple[Results, Any]:
        """Run an action of a round; returns its results, and the rows that it leaves."""
        spec, levels = self._spec, self._spec.levels
        steps = [step for step in spec.plan.steps if levels.action(levels.of_step[step.id]) == action]

        def blocks_of(edge: Edge) -> Iterable[Block]:
            if edge.turn == "back":
                return before.get(edge.collection, ())
            if self._is_inside(edge):
                return now.get(edge.collection, ())
            return () if edge.turn == "start" and number > 1 else self._sides.blocks(edge)

        changing = self._sides.edges_of(steps).keys() - spec.sides.keys()
        of_round = Round(number, self._sides.views_of(steps, blocks_of, only=changing) if changing else {})
        self._views += of_round.sides.values()
        labels = ", ".join(dict.fromkeys(node.label for step in steps for node in step.nodes))
        text = f"{visible(spec.plan.pipeline.name)}: {visible(labels)} (round {number})"
        read = [label for label in self._read(action, number) if label in stored]
        with self._describe(text), translated_errors():
            frame, rows = self._collected(action, of_round, stored, read)
        found = results_of(rows)
        fed = Counter({label: stored[label].checksum for label in read})
        for level in range(levels.starts[action], levels.end(action)):
            fed.update({at: stored[at].checksum for at in self._constant_edges(level)})
        found.check_reread(fed)
        return found, frame

    def _read(self, action: int, number: int) -> list[int]:
        """The numbers of the rows that an action of a round reads, beside constants."""
        levels = self._spec.levels
        start = levels.starts[action]

        def is_read(edge: Edge) -> bool:
            if levels.is_constant(edge) or (edge.turn in ("start", "solution") and number > 1):
                return False
            return levels.persisted(edge) and levels.start_of(edge) == start

        found = set(labels_read(self._spec.edges, levels, is_read))
        for at, edge in enumerate(self._spec.edges):
            if edge.turn == "solution" and self._is_inside(edge) and levels.of_step[edge.source] >= start:
                found.add(self._begins(edge) if number == 1 else label_of(at, edge, levels))
        return sorted(found)

    def _begins(self, left: Edge) -> int:
        """The number of the edge of what a solution begins with, given the edge of what it is after the rounds."""
        edges = enumerate(self._spec.edges)
        return next(at for at, edge in edges if edge.turn == "solution" and edge.target == left.source)

    def _written(self, action: int) -> list[int]:
        """The numbers of the rows that an action leaves."""
        levels = self._spec.levels
        return [
            label_of(number, edge, levels)
            for number, edge in enumerate(self._spec.edges)
            if levels.persisted(edge) and edge.files is None and levels.action(levels.of_step[edge.source]) == action
        ]

    def _collected(
        self, action: int, of_round: Round, stored: Mapping[int, StoredRows], read: Iterable[int]
    ) -> tuple[Any, list[Any]]:
        """Run an action of a round: the DataFrame of the rows that it leaves, and the rows of results."""
        frame = self.frame(action, of_round, stored, read)
        reliable = self._is_reliable(of_round.number)
        kept = frame.checkpoint(eager=False) if reliable else frame.localCheckpoint(eager=False)
        self._held.append(kept)
        return kept, kept.where(f"edge = {RESULT}").collect()

    def frame(self, action: int, of_round: Round, stored: Mapping[int, StoredRows], read: Iterable[int]) -> Any:
        """The DataFrame of the rows that an action of a round leaves, and of its results."""
        spec, levels = self._spec, self._spec.levels
        partitions, start = spec.partitions, levels.starts[action]
        outside = {label: rows for label, rows in stored.items() if not rows.placed}
        inside = {label: rows for label, rows in stored.items() if rows.placed}
        parts = [moved_to_places(each, partitions, partitions) for each in filtered(outside, read)]
        parts += filtered(inside, read)
        frame: Any = united(parts, partitions) if parts else None
        for level in range(start, levels.end(action)):
            if frame is not None and level > start:
                frame = frame.repartition(levels.partitions(level, partitions), *self._target)
            frame = self._with_constants(level, frame)
            frame = self._frames.map_level(frame, spec, level, of_round=(self._loop.node.label, of_round))
        return frame.repartition(partitions, *self._target)

    def _with_constants(self, level: int, frame: Any) -> Any:
        """The rows for a level, sorted, with those of constants first."""
        partitions = self._spec.levels.partitions(level, self._spec.partitions)
        rows = None if frame is None else frame.sortWithinPartitions(*self._order)
        constants = self._constants.get(level)
        if constants is None:
            return self._frames.spark.range(0, partitions, 1, partitions) if rows is None else rows
        if rows is None:
            return constants
        both = constants.unionAll(rows)
        if self._unites:
            return both
        both = both.repartition(partitions, "target")
        return both.sortWithinPartitions(~both["edge"].isin(self._constant_edges(level)), *ORDER)

    # -- after a round

    def _count(
        self, number: int, metrics: MetricCells, emitted: Mapping[str, int], seconds: float, decision: Decision
    ) -> None:
        """Add a round's metrics to those of the run, and keep them by round as well."""
        node = self._loop.node
        changing = (each for each in node.variables if each.form != "solution" and each.after != each.before)
        fed_back = sum(emitted[each.before] for each in changing)
        count_round(self._metrics, node, number, fed_back, seconds, metrics, self._loop.labels)
        if decision != "again":
            count_end(self._metrics, node, number, decision)
        self._frames.end_action()

    def _release(self, state: _State) -> None:
        """Free what earlier rounds have left and no later one reads."""
        read = {id(frame) for each in (state, self._safe) for stored in each.stored.values() for frame in stored.frames}
        held, self._held = self._held, []
        for frame in held:
            if id(frame) in read:
                self._held.append(frame)
            else:
                _unpersist(frame)


def _left_by(actions: LoopActions, spec: TaskSpec, stored: Mapping[int, StoredRows]) -> dict[int, StoredRows]:
    """What later actions read of what the rounds of a loop have left.

    They read it from a DataFrame of whose distribution Spark knows nothing. If a plan has one of known distribution
    twice, Spark takes one for another, and does not find what it has persisted of what was made of that.
    """
    levels = spec.levels
    inside = range(actions.first, actions.last + 1)

    def is_read(edge: Edge) -> bool:
        return levels.persisted(edge) and levels.action(levels.of_step[edge.target]) not in inside

    labels = [label for label in labels_read(spec.edges, levels, is_read) if label in stored]
    parts = filtered(stored, labels)
    if not parts:
        return {}
    frame = to_partitions(united(parts, spec.partitions), spec.partitions).localCheckpoint(eager=False)
    return {label: StoredRows((frame,), stored[label].checksum, moved=True) for label in labels}


def _tear_down(
    frames: LevelFrames,
    workers: set[str],
    metrics: MetricCells,
    describe: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    """Have a loop's functions torn down in these workers. Spark runs tasks in workers of its own choice, and some may
    have ended."""
    tasks = max(frames.partitions, len(workers))
    for _ in range(_VISITS if workers else 0):
        end = end_function(frames.package_paths, frames.run_id)
        with describe(), translated_errors():
            visits = frames.spark.range(0, tasks, 1, tasks).mapInArrow(end, "worker string, metrics binary")
            visited = visits.collect()
        for visit in visited:
            metrics.merge(pickle.loads(visit.metrics))
        workers = workers - {visit.worker for visit in visited}
        if not workers:
            return


def _has_checkpoint_dir(spark: Any) -> bool:
    """Whether Spark has a directory for reliable checkpoints."""
    context = getattr(spark, "_sc", None)
    if context is not None:
        return bool(context._jsc.sc().getCheckpointDir().isDefined())
    return spark.conf.get("spark.checkpoint.dir", None) is not None


def _unpersist(frame: Any) -> None:
    """Free a checkpoint. Over Connect the server does, once the client has dropped the DataFrame."""
    java = getattr(frame, "_jdf", None)
    if java is not None:
        with contextlib.suppress(Exception):  # the session may have been stopped
            java.queryExecution().analyzed().rdd().unpersist(False)
