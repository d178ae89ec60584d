"""The environment that the parts of one task share: its place in the job, its context, its time accounting."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.runners.engine.operator import Context
from tidegate.runners.plan import Plan, Step
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import Settings
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.worker.environment import WorkerServices
from tidegate.runners.streaming.worker.time_accounting import TimeAccounting


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """`scripted`: the job has a test stream, whose events alone advance processing time."""

    job: Job
    task: TaskId
    attempt: int
    services: WorkerServices
    context: Context
    times: TimeAccounting
    scripted: bool

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
        """The steps of the task that are operators: neither sources nor sinks."""
        return [step for step in self.plan.stage_steps(self.task.stage) if not (step.is_source or step.is_sink)]

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
