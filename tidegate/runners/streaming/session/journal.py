"""The journal of a session's running jobs. If the session is killed, the next session of its name continues them."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from pathlib import Path

from tidegate.runners.streaming.protocol.client_messages import Submit
from tidegate.runners.streaming.session.client import JobInfo, SubmitJob, invalid_reason
from tidegate.runners.streaming.session.endpoint import private
from tidegate.runners.streaming.session.job_log import earlier
from tidegate.sdk import moved
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.private_files import owner_only


class Journal:
    """The requests of jobs that have not ended, as files in a private folder beside the jobs' logs. Opening the journal
    removes the logs of jobs that have ended."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        paths = list(directory.iterdir())  # unlike `glob`, raises if the folder can't be listed
        unfinished = {path.stem for path in paths if path.suffix == ".job"}
        for path in paths:
            if path.stem not in unfinished or path.suffix == ".new":
                path.unlink()

    def add(self, request: SubmitJob) -> None:
        """Record a job that is submitted."""
        id = request.submitted.job.id
        incomplete = self._directory / f"{id}.new"
        with open(incomplete, "wb", opener=owner_only) as file:
            pickle.dump(request, file, 5)
        incomplete.rename(self._directory / f"{id}.job")

    def remove(self, id: str) -> None:
        """Remove the record of a job that has ended."""
        (self._directory / f"{id}.job").unlink(missing_ok=True)

    def remove_log(self, id: str) -> None:
        """Remove the log of a job that is no longer listed."""
        log = self.log(id)
        for path in (log, earlier(log)):
            path.unlink(missing_ok=True)

    def log(self, id: str) -> Path:
        """The log of a job."""
        return self._directory / f"{id}.log"

    def requests(self) -> list[tuple[str, SubmitJob | str]]:
        """The id and the request of each job of the previous session, oldest first; in place of an invalid request, the
        reason. OSError if a file can't be read: that may be temporary, so the job must not count as lost."""
        found: list[tuple[str, SubmitJob | str]] = []
        jobs = [path for path in self._directory.iterdir() if path.suffix == ".job"]
        for path in sorted(jobs, key=lambda path: path.stat().st_mtime_ns):
            try:
                request = moved.loads(path.read_bytes())
                fault = invalid_reason(request) if isinstance(request, SubmitJob) else "it is not a SubmitJob"
            except OSError:
                raise
            except Exception as error:  # it may be of another version of Tidegate
                fault = str(error)
            found.append((path.stem, f"and its request can't be read: {fault}" if fault else request))
        return found

    def lost(self, id: str, why: str, submitted: Submit | None = None) -> JobInfo:
        """The final state of a job of the previous session that this session can't continue."""
        job = None if submitted is None else submitted.job
        return JobInfo(
            id=id,
            name="" if job is None else job.plan.pipeline.name,
            state="failed",
            workers=0 if job is None else job.settings.workers,
            started=(self._directory / f"{id}.job").stat().st_mtime,
            ended=time.time(),
            error=f"its session was killed, {why}",
            restarts=0,
            checkpoint=None,
            checkpoint_dir=None if job is None else job.settings.checkpoints.directory,
            tasks=(),
            steps=(),
            metrics=MetricCells(),
            reports=(),
            log=str(self.log(id)),
        )


def logs_of(name: str) -> Path:
    """The folder for the journal and the logs of sessions with this name."""
    return private(private(Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}-logs") / name)
