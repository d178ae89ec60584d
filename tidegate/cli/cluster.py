"""`tidegate cluster`: manages the sessions of the streaming runner, which outlive the clients that submit jobs."""

from __future__ import annotations

import click

_name = click.option("--name", default="default", show_default=True, help="Which session.")


@click.group()
def cluster() -> None:
    """Start, stop and inspect a session, to which --runner streaming --detach submits jobs."""


@cluster.command()
@_name
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Listen also on this port of 127.0.0.1 (0: any free one); clients there need the session's token.",
)
def start(name: str, port: int | None) -> None:
    """Start a session in the background."""
    from tidegate.runners.streaming.session.client import SessionFiles, start_session

    files = SessionFiles(name)
    start_session(files, port)
    about = files.described()
    click.echo(f"session {name} runs as process {about['pid']}, and listens at {files.socket}")
    if "port" in about:
        click.echo(f"and on port {about['port']} of 127.0.0.1, with the token in {files.token}")


@cluster.command()
@_name
def stop(name: str) -> None:
    """End a session and its jobs. Jobs with a checkpoint directory can be resumed from it by running them again."""
    from tidegate.runners.streaming.session.client import open_session

    with open_session(name) as session:
        session.end()
    click.echo(f"session {name} has ended")


@cluster.command()
@_name
def status(name: str) -> None:
    """Show whether a session is running, and how many jobs it has."""
    from tidegate.runners.streaming.session.client import SessionFiles, open_session

    files = SessionFiles(name)
    with open_session(name) as session:
        jobs = session.jobs()
    about = files.described()
    running = sum(job.ended is None for job in jobs)
    click.echo(
        f"session {name} runs as process {about.get('pid')}: {running} running jobs, {len(jobs) - running} ended"
    )
    click.echo(f"it listens at {files.socket}" + (f" and on port {about['port']}" if "port" in about else ""))
    click.echo(f"the output of its jobs is in {about.get('logs')}")
