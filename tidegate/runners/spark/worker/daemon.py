"""The daemon that forks Python workers: PySpark's own, but silent about workers that lose their connection.

Spark closes the connection to a worker that has been idle for a minute, when it cancels the worker's task, and when the
session ends. Over a Unix socket the worker's next write fails at once, and PySpark's daemon would print a traceback to
the user's terminal. Here such a worker exits silently. This hides no error of a task: those are sent to Spark.

Spark starts the workers of streams without the variable that makes them raise the error, so that they would print the
traceback themselves: it is set here.

Workers import this module from a copy in a folder of its own, so it must not import Tidegate.
"""

from __future__ import annotations

import os
import socket


def main() -> None:
    """Fork workers until Spark closes the connection."""
    from pyspark import daemon

    forked = daemon.worker

    def worker(sock: socket.socket, authenticated: bool) -> int:
        try:
            return forked(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            os._exit(1)

    os.environ["PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE"] = "1"
    daemon.worker = worker
    daemon.manager()


if __name__ == "__main__":
    main()
