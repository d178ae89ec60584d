"""What a session keeps of its jobs in files: when it is killed, the next one of its name goes on with them."""

from __future__ import annotations

import os
import pickle
import tempfile
import time
from pathlib import Path

from tidegate.runners.streaming.protocol.client_messages import Submit
from tidegate.runners.streaming.session.client import JobInfo, SubmitJob, fault_of
from tidegate.runners.streaming.session.endpoint import private
from tidegate.runners.streaming.session.job_log import earlier
from tidegate.sdk import moved
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.private_files import owner_only


class Kept:
    """The jobs of a session that have not ended, in a folder of this user's alone. When a session begins, what those
    have printed there that are over goes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        there = list(directory.iterdir())  # a pattern would pass over what can't be listed
        going_on = {path.stem for path in there if path.suffix == ".job"}
        for path in there:
            if path.stem not in going_on or path.suffix == ".new":
                path.unlink()

    def keep(self, request: SubmitJob) -> None:
        """A job begins."""
        id = request.submitted.job.id
        fresh = self._directory / f"{id}.new"
        with open(fresh, "wb", opener=owner_only) as file:
            pickle.dump(request, file, 5)
        fresh.rename(self._directory / f"{id}.job")

    def drop(self, id: str) -> None:
        """A job is over."""
        (self._directory / f"{id}.job").unlink(missing_ok=True)

    def forget(self, id: str) -> None:
        """A job that is over is no longer listed: what it has printed goes too."""
        log = self.log(id)
        for path in (log, earlier(log)):
            path.unlink(missing_ok=True)

    def log(self, id: str) -> Path:
        """Where a job prints."""
        return self._directory / f"{id}.log"

    def found(self) -> list[tuple[str, SubmitJob | str]]:
        """The jobs of the session before, the oldest first, by id. Of one that can't be understood: what is wrong with
        it. OSError for one that can't be read now: it is not lost."""
        found: list[tuple[str, SubmitJob | str]] = []
        jobs = [path for path in self._directory.iterdir() if path.suffix == ".job"]
        for path in sorted(jobs, key=lambda path: path.stat().st_mtime_ns):
            try:
                request = moved.loads(path.read_bytes())
                fault = fault_of(request) if isinstance(request, SubmitJob) else "it is no SubmitJob"
            except OSError:
                raise
            except Exception as error:  # of another version of Tidegate, for instance
                fault = str(error)
            found.append((path.stem, f"and what was submitted can't be read: {fault}" if fault else request))
        return found

    def lost(self, id: str, why: str, submitted: Submit | None = None) -> JobInfo:
        """How a job stands that the session before had, and that this one can't go on with."""
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
    """Where the jobs of sessions of this name print."""
    return private(private(Path(tempfile.gettempdir()) / f"tidegate-{os.getuid()}-logs") / name)
