"""`tidegate jobs`: list, show, cancel and stop the jobs of a session."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from tidegate.sdk.errors import counted, visible, visible_lines
from tidegate.sdk.metrics import MetricCells

if TYPE_CHECKING:
    from tidegate.runners.streaming.session.client import JobInfo

_session = click.option("--session", default="default", show_default=True, help="Which session.")
_as_json = click.option("--json", "as_json", is_flag=True, help="As JSON.")
_id = click.argument("id")


@click.group()
def jobs() -> None:
    """List, show, cancel and stop the jobs of a session (see `tidegate cluster`). An ID may be shortened."""


@jobs.command("list")
@_session
@_as_json
def list_jobs(session: str, as_json: bool) -> None:
    """List all jobs, the latest last."""
    from tidegate.runners.streaming.session.client import open_session

    with open_session(session) as connection:
        found = connection.jobs()
    if as_json:
        click.echo(json.dumps([_plain(job) for job in found], indent=1))
        return
    if not found:
        click.echo("no jobs", err=True)
        return
    rows = [
        ("ID", "STATE", "FOR", "LAST CHECKPOINT", "NAME"),
        *((job.id, str(job.state), _since(job), _checkpoint(job) or "-", visible(job.name)) for job in found),
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for id, state, since, checkpoint, name in rows:
        ends = f"{since:>{widths[2]}}  {checkpoint:<{widths[3]}}  {name}"
        click.echo(f"{id:<{widths[0]}}  {state:<{widths[1]}}  {ends}")


@jobs.command()
@_id
@_session
@_as_json
def show(id: str, session: str, as_json: bool) -> None:
    """Show the state of a job: its tasks, its checkpoints, and its latest messages."""
    from tidegate.runners.streaming.session.client import open_session

    with open_session(session) as connection:
        job = connection.info(id)
    if as_json:
        click.echo(json.dumps(_plain(job), indent=1))
        return
    click.echo(f"job {job.id}  {visible(job.name)}\n  {job.state}, {counted(job.workers, 'worker')}, for {_since(job)}")
    if job.restarts:
        click.echo(f"  its process was restarted {counted(job.restarts, 'time')}")
    if job.checkpoint_dir or job.checkpoint:
        where = f"checkpoints in {job.checkpoint_dir}" if job.checkpoint_dir else "temporary checkpoints"
        click.echo(f"  {where}: {', '.join(_of_checkpoint(job)) or 'none yet'}")
    click.echo(f"  its output is in {job.log} (`tidegate jobs logs {job.id}`)")
    for line in _tasks(job):
        click.echo(f"  {visible(line)}")
    for text in job.reports:
        click.echo(f"  {visible(text)}")
    if job.error:
        click.echo(f"  {visible_lines(job.error)}")


@jobs.command()
@_id
@_session
@click.option("-n", "--lines", type=click.IntRange(min=0), help="The last LINES lines only.")
def logs(id: str, session: str, lines: int | None) -> None:
    """Print the output of a job, including its errors, restarts and savepoints.

    The log contains the latest 8 to 16 MiB.
    """
    from pathlib import Path

    from tidegate.runners.streaming.session.client import open_session
    from tidegate.runners.streaming.session.job_log import tail

    with open_session(session) as connection:
        job = connection.info(id)
    try:
        click.echo(tail(Path(job.log), lines), nl=False)
    except FileNotFoundError:
        click.echo(f"job {job.id} has printed nothing", err=True)


@jobs.command()
@_id
@_session
def cancel(id: str, session: str) -> None:
    """End a job now. Output that has not been committed is discarded."""
    from tidegate.runners.streaming.protocol.coordinator_io import CancelJob

    _end(id, session, CancelJob())


@jobs.command()
@_id
@_session
@click.option("--drain", is_flag=True, help="Stop reading, and fire all windows, as at the end of the input.")
@click.option("--savepoint", metavar="DIR", help="Write the savepoint there, not to the checkpoint directory.")
def stop(id: str, session: str, drain: bool, savepoint: str | None) -> None:
    """End a job cleanly, with a savepoint from which another run can resume."""
    from tidegate.runners.streaming.protocol.coordinator_io import StopJob
    from tidegate.runners.streaming.result import absolute

    if drain and savepoint:
        raise click.UsageError("a drained job has no state to save: use either --drain or --savepoint")
    if not (drain or savepoint) and _would_lose_state(id, session):
        raise click.UsageError(
            f"job {id} has no --checkpoint_dir: add --savepoint DIR to save its state there, or --drain to end it "
            "without"
        )
    _end(id, session, StopJob(drain, absolute(savepoint) if savepoint else None))


@jobs.command()
@_id
@click.argument("directory")
@_session
def savepoint(id: str, directory: str, session: str) -> None:
    """Let a job write a savepoint to DIRECTORY, and continue."""
    from tidegate.runners.streaming.result import absolute
    from tidegate.runners.streaming.session.client import open_session

    with open_session(session) as connection:
        report = connection.savepoint(id, absolute(directory))
    click.echo(f"savepoint of job {id} in {directory}: {counted(report.size, 'byte')}, {report.duration:.2f} s")


def _would_lose_state(id: str, session: str) -> bool:
    """Whether the job is running and has no checkpoint directory, so that its state would be lost if it ended now."""
    from tidegate.runners.streaming.session.client import open_session

    with open_session(session) as connection:
        job = connection.info(id)
    return job.ended is None and job.checkpoint_dir is None


def _end(id: str, session: str, event: Any) -> None:
    """Ask a job to end, and wait until it has ended."""
    from tidegate.runners.engine.errors.transport import unpacked
    from tidegate.runners.streaming.protocol.coordinator_io import Finish
    from tidegate.runners.streaming.session.client import open_session

    with open_session(session) as connection:
        for message in connection.send_and_follow(id, event):
            match message:
                case Finish(state="failed", error=bytes(error)):
                    raise unpacked(error)
                case Finish(state=state):
                    click.echo(f"job {id}: {state}")


def _plain(job: JobInfo) -> dict[str, Any]:
    counters = [
        {"step": key.step, "namespace": key.namespace, "name": key.name, "value": value}
        for key, value in sorted(job.metrics.counters.items())
    ]
    fields = asdict(replace(job, metrics=MetricCells()))
    del fields["metrics"]
    return fields | {"counters": counters}


def _since(job: JobInfo) -> str:
    seconds = int((job.ended or time.time()) - job.started)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{seconds % 60:02}s"


def _checkpoint(job: JobInfo) -> str:
    return f"checkpoint {job.checkpoint.checkpoint}" if job.checkpoint else ""


def _of_checkpoint(job: JobInfo) -> Iterator[str]:
    if job.checkpoint:
        yield _checkpoint(job)
        yield counted(job.checkpoint.size, "byte")
        yield f"{job.checkpoint.duration:.2f} s"
        yield f"alignment {job.checkpoint.alignment:.2f} s"


def _tasks(job: JobInfo) -> list[str]:
    from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, SECOND

    labels: dict[int, list[str]] = {}
    for stage, label in job.steps:
        labels.setdefault(stage, []).append(label)
    lines = []
    for task in sorted(job.tasks, key=lambda task: task.task):
        total = max(task.busy + task.idle + task.backpressured, 1e-9)
        is_instant = MIN_MICROS < task.watermark < MAX_MICROS
        lag = f"{time.time() - task.watermark / SECOND:,.1f} s" if is_instant and not job.ended else "-"
        lines.append(
            f"task {task.task}  {task.state:<8} in {task.records_in:>12,}  out {task.records_out:>12,}  "
            f"busy {task.busy / total:4.0%}  idle {task.idle / total:4.0%}  "
            f"held back {task.backpressured / total:4.0%}  behind {lag:>8}  "
            f"{', '.join(labels.get(task.task.stage, []))}"
        )
    return lines
