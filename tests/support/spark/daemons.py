"""Starts Spark's own daemons, waits for a line of their output, and stops them."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path


def spark_home() -> Path:
    """The directory of the Spark that comes with PySpark."""
    found = find_spec("pyspark")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


class Daemon:
    """A command that runs in `home` until it is stopped, with all its child processes: it leads a process group."""

    def __init__(self, home: Path, *command: str | Path, environment: Mapping[str, str] | None = None) -> None:
        self._output: list[str] = []
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            command, cwd=home, start_new_session=True, text=True, errors="replace",
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env={**os.environ, "SPARK_HOME": str(spark_home()), **(environment or {})},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def group(self) -> int:
        """Its process group."""
        return self._process.pid

    def wait_for(self, pattern: str, timeout: float = 120) -> re.Match[str]:
        """The next line that matches. Raises AssertionError, with all output, if none does within `timeout` s."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            assert line is not None, f"no line matched {pattern!r}:\n" + "".join(self._output)
            found = re.search(pattern, line)
            if found:
                return found

    def send(self, signal_number: int) -> None:
        """Send a signal to the command and its child processes, but those that lead process groups of their own."""
        os.killpg(self._process.pid, signal_number)

    def stop(self) -> None:
        """Kill the command and its child processes."""
        self.send(signal.SIGKILL)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._output.append(line)
                self._lines.put(line)
        self._lines.put(None)
