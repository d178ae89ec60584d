"""Checkpoints from trigger to commit: their manifests, the commits that follow, savepoints on their way.

A checkpoint's commits begin when its manifest is in place; from then on it is what the job goes back to. A savepoint is
a checkpoint that is copied to its own directory, when the output before it is committed: whoever begins from there owes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from tidegate.runners.streaming.checkpoint.commit_queue import CommitQueue
from tidegate.runners.streaming.checkpoint.manifest import Manifest, ManifestError, folder_of
from tidegate.runners.streaming.checkpoint.manifest_builder import build_manifest, commits_for
from tidegate.runners.streaming.checkpoint.manifest_json import dumps
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
    TriggerBarrier,
)
from tidegate.sdk.time import SECOND

_TOLD_AGAIN: Final = 10
"""The folders of so many failed checkpoints are listed when another one fails. To list more each time would take longer
than the interval on a remote store that has refused writes for hours, and hold up the manifest that ends this."""


@dataclass(slots=True)
class _Copy:
    """A savepoint on its way to its directory."""

    manifest: Manifest
    directory: str
    since: int
    begun: bool = False


class CheckpointCoordinator:
    """The checkpoints of a job. `resume` is what it goes back to, `ending` what the last one has made of it.

    Where a checkpoint may fail, what is returned says why the attempt is over with that; "" if it is not. Times: µs.
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
        self.resume = resume
        self.commits = CommitQueue(resume.commits if resume else ())
        self.ending: Literal["finished", "stopped"] | None = "finished" if resume and resume.final else None

    # -- the attempt

    def enable(self, now: int) -> None:
        """The last region is at work: from now on there are checkpoints."""
        self._checkpoints.enable(now)

    def reset(self, now: int) -> None:
        """All workers are gone. Whoever waits for a savepoint that was under way hears that it will not come."""
        pending = self._checkpoints.pending
        if pending is not None and pending.purpose == "savepoint":
            duration = (now - pending.began) / SECOND
            reason = "the job was restarted meanwhile"
            self._out.add(CheckpointReport(pending.number, duration, 0, 0.0, 0.0, reason, pending.directory or ""))
        self._checkpoints.disable()
        self._remove()
        self.commits.resend()

    @property
    def is_storing(self) -> bool:
        """Whether a manifest is on its way: only when it is known to be in place is it known where to go on from."""
        pending = self._checkpoints.pending
        return pending is not None and pending.storing

    @property
    def has_uncommitted_output(self) -> bool:
        """Whether there is output in a manifest that may not be committed."""
        return bool(self.commits.outstanding) or self.is_storing

    @property
    def idle(self) -> bool:
        """Whether nothing is under way, so that a checkpoint may begin."""
        return self._checkpoints.pending is None and self._copy is None

    def next_wake(self, *, regular: bool, last: bool) -> int | None:
        """When something is due: to give one up, to begin a regular one (`regular`), or to try again to take the one
        after which there is no other (`last`)."""
        if self._copy is not None or (self.idle and self.ending is not None):
            return None
        if self.idle and last:
            return self._checkpoints.retry_at
        return self._checkpoints.next_wake() if regular or not self.idle else None

    def may_take_last(self, now: int) -> bool:
        """Whether the last checkpoint may begin: one that has failed is not tried again at once."""
        return self._checkpoints.retry_at is None or now >= self._checkpoints.retry_at

    # -- one checkpoint

    def request_savepoint(self, directory: str) -> None:
        """A savepoint is asked for."""
        self._checkpoints.requests.append(CheckpointRequest("savepoint", directory))

    def begin_due(self, now: int, *, regular: bool) -> None:
        """Begin what is asked for, or (`regular`) one that is due. Sources that end for good end between two of them: a
        crash before the last undoes all of that."""
        if self._checkpoints.requests:
            self.begin(self._checkpoints.requests.popleft(), now)
        elif regular and self._checkpoints.is_due(now):
            self.begin(CheckpointRequest("regular"), now)

    def begin(self, wanted: CheckpointRequest, now: int) -> None:
        """A checkpoint begins at every task."""
        pending = self._checkpoints.begin(wanted, self._deployment.regions.deployed(), now)
        # From a stop another number of workers may go on, and elements under way are nobody's to divide among them.
        kind: BarrierKind = "savepoint" if wanted.purpose == "stop" or wanted.directory is not None else "checkpoint"
        unaligned = self._job.settings.checkpoints.mode == "unaligned" and kind == "checkpoint"
        self._out.send_all(TriggerBarrier(pending.number, kind, unaligned=unaligned))

    def acknowledge(self, ack: Acknowledge, now: int) -> str:
        """A task has stored its part; with the last one the manifest is written."""
        return self._write_manifest(now) if self._checkpoints.acknowledge(ack) else ""

    def decline(self, decline: Decline, now: int) -> str:
        """A task could not take its part."""
        if not self._checkpoints.decline(decline):
            return ""
        return self._give_up(f"task {decline.task}: {decline.reason}", now)

    def check_timeout(self, now: int) -> str:
        """Give up one that takes too long."""
        if not self._checkpoints.timed_out(now):
            return ""
        seconds = self._job.settings.checkpoints.timeout
        return self._give_up(f"not all tasks have taken part within {seconds:g} s", now)

    def supersede_regular(self, now: int) -> None:
        """All input has ended: nobody waits for what tasks still store for a regular one, when the last has it all."""
        superseded = self._checkpoints.supersede_regular(now)
        if superseded is not None:
            self._out.send_all(CheckpointAborted(superseded))
            self._remove()

    def stored(self, checkpoint: int, error: str, now: int, *, in_place: bool = True) -> str:
        """A manifest is in place, or a savepoint; or not (`in_place`: or it may be)."""
        pending, copy = self._checkpoints.pending, self._copy
        if pending is not None and pending.storing and pending.number == checkpoint:
            if not error:
                self._complete(pending, now)
                return ""
            assert self._manifest is not None
            if in_place:  # some failures are none, and it must not come back
                self._out.add(Withdraw(self._manifest.name))
            return self._give_up(f"its manifest could not be stored: {error}", now)
        if copy is not None and copy.begun and copy.manifest.checkpoint == checkpoint:
            self._copy = None
            size = sum(size for _, size, _ in copy.manifest.files())
            seconds = (now - copy.since) / SECOND
            self._out.add(CheckpointReport(checkpoint, seconds, size, 0.0, 0.0, error, copy.directory))
        return ""

    def copy_savepoint(self) -> None:
        """Send a savepoint on its way, as soon as nothing before it is to be committed any more."""
        copy = self._copy
        if copy is not None and not copy.begun and not self.commits.outstanding:
            copy.begun = True
            manifest = copy.manifest
            self._out.add(Store(manifest.checkpoint, manifest.name, dumps(manifest), copy.directory))

    def send_commits(self) -> None:
        """Commit what may be committed now."""
        for commit in self.commits.to_send():
            self._out.send(0, commit)

    def finish(self, commits: Iterable[Commit]) -> None:
        """A job without checkpoints has done its work: these commits end it."""
        self.ending = "finished"
        self.commits.add(commits)
        self.send_commits()

    def committed_manifest(self) -> Manifest | None:
        """The last manifest as it reads when all output in it is committed; None if it holds none."""
        manifest = self._manifest
        return None if manifest is None or not manifest.commits else replace(manifest, commits=())

    def _write_manifest(self, now: int) -> str:
        """All tasks have acknowledged: what they said is written down, with the output that is final with it."""
        pending, regions = self._checkpoints.pending, self._deployment.regions
        assert pending is not None
        commits = commits_for(self._job, self._checkpoints.prepared(), pending.number)
        manifest = build_manifest(
            self._job,
            self._epoch,
            pending,
            done_before=regions.done_before(),
            counted=[self._finished.whole] if pending.final else self._finished.metrics,
            lists=self._deployment.lists,
            commits=(*self.commits.outstanding, *commits),
            now=self._wall(),
        )
        try:
            data = dumps(manifest)
        except ManifestError as error:
            return self._give_up(str(error), now)
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
        self.commits.add(self._new_commits)
        if pending.directory is not None:
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
        if unneeded or folders:
            is_savepoint = pending.purpose == "savepoint"
            self._out.add(Delete(unneeded, folders, except_for=self._checkpoints.needed, keep_store_files=is_savepoint))

    def _give_up(self, reason: str, now: int) -> str:
        pending = self._checkpoints.pending
        assert pending is not None
        duration = (now - pending.began) / SECOND
        self._out.send_all(CheckpointAborted(pending.number))
        self._out.add(CheckpointReport(pending.number, duration, 0, 0.0, 0.0, reason, pending.directory or ""))
        bearable = self._checkpoints.abort(now)
        self._remove()
        return "" if bearable else f"checkpoint {pending.number} failed: {reason}"

    def _remove(self) -> None:
        """Have removed what failed checkpoints have written: the disk may be full of that. Each folder is asked for
        again while it may be written to, but only a few times: all of them are when a checkpoint is complete."""
        folders = tuple(map(folder_of, self._checkpoints.failed[-_TOLD_AGAIN:]))
        if folders:
            self._out.add(Delete(folders=folders, except_for=self._checkpoints.needed, keep_store_files=True))
