"""The process that forks the Python workers of a session made here: PySpark's own, except for workers that Spark has
let go.

Spark closes its connection to a worker that has been idle for a minute, whose task is cancelled, or when the session
ends. Over a Unix socket the worker's next write fails at once, and PySpark's daemon prints that as a traceback on the
author's terminal. Nobody is there to be told anything, so such a worker just ends. Errors of tasks go another way: they
are sent to Spark.

A copy of this file stands in a folder of its own, which workers look into; it needs no Tidegate.
"""

from __future__ import annotations

import os
import socket


def main() -> None:
    """Fork workers until Spark says that it is enough."""
    from pyspark import daemon

    forked = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:
        try:
            return forked(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
