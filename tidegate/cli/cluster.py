"""`tidegate cluster`: a session of the streaming runner, which outlives the clients that submit to it."""

from __future__ import annotations

import click

_name = click.option("--name", default="default", show_default=True, help="Which session.")


@click.group()
def cluster() -> None:
    """Start, stop and look at a session that jobs are submitted to with --runner streaming --detach."""


@cluster.command()
@_name
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="Listen on this port of the loopback interface too (0: any); who comes by it needs the session's token.",
)
def start(name: str, port: int | None) -> None:
    """Start a session in the background."""
    from tidegate.runners.streaming.session.client import SessionFiles, start_session

    place = SessionFiles(name)
    start_session(place, port)
    about = place.described()
    click.echo(f"session {name} runs as process {about['pid']}, and listens at {place.socket}")
    if "port" in about:
        click.echo(f"and on port {about['port']} of 127.0.0.1, with the token in {place.token}")


@cluster.command()
@_name
def stop(name: str) -> None:
    """End a session and its jobs. Those with a checkpoint directory go on from there when they are run again."""
    from tidegate.runners.streaming.session.client import open_session

    with open_session(name) as session:
        session.end()
    click.echo(f"session {name} has ended")


@cluster.command()
@_name
def status(name: str) -> None:
    """Say whether a session runs, and how many jobs it has."""
    from tidegate.runners.streaming.session.client import SessionFiles, open_session

    place = SessionFiles(name)
    with open_session(name) as session:
        jobs = session.jobs()
    about = place.described()
    running = sum(job.ended is None for job in jobs)
    click.echo(
        f"session {name} runs as process {about.get('pid')}: {running} running jobs, {len(jobs) - running} ended"
    )
    click.echo(f"it listens at {place.socket}" + (f" and on port {about['port']}" if "port" in about else ""))
    click.echo(f"what jobs print is in {about.get('logs')}")
