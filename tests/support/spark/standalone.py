"""A standalone cluster on this machine: a master and two workers on different hosts, all processes of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.spark.daemons import Daemon, spark_home
from tests.support.spark.small_jvms import jvm_options

HOSTS = ("127.0.0.1", "127.0.0.2")


@dataclass(frozen=True)
class Standalone:
    """The master's address, and the workers, whose process groups include their executors."""

    master: str
    workers: list[Daemon]


@contextlib.contextmanager
def standalone(home: Path) -> Iterator[Standalone]:
    """Start a cluster, each of whose workers has one core; its files are in `home`."""
    daemons: list[Daemon] = []

    def start(daemon: str, *options: str) -> Daemon:
        daemons.append(
            Daemon(
                home,
                spark_home() / "bin" / "spark-class",
                f"org.apache.spark.deploy.{daemon}",
                *options,
                environment={"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": jvm_options()},
            )
        )
        return daemons[-1]

    try:
        master = start("master.Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        url = master.wait_for("Starting Spark master at (spark://.+)")[1].strip()
        master.wait_for("New state: ALIVE")
        for host in HOSTS:
            options = ["--host", host, "-c", "1", "-m", "1g", "--webui-port", "0", "-d", str(home / host)]
            start("worker.Worker", *options, url)
        for worker in daemons[1:]:
            worker.wait_for("Successfully registered with master")
        yield Standalone(url, daemons[1:])
    finally:
        for daemon in daemons:
            daemon.stop()
