"""The phases of a job. Each takes events and returns the phase that follows: itself, until something ends it.

    New -> Starting -> Restoring -> Running -> Recording -> Closing -> Sweeping -> Over
               ^          |            |
               +----- Waiting <--------+

A failure before the end leads through `Waiting` to another attempt, or to `Closing` if the restart strategy says so. A
job without a checkpoint directory skips `Recording`, and one that leaves no output behind skips `Sweeping`. The phases
from `Recording` on are in `end_phases`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.runners.checkpoint.manifest_json import dumps
from tidegate.runners.engine.errors.transport import packed
from tidegate.runners.engine.iteration.decision import not_met
from tidegate.runners.streaming.checkpoint.job_record import RECORD, RECORDED, record
from tidegate.runners.streaming.checkpoint.manifest_builder import commits_for
from tidegate.runners.streaming.checkpoint.recovery import Resume
from tidegate.runners.streaming.checkpoint.tracker import CheckpointRequest
from tidegate.runners.streaming.coordinator.end_phases import Recording, end
from tidegate.runners.streaming.coordinator.job_run import JobRun
from tidegate.runners.streaming.coordinator.phase import Phase
from tidegate.runners.streaming.coordinator.quiescence import QuiescenceRounds
from tidegate.runners.streaming.coordinator.restart_strategy import FailJob, Failure, Restart
from tidegate.runners.streaming.feedback.loop_watermark import LoopTimes
from tidegate.runners.streaming.model.exit_status import one_line
from tidegate.runners.streaming.protocol.coordinator_io import (
    Begin,
    CoordinatorEvent,
    Finish,
    StopJob,
    StopWorkers,
    Store,
)
from tidegate.runners.streaming.protocol.worker_messages import (
    Acknowledge,
    Decline,
    LoopReport,
    QuiescencePassed,
    QuiescenceReached,
    RequestQuiescence,
    RequestSplit,
    StopSources,
    TaskEnded,
    ToCoordinator,
    ToWorker,
    TriggerBarrier,
)
from tidegate.sdk.errors import counted
from tidegate.sdk.time import SECOND


class ActivePhase(Phase):
    """A phase in which the job can be cancelled."""

    def on_cancel(self, now: int) -> Phase:
        return self.end(Finish("cancelled"), now)

    def end(self, outcome: Finish, now: int) -> Phase:
        """Have the workers close their tasks, then finish."""
        return end(self.run, outcome, now, has_workers=self.has_workers)


class New(ActivePhase):
    """Nothing has happened yet."""

    has_workers = False

    def handle(self, event: CoordinatorEvent, now: int) -> Phase:
        if not isinstance(event, Begin):
            return super().handle(event, now)
        run = self.run
        run_for = run.job.settings.run_for
        if run_for is not None and not run.job.settings.batch:
            run.run_until = now + round(run_for * SECOND)
        if run.resume is not None:
            run.out.report("running", f"resuming from {run.resume.origin}{_summary(run.resume)}")
        run.start_workers()
        return Starting(run)


class Waiting(ActivePhase):
    """The attempt has failed, and the next one starts at `wake` (µs)."""

    has_workers = False

    def __init__(self, run: JobRun, wake: int) -> None:
        super().__init__(run)
        self._wake = wake

    def advance(self, now: int) -> Phase:
        wake = self.next_wake()
        if wake is None or now < wake:
            return self
        self.run.reset_attempt(now)
        self.run.attempt += 1
        self.run.start_workers()
        return Starting(self.run)

    def next_wake(self) -> int | None:
        """A manifest that is being stored decides which checkpoint to restore, so the next attempt waits for it."""
        return None if self.run.checkpoints.is_storing else self._wake


# -- an attempt


class AttemptPhase(ActivePhase):
    """A phase in which a failure ends the attempt."""

    def advance(self, now: int) -> Phase:
        run = self.run
        if run.run_until is not None and now >= run.run_until:
            run.run_until = None
            if run.stop is None:
                self.on_stop(StopJob())
        stuck = run.workers.stuck(now)
        if stuck is not None:
            seconds = run.job.settings.task_timeout
            return self.lost(f"worker {stuck} was silent, or in one call, for {seconds:g} s (--task_timeout)", now)
        return self.work(now)

    def work(self, now: int) -> Phase:
        """Do whatever has become possible in this phase."""
        raise NotImplementedError

    def next_wake(self) -> int | None:
        return _earliest(self.run.workers.next_wake(), self.run.run_until)

    def on_worker_gone(self, worker: int, reason: str, now: int) -> Phase:
        return self.lost(f"worker {worker} is gone: {reason}", now)

    def fail(self, failure: Failure, now: int) -> Phase:
        run = self.run
        match run.restarts.failed(failure, now):
            case FailJob(reason=reason):
                run.out.report("finishing", f"{failure.text}; the job fails: {reason}")
                return self.end(Finish("failed", failure.error), now)
            case Restart(delay=delay):
                run.out.add(StopWorkers(0.0))
                run.out.report("restarting", f"{failure.text}; {self._restart_point()}, in {delay / SECOND:g} s")
                return Waiting(run, now + delay)

    def _restart_point(self) -> str:
        resume = self.run.checkpoints.resume
        if resume is not None:
            return f"resuming from {resume.origin}"
        return "unfinished regions run again" if self.run.job.settings.batch else "starting over"


class Starting(AttemptPhase):
    """The workers are being started."""

    def work(self, now: int) -> Phase:
        return Restoring(self.run) if self.run.workers.all_ready else self


class Restoring(AttemptPhase):
    """Final output is committed, then uncommitted output is removed."""

    def work(self, now: int) -> Phase:
        run = self.run
        run.checkpoints.send_commits()
        if run.checkpoints.commits.outstanding:
            return self
        if self.cleanup is None:
            self.cleanup = run.abort_output(run.exposed_sinks())
        if self.cleanup:
            return self
        run.out.report("running", "" if run.is_first_attempt else f"attempt {run.attempt}")
        return Running(run)


class Running(AttemptPhase):
    """Regions are deployed one after another; the last one of a stream takes checkpoints."""

    def __init__(self, run: JobRun) -> None:
        super().__init__(run)
        self._quiescence = QuiescenceRounds()
        self._loops = LoopTimes(run.job)

    def on_message(self, worker: int, message: ToCoordinator, now: int) -> Phase:
        run = self.run
        match message:
            case RequestSplit(task=task, step=step):
                self._send(run.deployment.request(task, step))
            case TaskEnded(task=task):
                run.ended_tasks.add(message)
                if run.regions.end(task) and run.job.settings.batch:
                    run.restarts.progressed()
                    return self._end_round(run.job.topology.region_of(task), now)
            case Acknowledge():
                return self._fail_if(run.checkpoints.acknowledge(message, now), now)
            case Decline():
                return self._fail_if(run.checkpoints.decline(message, now), now)
            case RequestQuiescence(round=round, clock=clock):
                self._quiescence.begin(worker, message)
                run.out.send_all(TriggerBarrier(round, "quiescence", clock=clock))
                self._answer_if_quiescent()
            case QuiescencePassed(round=round, task=task, moved=moved):
                self._quiescence.passed(round, task, moved=moved)
                self._answer_if_quiescent()
            case LoopReport():
                self._send_all(self._loops.report(message))
                self._answer_if_quiescent()
            case _:
                return super().on_message(worker, message, now)
        return self

    def on_stop(self, stop: StopJob) -> None:
        super().on_stop(stop)
        if self.run.draining:
            self.run.out.send_all(StopSources(drain=True))

    def next_wake(self) -> int | None:
        run = self.run
        regular = not (run.scripted or run.draining)
        return _earliest(
            super().next_wake(),
            run.checkpoints.next_wake(regular=regular, last=self._is_last),
            run.checkpoints.backpressure.next_report(),
        )

    def work(self, now: int) -> Phase:
        run = self.run
        run.checkpoints.send_commits()
        run.checkpoints.pause_sources(now, stopping=run.stop is not None or run.scripted)
        region = None if run.checkpoints.ending is not None else run.regions.next
        if region is not None:
            self._send(run.deployment.prepare(region))
            if run.deployment.is_prepared(region):
                self._deploy(region, now)
        return self._work_on_batch(now) if run.job.settings.batch else self._work_on_checkpoints(now)

    def _deploy(self, region: int, now: int) -> None:
        run = self.run
        run.wrote = True
        run.deployment.loops.begin(region, now)
        self._send(run.deployment.deploy(region))
        if run.draining:
            run.out.send_all(StopSources(drain=True))
        if run.regions.last_deployed and not run.job.settings.batch:
            run.checkpoints.enable(now)

    def _end_round(self, region: int, now: int) -> Phase:
        """A region is done: if that completes a round of a loop, decide whether there is another."""
        run, loops = self.run, self.run.deployment.loops
        loop = loops.ending_with(region)
        if loop is None:
            return self
        tasks = [task for region in loop.regions for task in run.job.topology.tasks(region)]
        reports = run.ended_tasks.all
        decision = loops.end(loop, [reports[task] for task in tasks], now)
        run.ended_tasks.end_round(tasks)
        if decision == "again":
            run.regions.repeat(loop.regions)
        elif decision == "unmet" and loop.node.strict:
            error = not_met(loop.node, loops.done(loop))
            return self.fail(Failure(packed(error), one_line(error), from_user=True, final=True), now)
        return self

    def _work_on_batch(self, now: int) -> Phase:
        """When all regions of a bounded job are done, one commit for each sink makes its output visible."""
        run, checkpoints = self.run, self.run.checkpoints
        if not run.regions.all_done:
            return self
        if checkpoints.ending is None:
            prepared = [part for _, ended in sorted(run.ended_tasks.all.items()) for part in ended.prepared]
            checkpoints.finish(commits_for(run.job, prepared, None))
        return self if checkpoints.commits.outstanding else self._complete(now)

    def _work_on_checkpoints(self, now: int) -> Phase:
        run, checkpoints = self.run, self.run.checkpoints
        why = checkpoints.check_timeout(now)
        if why:
            return self.lost(why, now)
        if run.regions.all_done:
            checkpoints.supersede_regular(now)
        checkpoints.copy_savepoint()
        if not checkpoints.may_begin:
            return self
        if checkpoints.ending is not None:
            if checkpoints.idle and not checkpoints.commits.outstanding and self._is_cleaned_up():
                return self._complete(now)
        elif self._is_last:
            if run.regions.all_done and not self._needs_final_checkpoint:
                return self._complete(now)
            if checkpoints.idle and checkpoints.may_begin_last(now):
                self._begin_last_checkpoint(now)
        elif run.regions.last_deployed and not run.scripted:
            checkpoints.begin_due(now, regular=not run.draining)
        return self

    @property
    def _is_last(self) -> bool:
        """Whether the next checkpoint is the last: all input has ended, or the job stops with it."""
        run = self.run
        is_stopping = run.stop is not None and not run.draining and not run.scripted
        return run.regions.all_done or (is_stopping and run.regions.last_deployed)

    @property
    def _needs_final_checkpoint(self) -> bool:
        """Whether a checkpoint after the end of all input is needed: by sinks, or because it outlives the job."""
        run = self.run
        outlives = run.job.settings.checkpoints.directory is not None or (run.stop is not None and run.stop.savepoint)
        return bool(run.sinks or outlives or run.checkpoints.commits.outstanding)

    def _begin_last_checkpoint(self, now: int) -> None:
        run = self.run
        savepoint = run.stop.savepoint if run.stop is not None else None
        if run.regions.all_done:
            run.checkpoints.begin(CheckpointRequest("final", savepoint), now)
        else:
            run.checkpoints.begin(CheckpointRequest("stop", savepoint), now)
            run.out.send_all(StopSources(drain=False))

    def _is_cleaned_up(self) -> bool:
        """Whether the sinks have removed all uncommitted output; all final output is committed by now."""
        if self.cleanup is None:
            self.cleanup = self.run.abort_output(self.run.sinks)
        return not self.cleanup

    def _answer_if_quiescent(self) -> None:
        """Answer a test stream when all tasks have handled its event, and what they have fed back has gone round."""
        if not self._quiescence.all_passed(self.run.regions.deployed()):
            return
        if self._loops.live:
            clock = self._loops.next_clock if self._quiescence.at_rest and self._quiescence.last else None
            if clock is not None or not self._quiescence.at_rest:
                if not self._loops.quiescent:
                    self._send_all(self._loops.next_marks())
                    return
                again = self._quiescence.again(clock)
                self._loops.reset_quiescence()
                self.run.out.send_all(TriggerBarrier(again.checkpoint, "quiescence", clock=again.clock))
                return
        worker, round = self._quiescence.complete()
        self.run.out.send(worker, QuiescenceReached(round))

    def _send_all(self, messages: Iterable[ToWorker]) -> None:
        for message in messages:
            self.run.out.send_all(message)

    def _fail_if(self, why: str, now: int) -> Phase:
        return self.lost(why, now) if why else self

    def _complete(self, now: int) -> Phase:
        """All work is done, and all output is committed."""
        run = self.run
        outcome = Finish(run.checkpoints.ending or "finished")
        if run.job.settings.checkpoints.directory is None or run.job.settings.batch:
            return self.end(outcome, now)
        stores: list[Store] = []
        committed, unneeded = run.checkpoints.committed_manifest(), run.checkpoints.remaining_staged()
        if committed is not None and (unneeded is not None or outcome.state == "stopped"):
            stores.append(Store(RECORDED, committed.name, dumps(committed)))
        if outcome.state == "finished":
            stores.append(Store(RECORDED, RECORD, record(run.job, "finished", run.ended_tasks.total_metrics)))
        return Recording(run, outcome, stores, unneeded) if stores else self.end(outcome, now)


def _earliest(*instants: int | None) -> int | None:
    return min((instant for instant in instants if instant is not None), default=None)


def _summary(resume: Resume) -> str:
    """How much state a job is restored from."""
    files = {(name, size) for parts in resume.restore.values() for part in parts for name, size, _ in part.handle.files}
    splits = sum(len(part.current) for part in resume.progress)
    size = sum(size for _, size in files)
    tasks = counted(len(resume.restore), "task restores", "tasks restore")
    return f": {tasks} {counted(size, 'byte')} of state, {counted(splits, 'split is', 'splits are')} resumed"
