"""The coordinator of a job: a state machine that is told what happens and says what is to be done. It does nothing.

An attempt starts all workers, redoes commits that may not have been made, removes what was written and belongs to no
completed checkpoint, then deploys region after region; the last one of a stream takes checkpoints. Whatever goes wrong
ends the attempt: its workers are killed, and what they still say is not heard. Messages carry their attempt's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal, TypeAlias

from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.engine.time.clock import wall_micros
from tidegate.runners.streaming.checkpoint.job_record import RECORD, RECORDED, record
from tidegate.runners.streaming.checkpoint.manifest_builder import commits_of
from tidegate.runners.streaming.checkpoint.manifest_json import dumps
from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.checkpoint.tracker import CheckpointRequest
from tidegate.runners.streaming.coordinator.checkpoint_coordinator import CheckpointCoordinator
from tidegate.runners.streaming.coordinator.deployment import Deployment
from tidegate.runners.streaming.coordinator.outbox import Outbox
from tidegate.runners.streaming.coordinator.quiescence import QuiescenceRounds
from tidegate.runners.streaming.coordinator.restart_strategy import FailJob, Failure, Restart, RestartStrategy
from tidegate.runners.streaming.coordinator.workers import EndedTasks, Workers
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.topology import TaskId
from tidegate.runners.streaming.protocol.coordinator_io import (
    Action,
    Begin,
    CancelJob,
    CheckpointReport,
    CoordinatorEvent,
    Fenced,
    Finish,
    FromWorker,
    StartWorkers,
    StopJob,
    StopWorkers,
    Store,
    Stored,
    TakeSavepoint,
    Unreachable,
    WorkerGone,
    WorkersStarted,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    AbortOutput,
    Acknowledge,
    Cancel,
    Committed,
    Decline,
    Heartbeat,
    Least,
    OutputAborted,
    Passed,
    Ready,
    RequestSettling,
    RequestSplit,
    Settled,
    SplitsListed,
    StopSources,
    TaskEnded,
    TaskFailed,
    ToCoordinator,
    Trigger,
)
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.portable.model import TestStream
from tidegate.sdk.time import SECOND

Phase: TypeAlias = Literal[
    "new", "starting", "restoring", "running", "waiting", "recording", "closing", "sweeping", "over"
]
"""`restoring`: commits, then aborts; `running`: regions; `waiting` for a restart; `recording` that all is committed;
`closing`: workers end; `sweeping`: fresh ones remove what a failed job leaves of its output."""

ATTEMPTS_PER_EPOCH: Final = 1_000_000
"""Attempts are numbered on from one process of a job to the next, since files are named after them."""
_AT_WORK: Final = ("starting", "restoring", "running")
_GRACE: Final = 30.0
_GRACE_SHORT: Final = 5.0
"""Seconds that workers have for the author's teardown: of a job that has done its work, and of one that has not."""


