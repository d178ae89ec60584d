"""Triggers, completes and aborts checkpoints; then commits their output, and copies savepoints.

Once a checkpoint's manifest is stored, its commits begin, and the job recovers from it. A savepoint is a checkpoint
that is copied to its own directory as soon as all output before it is committed, so a job that starts from it has no
outstanding commits. Checkpoints go on while it waits for these commits; its files are retained until it is copied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidegate.runners.checkpoint.manifest import Manifest, ManifestError, folder_of
from tidegate.runners.checkpoint.manifest_json import dumps
from tidegate.runners.engine.sinks.staged_files import stored_files
from tidegate.runners.streaming.checkpoint.commit_backpressure import CommitBackpressure
from tidegate.runners.streaming.checkpoint.commit_queue import CommitQueue
from tidegate.runners.streaming.checkpoint.manifest_builder import build_manifest, commits_for
from tidegate.runners.streaming.checkpoint.recovery import Resume, resumed
from tidegate.runners.streaming.checkpoint.tracker import CheckpointRequest, CheckpointTracker, PendingCheckpoint
from tidegate.runners.streaming.coordinator.deployment import Deployment
from tidegate.runners.streaming.coordinator.outbox import Outbox
from tidegate.runners.streaming.coordinator.workers import EndedTasks
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import CheckpointReport, Delete, Store, Withdraw
from tidegate.runners.streaming.protocol.stream_items import BarrierKind
from tidegate.runners.streaming.protocol.worker_messages import (
    Acknowledge,
    CheckpointAborted,
    CheckpointCompleted,
    Commit,
    Decline,
    PauseSources,
    TriggerBarrier,
)
from tidegate.sdk.time import SECOND

_FOLDERS_PER_CLEANUP: Final = 10
"""When a checkpoint fails, the folders of this many failed ones are cleaned up. On a remote store that has refused
writes for hours, listing them all would take longer than the checkpoint interval and delay the next manifest."""


@dataclass(slots=True)
class _Copy:
    """A savepoint that is being copied to its directory."""

    manifest: Manifest
    directory: str
    since: int
    begun: bool = False


class CheckpointCoordinator:
    """The checkpoints of a job. `resume`: the state that the job recovers from; `ending`: the outcome, once the last
    checkpoint is complete. Times are µs.

    Methods that may fail a checkpoint return why this ends the attempt, or "" if the failure is tolerated.
    """

    def __init__(
        self,
        job: Job,
        epoch: int,
        deployment: Deployment,
        resume: Resume | None,
        out: Outbox,
        finished: EndedTasks,
        wall: Callable[[], int],
        first: int = 1,
        leftovers: Iterable[str] = (),
    ) -> None:
        self._job = job
        self._epoch = epoch
        self._deployment = deployment
        self._out = out
        self._finished = finished
        self._wall = wall
        self._checkpoints = CheckpointTracker(
            job.settings.checkpoints,
            resume.next if resume else first,
            resume.retained if resume else (),
            leftovers,
        )
        self._manifest: Manifest | None = None
        self._new_commits: tuple[Commit, ...] = ()
        self._copy: _Copy | None = None
        self._stages = any(stored_files(commit.committables) for commit in resume.commits) if resume else False
        """Whether sinks of the job are known to stage files."""
        self._swept: int | None = None
        """The last attempt in which the staged files of earlier attempts have been removed."""
        self.attempt = 0
        """The number of the current attempt."""
        self.resume = resume
        self.commits = CommitQueue(resume.commits if resume else ())
        self.backpressure = CommitBackpressure(
            job.settings.checkpoints, {step.id: step.label for step in job.plan.steps if step.is_sink}
        )
        self.ending: Literal["finished", "stopped"] | None = "finished" if resume and resume.final else None

    # -- the attempt

    def enable(self, now: int) -> None:
        """The last region has been deployed: take checkpoints from now on."""
        self._checkpoints.enable(now)

    def reset(self, now: int) -> None:
        """All workers are gone. A savepoint in progress is reported as failed to the client that requested it."""
        pending = self._checkpoints.pending
        if pending is not None and pending.purpose == "savepoint":
            duration = (now - pending.began) / SECOND
            reason = "the job was restarted before it was complete"
            self._out.add(CheckpointReport(pending.number, duration, 0, 0.0, 0.0, reason, pending.directory or ""))
        self._checkpoints.disable()
        self._clean_up()
        if self._stages:
            self._out.add(Delete(except_for=self._checkpoints.needed, staged_before=self.attempt + 1))
        self.commits.resend()
        self.backpressure.reset()

    @property
    def is_storing(self) -> bool:
        """Whether a manifest is being stored. It decides which checkpoint to recover from."""
        pending = self._checkpoints.pending
        return pending is not None and pending.storing

    @property
    def has_uncommitted_output(self) -> bool:
        """Whether a manifest holds output that may not be committed yet."""
        return bool(self.commits.outstanding) or self.is_storing

    @property
    def idle(self) -> bool:
        """Whether no checkpoint is in progress, and no savepoint has yet to be copied."""
        return self._checkpoints.pending is None and self._copy is None

    @property
    def may_begin(self) -> bool:
        """Whether a regular checkpoint may begin: none is in progress, and no savepoint is being copied."""
        return self._checkpoints.pending is None and (self._copy is None or not self._copy.begun)

    def next_wake(self, *, regular: bool, last: bool) -> int | None:
        """When to abort the pending checkpoint, to begin a regular one (`regular`), or to retry the last one of the job
        (`last`)."""
        if self._checkpoints.pending is not None:
            return self._checkpoints.next_wake()
        if not self.may_begin or self.ending is not None:
            return None
        if last:
            return self._checkpoints.retry_at if self.idle else None
        return self._checkpoints.next_wake() if regular else None

    def may_begin_last(self, now: int) -> bool:
        """Whether the last checkpoint may begin: after a failure, it is retried with a delay."""
        return self._checkpoints.retry_at is None or now >= self._checkpoints.retry_at

    # -- one checkpoint

    def request_savepoint(self, directory: str) -> None:
        """Request a savepoint."""
        self._checkpoints.requests.append(CheckpointRequest("savepoint", directory))

    def begin_due(self, now: int, *, regular: bool) -> None:
        """Begin a requested checkpoint, or (`regular`) one that is due. While sources are drained no regular one is
        taken, so that a crash before the last checkpoint undoes the whole drain."""
        if self._checkpoints.requests and self.idle:
            self.begin(self._checkpoints.requests.popleft(), now)
        elif regular and self._checkpoints.is_due(now):
            self.begin(CheckpointRequest("regular"), now)

    def begin(self, request: CheckpointRequest, now: int) -> None:
        """Begin a checkpoint at every task."""
        pending = self._checkpoints.begin(request, self._deployment.regions.deployed(), now)
        # A stopped job may resume with another number of workers, among which in-flight elements can't be divided.
        kind: BarrierKind = "savepoint" if request.purpose == "stop" or request.directory is not None else "checkpoint"
        unaligned = self._job.settings.checkpoints.mode == "unaligned" and kind == "checkpoint"
        self._out.send_all(TriggerBarrier(pending.number, kind, unaligned=unaligned))

    def acknowledge(self, ack: Acknowledge, now: int) -> str:
        """A task has stored its part. Once all tasks have, the manifest is written."""
        return self._write_manifest(now) if self._checkpoints.acknowledge(ack) else ""

    def decline(self, decline: Decline, now: int) -> str:
        """A task could not store its part."""
        if not self._checkpoints.decline(decline):
            return ""
        return self._abort(f"task {decline.task}: {decline.reason}", now)

    def check_timeout(self, now: int) -> str:
        """Abort the pending checkpoint if it takes too long."""
        if not self._checkpoints.timed_out(now):
            return ""
        seconds = self._job.settings.checkpoints.timeout
        return self._abort(f"not all tasks have acknowledged it within {seconds:g} s", now)

    def supersede_regular(self, now: int) -> None:
        """All input has ended: abort a regular checkpoint, since the last one begins now and includes all state."""
        superseded = self._checkpoints.supersede_regular(now)
        if superseded is not None:
            self._out.send_all(CheckpointAborted(superseded))
            self._clean_up()

    def stored(self, checkpoint: int, error: str, now: int, *, in_place: bool = True) -> str:
        """A manifest or savepoint has been stored, unless there is an `error`. `in_place`: it may be there anyway."""
        pending, copy = self._checkpoints.pending, self._copy
        if pending is not None and pending.storing and pending.number == checkpoint:
            if not error:
                self._complete(pending, now)
                return ""
            assert self._manifest is not None
            if in_place:  # the write may have succeeded despite the error, and must not be found later
                self._out.add(Withdraw(self._manifest.name))
            return self._abort(f"its manifest could not be stored: {error}", now)
        if copy is not None and copy.begun and copy.manifest.checkpoint == checkpoint:
            self._copy = None
            self._checkpoints.pinned = frozenset()
            size = sum(size for _, size, _ in copy.manifest.files())
            seconds = (now - copy.since) / SECOND
            self._out.add(CheckpointReport(checkpoint, seconds, size, 0.0, 0.0, error, copy.directory))
        return ""

    def copy_savepoint(self) -> None:
        """Begin to copy a savepoint as soon as all output before it is committed."""
        copy = self._copy
        if copy is not None and not copy.begun and not self.commits.outstanding_until(copy.manifest.checkpoint):
            copy.begun = True
            manifest = copy.manifest
            self._out.add(Store(manifest.checkpoint, manifest.name, dumps(manifest), copy.directory))

    def send_commits(self) -> None:
        """Send the commits that may begin now: those of a task to its own worker, if there are still as many."""
        for commit in self.commits.to_send():
            self._out.send((commit.task or 0) % self._job.settings.workers, commit)

    def pause_sources(self, now: int, *, stopping: bool) -> None:
        """Pause the sources while too many commits are outstanding, and report it if that takes long."""
        backlogs, backpressure = self.commits.backlogs, self.backpressure
        if backpressure.update(backlogs, now, stopping=stopping):
            self._out.send_all(PauseSources(backpressure.paused))
        if text := backpressure.report(backlogs, now):
            self._out.report("running", text)

    def finish(self, commits: Iterable[Commit]) -> None:
        """A job without checkpoints has done its work, and ends with these commits."""
        self.ending = "finished"
        self.commits.add(commits)
        self.send_commits()

    def committed_manifest(self) -> Manifest | None:
        """The last manifest without its commits, for when they are all made; None if it has none."""
        manifest = self._manifest
        return None if manifest is None or not manifest.commits else replace(manifest, commits=())

    def remaining_staged(self) -> Delete | None:
        """Removes all staged files when all commits are made and no manifest but earlier ones has any; None if sinks
        have staged none."""
        if not self._stages:
            return None
        needed = self._checkpoints.needed_without(0 if self._manifest is None else self._manifest.checkpoint)
        return Delete(except_for=needed, staged_before=self.attempt + 1)

    def _write_manifest(self, now: int) -> str:
        """All tasks have acknowledged: write the manifest, with the commits that become due with it."""
        pending, regions = self._checkpoints.pending, self._deployment.regions
        assert pending is not None
        commits = commits_for(self._job, self._checkpoints.prepared(), pending.number)
        manifest = build_manifest(
            self._job,
            self._epoch,
            pending,
            done_before=regions.done_before(),
            counted=[self._finished.total_metrics] if pending.final else self._finished.metrics,
            lists=self._deployment.lists,
            enumerators=self._deployment.enumerators,
            finished=self._deployment.finished,
            commits=(*self.commits.outstanding, *commits),
            now=self._wall(),
        )
        try:
            data = dumps(manifest)
        except ManifestError as error:
            return self._abort(str(error), now)
        pending.storing = True
        self._manifest, self._new_commits = manifest, tuple(commits)
        new_files = self._checkpoints.new_files(name for name, _, _ in manifest.files())
        self._out.add(Store(pending.number, manifest.name, data, new_files=new_files))
        return ""

    def _complete(self, pending: PendingCheckpoint, now: int) -> None:
        manifest = self._manifest
        assert manifest is not None
        failed = self._checkpoints.failed
        unneeded = self._checkpoints.complete(manifest.retained.files, now)
        self.resume = resumed(self._job, manifest, f"checkpoint {pending.number}")
        self._deployment.forget_finished(part for ack in pending.acks.values() for part in ack.splits)
        self.commits.add(self._new_commits)
        if pending.directory is not None:
            self._checkpoints.pinned = manifest.retained.files
            self._copy = _Copy(replace(manifest, commits=()), pending.directory, now)
        if manifest.final:
            self.ending = "finished"
        elif pending.purpose == "stop":
            self.ending = "stopped"
        stats = [ack.stats for ack in pending.acks.values()]
        alignment = max((part.alignment for part in stats), default=0.0)
        pause = max((part.pause for part in stats), default=0.0)
        duration = (now - pending.began) / SECOND
        self._out.add(CheckpointReport(pending.number, duration, pending.size, alignment, pause))
        self._out.send_all(CheckpointCompleted(pending.number))
        folders = tuple(map(folder_of, failed))
        staged_before = self._to_sweep(manifest)
        if unneeded or folders or staged_before is not None:
            is_savepoint = pending.purpose == "savepoint"
            self._out.add(
                Delete(
                    unneeded,
                    folders,
                    except_for=self._checkpoints.needed,
                    keep_store_files=is_savepoint,
                    staged_before=staged_before,
                )
            )

    def _to_sweep(self, manifest: Manifest) -> int | None:
        """The attempt before which all staged files can be removed now; None if there are none, or this has been done.
        A worker of an earlier process, which has been replaced, may still have stored some since the last time."""
        self._stages = self._stages or next(manifest.staged_files(), None) is not None
        if not self._stages or self._swept == self.attempt:
            return None
        self._swept = self.attempt
        return self.attempt

    def _abort(self, reason: str, now: int) -> str:
        pending = self._checkpoints.pending
        assert pending is not None
        duration = (now - pending.began) / SECOND
        self._out.send_all(CheckpointAborted(pending.number))
        self._out.add(CheckpointReport(pending.number, duration, 0, 0.0, 0.0, reason, pending.directory or ""))
        tolerated = self._checkpoints.abort(now)
        self._clean_up()
        return "" if tolerated else f"checkpoint {pending.number} failed: {reason}"

    def _clean_up(self) -> None:
        """Delete the files of failed checkpoints, which may fill the disk. Tasks may still write to a folder, so it is
        cleaned up repeatedly: after each of the next few failures, and when a checkpoint is complete."""
        folders = tuple(map(folder_of, self._checkpoints.failed[-_FOLDERS_PER_CLEANUP:]))
        if folders:
            self._out.add(Delete(folders=folders, except_for=self._checkpoints.needed, keep_store_files=True))
