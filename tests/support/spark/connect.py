"""A Spark Connect server: a process of its own, on a port that it chooses."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tests.support.spark.daemons import Daemon, spark_home


@contextlib.contextmanager
def connect_server(
    home: Path, master: str = "local[2]", settings: Mapping[str, str] = MappingProxyType({})
) -> Iterator[str]:
    """Start a server; its address. Its files are in `home`."""
    given = {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        **settings,
    }
    server = Daemon(
        home,
        *(spark_home() / "bin" / "spark-submit", "--master", master, "--driver-memory", "512m"),
        *(part for name, value in given.items() for part in ("--conf", f"{name}={value}")),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"),
        environment={"PYSPARK_PYTHON": sys.executable},
    )
    try:
        address = server.wait_for(r"Spark Connect server started at: (\S+)")[1]
        yield f"sc://{address}"
    finally:
        server.stop()
