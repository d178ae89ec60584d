"""The environment that the parts of one task share: its place in the job, its context, its time accounting."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.runners.checkpoint.task_ids import ChannelId, TaskId
from tidegate.runners.engine.iteration.decision import ROUNDS_KEPT
from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Edge, Loop, Plan, Step, step_in_round
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.rounds.loop_cache import LoopCache
from tidegate.runners.streaming.worker.environment import WorkerServices
from tidegate.runners.streaming.worker.time_accounting import TimeAccounting
from tidegate.sdk.data.block import Block
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey, in_round
from tidegate.sdk.portable.model import Feedback


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """`scripted`: the job has a test stream, whose events alone advance processing time. `rounds`: how many rounds of
    each loop are done, by its label. `cache`: what outlives the rounds, if the task is in the body of a loop. `left`:
    what a loop has left of its solution in the part that a channel comes from."""

    job: Job
    task: TaskId
    attempt: int
    services: WorkerServices
    context: Context
    times: TimeAccounting
    scripted: bool
    rounds: Mapping[str, int] = field(default_factory=dict)
    cache: LoopCache | None = None
    left: Callable[[ChannelId], Iterator[Block]] | None = None

    @property
    def plan(self) -> Plan:
        """The plan of the job."""
        return self.job.plan

    @property
    def settings(self) -> Settings:
        """The settings of the job."""
        return self.job.settings

    @property
    def parallelism(self) -> int:
        """How many tasks its stage has."""
        return self.job.topology.parallelism(self.task.stage)

    @property
    def steps(self) -> list[Step]:
        """The steps of the task that are operators: neither sources nor sinks, nor heads of feedback loops."""
        steps = [step for step in self.plan.stage_steps(self.task.stage) if not (step.is_source or step.is_sink)]
        steps = [step for step in steps if not isinstance(step.head, Feedback)]
        return [step_in_round(step, self.round) for step in steps] if self.round else steps

    @property
    def metrics(self) -> MetricCells:
        """The metrics of the task. The pre-combining part of a combine reports no output: its merge does."""
        parts = [step.label for step in self.steps if step.phase == "parts"]
        if not parts:
            return self.context.metrics
        metrics = MetricCells()
        metrics.merge(self.context.metrics)
        for label in parts:
            metrics.counters.pop(MetricKey(label, ENGINE, "elements_out"), None)
        return metrics

    @property
    def loop(self) -> Loop | None:
        """The loop in whose body the task is."""
        return self.plan.loop_of(self.task.stage)

    @property
    def round(self) -> int:
        """The round of that loop; 0 outside loops."""
        loop = self.loop
        return 0 if loop is None else self.rounds[loop.node.label] + 1

    def count_round(self, metrics: MetricCells) -> None:
        """Keep the metrics of a round by its number, too."""
        loop = self.loop
        if loop is not None and self.round <= ROUNDS_KEPT:
            self.context.metrics.merge(in_round(metrics.of_steps(loop.labels), self.round))

    def is_constant(self, edge: Edge) -> bool:
        """Whether all rounds of the loop read the same elements from an edge into its body."""
        return edge.turn is None and self.plan.loop_of(self.plan.steps[edge.source].stage) is not self.loop

    def stored_rounds(self, edge: Edge) -> Sequence[int]:
        """The rounds whose stored elements the task reads from an edge; 0 for what no loop has written."""
        source = self.plan.loop_of(self.plan.steps[edge.source].stage)
        match edge.turn:
            case "start":
                return (0,) if self.round == 1 else ()
            case "back":
                return (self.round - 1,) if self.round > 1 else ()
            case "last":
                assert source is not None
                return (self.rounds[source.node.label],)
            case "solution":  # its parts are not among what steps read, but what has become of them is
                return () if source is None else (self.rounds[source.node.label],)
            case "all":
                assert source is not None
                return range(1, self.rounds[source.node.label] + 1)
            case _:
                return (0,) if source is None else (self.round,)

    @property
    def timely(self) -> bool:
        """Whether watermarks are forwarded while data is read: only in streaming jobs."""
        return not self.job.settings.batch

    @property
    def ticks(self) -> bool:
        """Whether the worker's clock advances processing time in the operators."""
        return self.timely and not self.scripted

    def monotonic(self) -> int:
        """The monotonic clock, in µs."""
        return self.services.clock.monotonic()