class Coordinator:
    """Of one job. `resume`: what it goes on from; `epoch`: which process of the job this is; `first`: the number of its
    first checkpoint, if it goes on from none; `leftovers`: what earlier processes have left in the checkpoint directory
    for nobody.

    Times are µs of a monotonic clock; `wall` tells what time it is, for people who look at a checkpoint.
    """

    def __init__(
        self,
        job: Job,
        resume: Resume | None = None,
        epoch: int = 1,
        first: int = 1,
        leftovers: Iterable[str] = (),
        *,
        wall: Callable[[], int] = wall_micros,
    ) -> None:
        settings = job.settings
        self.job = job
        self.epoch = epoch
        self._phase: Phase = "new"
        self._attempt = self._first = (epoch - 1) * ATTEMPTS_PER_EPOCH + 1
        self._first_resume = resume
        self._out = Outbox(settings.workers)
        self._scripted = any(isinstance(step.head, TestStream) for step in job.plan.steps)
        self._written = MetricCells()
        self._sinks = {step.id: step.label for step in job.plan.steps if step.is_sink}
        self._runs = job.output_runs(resume.since if resume else 1)
        # what outlives an attempt
        self._deployment = Deployment(job, resume)
        self._regions = self._deployment.regions
        self._restarts = RestartStrategy(settings.restart, retry_user_errors=not (settings.batch or self._scripted))
        self._finished = EndedTasks(resume.counted if resume else None)
        self._checkpoints = CheckpointCoordinator(
            job, epoch, self._deployment, resume, self._out, self._finished, wall, first, leftovers
        )
        self._stop: StopJob | None = None
        self._outcome = Finish("finished")
        # what does not
        self._crew = Workers(settings.workers, None)
        self._settling = QuiescenceRounds()
        self._aborting: set[int] | None = None
        self._tidying = False
        self._wrote = False
        self._beat = 0
        self._wake: int | None = None
        self._run_until: int | None = None

    # -- what happens

    def handle(self, event: CoordinatorEvent, now: int) -> list[Action]:
        """Something has happened, at `now` (µs); what is to be done, in this order."""
        if self._phase == "over":
            return []
        match event:
            case Begin() if self._phase == "new":
                self._begin(now)
            case WorkersStarted(attempt=attempt) if self._hears(attempt):
                self._crew.started(now)
            case FromWorker(worker=worker, attempt=attempt, message=message) if self._hears(attempt):
                self._crew.hear(worker, now)
                self._heard(worker, message, now)
            case WorkerGone(worker=worker, attempt=attempt, reason=reason) if self._hears(attempt):
                self._gone(worker, reason, now)
            case Stored():
                self._stored(event, now)
            case Fenced(reason=reason):
                self._fenced(reason, now)
            case Unreachable(error=error) if self._phase == "sweeping":
                self._out.add(StopWorkers(0.0))
                self._finish(self._outcome, now, from_user=True)
            case Unreachable(error=error):
                self._lost(f"the checkpoint directory can't be read: {error}", now)
            case CancelJob() if self._phase not in ("recording", "closing", "sweeping"):
                self._end(Finish("cancelled"), now)
            case StopJob() if self._stop is None:
                self._begin_stop(event)
            case TakeSavepoint(directory=directory):
                self._want_savepoint(directory)
            case _:
                pass
        self._advance(now)
        return self._out.take()

    def next_wake(self) -> int | None:
        """When `Tick` has something to do (µs); None: only what happens has."""
        dues = [None if self._phase == "waiting" and self._checkpoints.is_storing else self._wake]
        if self._phase in _AT_WORK:
            dues += [self._crew.next_wake(), self._run_until]
        if self._phase == "running":
            regular = not (self._scripted or self._draining)
            dues.append(self._checkpoints.next_wake(regular=regular, last=self._is_last))
        return min((due for due in dues if due is not None), default=None)

    def _begin(self, now: int) -> None:
        run_for = self.job.settings.run_for
        if run_for is not None and not self.job.settings.batch:
            self._run_until = now + round(run_for * SECOND)
        if self._first_resume is not None:
            self._out.report("running", f"going on from {self._first_resume.origin}{_in_all(self._first_resume)}")
        self._start(now)

    def _hears(self, attempt: int) -> bool:
        return attempt == self._attempt and self._phase not in ("new", "waiting")

    def _heard(self, worker: int, message: ToCoordinator, now: int) -> None:
        match message:
            case Ready():
                self._crew.ready.add(worker)
            case Heartbeat():
                self._crew.beat(worker, message)
                if self.job.settings.drift is not None:
                    self._out.send(worker, Least(self._crew.min_watermark_beside(worker)))
                if self._phase != "sweeping" and now - self._beat >= 0.9 * self.job.settings.heartbeat * SECOND:
                    self._tell_progress(now)
            case TaskFailed(task=task, error=error, element=element, text=text):
                stage = None if task is None else task.stage
                where = _where(task, worker)
                self._fail(Failure(error, f"{where}: {text}" if text else where, True, stage, element or ""), now)
            case OutputAborted(step=step, error=error, text=text) if self._aborting is not None:
                self._aborted(step, error, text, now)
            case Committed(step=step, checkpoint=checkpoint, error=error, text=text, written=written):
                if written is not None:
                    self._written.merge(written)
                if error is None:
                    self._checkpoints.commits.acknowledge(step, checkpoint)
                else:
                    what = f"the commit of {self._sinks[step]!r} failed"
                    self._fail(Failure(error, f"{what}: {text}" if text else what, from_user=True), now)
            case SplitsListed(step=step, splits=splits):
                self._deployment.listed(step, splits)
            case _ if self._phase == "running":
                self._heard_at_work(worker, message, now)
            case _:
                pass

    def _aborted(self, step: int, error: bytes | None, text: str, now: int) -> None:
        """A sink has removed what nobody commits, or could not. A job that is over anyway says so, and leaves it."""
        assert self._aborting is not None
        if error is not None:
            what = f"the uncommitted output of {self._sinks[step]!r} could not be removed"
            what = f"{what}: {text}" if text else what
            if self._phase != "sweeping":
                self._fail(Failure(error, what, from_user=True), now)
                return
            self._out.report("finishing", what)
        self._aborting.discard(step)

    def _heard_at_work(self, worker: int, message: ToCoordinator, now: int) -> None:
        match message:
            case RequestSplit(task=task, step=step):
                self._out.send(task.index, self._deployment.assign(task, step))
            case TaskEnded(task=task):
                self._finished.add(message)
                if self._regions.end(task) and self.job.settings.batch:
                    self._restarts.progressed()
            case Acknowledge():
                self._lost_if(self._checkpoints.acknowledge(message, now), now)
            case Decline():
                self._lost_if(self._checkpoints.decline(message, now), now)
            case RequestSettling(settling=settling, clock=clock):
                self._settling.begin(worker, settling)
                self._out.send_all(Trigger(settling, "settle", clock=clock))
                self._settle(settling)
            case Passed(settling=settling, task=task):
                self._settling.passed(settling, task)
                self._settle(settling)
            case _:
                pass

    def _settle(self, settling: int) -> None:
        asked = self._settling.over(settling, self._regions.deployed())
        if asked is not None:
            self._out.send(asked, Settled(settling))

    def _advance(self, now: int) -> None:
        """Whatever can be done now that could not be done before."""
        if self._phase in _AT_WORK:
            if self._run_until is not None and now >= self._run_until:
                self._run_until = None
                if self._stop is None:
                    self._begin_stop(StopJob())
            stuck = self._crew.stuck(now)
            if stuck is not None:
                seconds = self.job.settings.task_timeout
                self._lost(f"worker {stuck} was silent, or in one call, for {seconds:g} s (--task_timeout)", now)
        if self._phase == "waiting" and (wake := self.next_wake()) is not None and now >= wake:
            self._lose_attempt(now)
            self._attempt += 1
            self._start(now)
        if self._phase == "starting" and self._crew.all_ready:
            self._phase = "restoring"
        if self._phase == "restoring":
            self._restore(now)
        if self._phase == "running":
            self._run(now)
        if self._phase in ("closing", "sweeping"):
            self._close(now)

    # -- an attempt

    def _start(self, now: int) -> None:
        self._phase = "starting"
        self._wake = None
        self._crew = Workers(self.job.settings.workers, self.job.settings.task_timeout)
        self._out.add(StartWorkers(self._attempt))

    def _restore(self, now: int) -> None:
        """Commit what is final, then remove what is not, then go to work; each when the one before is through."""
        self._checkpoints.send_commits()
        if self._checkpoints.commits.outstanding:
            return
        if self._aborting is None:
            self._abort_output(self._written_in_vain())
        if self._aborting:
            return
        self._phase = "running"
        self._out.report("running", f"attempt {self._attempt}" if self._attempt > self._first else "")

    def _written_in_vain(self) -> set[int]:
        """Sinks for which an earlier attempt may have written what no checkpoint completed, or what is done again."""
        fresh = self._attempt == 1 and self._first_resume is None
        return set() if fresh else self._deployment.exposed_sinks()

    def _abort_output(self, steps: set[int]) -> None:
        self._aborting = set(steps)
        for step in sorted(steps):
            self._out.send(0, AbortOutput(step, self._runs))

    def _run(self, now: int) -> None:
        self._checkpoints.send_commits()
        region = None if self._checkpoints.ending is not None else self._regions.next
        if region is not None:
            for request in self._deployment.to_list(region):
                self._out.send(0, request)
            if self._deployment.is_listed(region):
                self._deploy(region, now)
        if self.job.settings.batch:
            self._finish_batch(now)
        else:
            self._run_checkpoints(now)

    def _deploy(self, region: int, now: int) -> None:
        self._wrote = True
        for worker, message in self._deployment.deploy(region):
            self._out.send(worker, message)
        if self._draining:
            self._out.send_all(StopSources(drain=True))
        if self._regions.last_deployed and not self.job.settings.batch:
            self._checkpoints.enable(now)

    def _finish_batch(self, now: int) -> None:
        """All regions of a bounded job are done: what its sinks prepared becomes visible, each by one commit."""
        if not self._regions.all_done:
            return
        checkpoints = self._checkpoints
        if checkpoints.ending is None:
            checkpoints.ending = "finished"
            prepared = [part for _, ended in sorted(self._finished.all.items()) for part in ended.prepared]
            checkpoints.commits.add(commits_of(self.job, prepared, None))
            checkpoints.send_commits()
        if not checkpoints.commits.outstanding:
            self._complete(now)

    # -- checkpoints

    def _run_checkpoints(self, now: int) -> None:
        checkpoints = self._checkpoints
        self._lost_if(checkpoints.check_timeout(now), now)
        if self._phase == "running" and self._regions.all_done:
            checkpoints.supersede_regular(now)
        checkpoints.copy_savepoint()
        if self._phase != "running" or not checkpoints.idle:
            return
        savepoint = self._stop.savepoint if self._stop is not None else None
        if checkpoints.ending is not None:
            if not checkpoints.commits.outstanding and self._is_tidy():
                self._complete(now)
        elif self._is_last:
            if self._regions.all_done and not self._needs_final:
                self._complete(now)
            elif checkpoints.may_take_last(now):
                self._begin_last(savepoint, now)
        elif self._regions.last_deployed and not self._scripted:
            checkpoints.begin_due(now, regular=not self._draining)

    @property
    def _is_last(self) -> bool:
        """Whether no checkpoint follows the next one: all input has ended, or the job stops there."""
        stops = self._stop is not None and not self._draining and not self._scripted
        return self._regions.all_done or (stops and self._regions.last_deployed)

    def _begin_last(self, savepoint: str | None, now: int) -> None:
        if self._regions.all_done:
            self._checkpoints.begin(CheckpointRequest("final", savepoint), now)
        else:
            self._checkpoints.begin(CheckpointRequest("stop", savepoint), now)
            self._out.send_all(StopSources(drain=False))

    def _is_tidy(self) -> bool:
        """Whether the sinks of a job that has finished or was stopped have removed what their commits leave: all that
        was written is committed, and nobody writes there any more."""
        if not self._tidying:
            self._tidying = True
            self._abort_output(set(self._sinks))
        return not self._aborting

    @property
    def _needs_final(self) -> bool:
        """Whether a last checkpoint is of use: for sinks, or for whoever looks into the directory later."""
        kept = self.job.settings.checkpoints.directory is not None or (self._stop is not None and self._stop.savepoint)
        return bool(self._sinks or kept or self._checkpoints.commits.outstanding)

    def _stored(self, event: Stored, now: int) -> None:
        if event.checkpoint == RECORDED:
            if self._phase == "recording":
                if event.error:
                    self._out.report("finishing", f"that all is committed could not be recorded: {event.error}")
                self._end(self._outcome, now)
            return
        before = self._checkpoints.resume
        why = self._checkpoints.stored(event.checkpoint, event.error, now, in_place=event.in_place)
        self._lost_if(why, now)
        if self._checkpoints.resume is not before:
            self._restarts.progressed()

    def _want_savepoint(self, directory: str) -> None:
        if self.job.settings.batch or self._scripted:
            kind = "a bounded job" if self.job.settings.batch else "a test stream"
            self._out.add(CheckpointReport(0, 0.0, 0, 0.0, 0.0, f"{kind} has no savepoints", directory))
        else:
            self._checkpoints.request_savepoint(directory)

    # -- stopping

    @property
    def _draining(self) -> bool:
        """Whether the sources end for good: asked for so, or because there is nowhere to keep what comes after."""
        stop = self._stop
        if stop is None:
            return False
        kept = stop.savepoint is not None or self.job.settings.checkpoints.directory is not None
        return stop.drain or not kept or self.job.settings.batch or self._scripted

    def _begin_stop(self, stop: StopJob) -> None:
        self._stop = stop
        if self._draining and self._phase == "running":
            self._out.send_all(StopSources(drain=True))

    # -- failures

    def _gone(self, worker: int, reason: str, now: int) -> None:
        self._crew.gone.add(worker)
        if self._phase in _AT_WORK:
            self._lost(f"worker {worker} has gone: {reason}", now)

    def _lost(self, text: str, now: int) -> None:
        self._fail(Failure(packed(RunError(text)), text), now)

    def _lost_if(self, text: str, now: int) -> None:
        if text:
            self._lost(text, now)

    def _fail(self, failure: Failure, now: int) -> None:
        if self._phase not in _AT_WORK:
            if failure.from_user and self._outcome.state in ("finished", "stopped"):  # while the workers close
                self._outcome = Finish("failed", failure.error)
            return
        match self._restarts.failed(failure, now):
            case FailJob(reason=reason):
                self._out.report("finishing", f"{failure.text}; the job fails: {reason}")
                self._end(Finish("failed", failure.error), now)
            case Restart(delay=delay):
                self._phase = "waiting"
                self._wake = now + delay
                self._out.add(StopWorkers(0.0))
                self._out.report("restarting", f"{failure.text}; {self._goes_on()}, in {delay / SECOND:g} s")

    def _goes_on(self) -> str:
        if self._checkpoints.resume is not None:
            return f"going on from {self._checkpoints.resume.origin}"
        return "what was not done begins anew" if self.job.settings.batch else "beginning anew"

    def _lose_attempt(self, now: int) -> None:
        """All that is in the workers is lost; what is in files is not."""
        self._checkpoints.reset(now)
        self._settling.clear()
        self._aborting = None
        self._tidying = False
        self._deployment.reset(self._checkpoints.resume)
        self._finished.reset(self._regions.done_before())

    def _fenced(self, reason: str, now: int) -> None:
        """The job is another process's now: whatever this one would still do could undo what that one does."""
        self._out.add(StopWorkers(0.0))
        self._finish(Finish("failed", packed(RunError(reason))), now)

    # -- the end

    def _complete(self, now: int) -> None:
        """All is done and committed."""
        state = self._checkpoints.ending or "finished"
        kept = self.job.settings.checkpoints.directory is not None and not self.job.settings.batch
        self._outcome = Finish(state)
        if kept and state == "finished":
            self._phase = "recording"
            self._out.add(Store(RECORDED, RECORD, record(self.job, "finished", self._finished.whole)))
        elif kept and (manifest := self._checkpoints.committed_manifest()) is not None:
            self._phase = "recording"
            self._out.add(Store(RECORDED, manifest.name, dumps(manifest)))
        else:
            self._end(self._outcome, now)

    def _end(self, outcome: Finish, now: int) -> None:
        """Have the workers close what they have, then finish."""
        self._outcome = outcome
        if self._phase in ("new", "waiting"):
            self._crew.gone.update(range(self._crew.count))
        else:
            grace = _GRACE if outcome.state in ("finished", "stopped") else _GRACE_SHORT
            self._out.send_all(Cancel())
            self._out.add(StopWorkers(grace))
            self._wake = now + round((grace + 1) * SECOND)
        self._phase = "closing"
        self._out.report("finishing")

    def _close(self, now: int) -> None:
        over = self._wake is not None and now >= self._wake
        if self._phase == "closing" and (self._crew.all_gone or over):
            if not self._leaves_output():
                self._finish(self._outcome, now)
                return
            self._tell_progress(now)
            self._attempt += 1
            self._start(now)
            self._phase = "sweeping"
            self._aborting = None
            self._wake = now + round(_GRACE * SECOND)
        elif self._phase == "sweeping":
            if self._aborting is None and self._crew.all_ready:
                self._abort_output(set(self._sinks))
            if over or self._aborting == set() or self._crew.gone:
                self._out.add(StopWorkers(0.0))
                self._finish(self._outcome, now, from_user=True)

    def _leaves_output(self) -> bool:
        """Whether a job that ends before its time has written what nobody is going to commit."""
        if self._outcome.state in ("finished", "stopped") or not (self._sinks and self._wrote):
            return False
        return not self._checkpoints.has_uncommitted_output or self.job.settings.checkpoints.directory is None

    def _finish(self, outcome: Finish, now: int, *, from_user: bool = False) -> None:
        if not from_user:
            self._tell_progress(now)
        self._phase = "over"
        self._wake = None
        self._out.add(outcome)

    # -- telling

    def _tell_progress(self, now: int) -> None:
        self._beat = now
        self._out.add(self._crew.progress([*self._finished.metrics, self._written]))


def _in_all(resume: Resume) -> str:
    """How much a job goes on from."""
    files = {(name, size) for parts in resume.restore.values() for part in parts for name, size, _ in part.handle.files}
    begun = sum(len(part.current) for part in resume.progress)
    return f": {len(resume.restore)} tasks read {sum(size for _, size in files):,} bytes of state, {begun} splits go on"


def _where(task: TaskId | None, worker: int) -> str:
    return f"worker {worker} failed" if task is None else f"task {task} failed"
