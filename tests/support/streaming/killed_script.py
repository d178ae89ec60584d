"""A script on the streaming runner, with a short time between checkpoints, whose processes can be killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.streaming.child_processes import TIMEOUT, child_pids, wait_for_exit

ROOT = Path(__file__).resolve().parents[3]
FLAGS = [
    *("--runner", "streaming", "--checkpoint_interval", "0.1"),
    *("--restart_strategy", "fixed", "--restart_delay", "0.02", "--restart_attempts", "1000"),
]


class KilledScript:
    """Runs `text` as `script.py` in a folder, with the folders `in` and `out` in it as arguments."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        (root / "script.py").write_text(text)
        self._log = (root / "log").open("ab")
        self._pause = threading.Event()
        self.start()

    def start(self) -> None:
        self.client = subprocess.Popen(
            [
                *(sys.executable, self.root / "script.py", self.root / "in", self.root / "out"),
                *("--checkpoint_dir", self.root / "chk", *FLAGS),
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=self._log,
            stderr=self._log,
        )

    def printed(self) -> str:
        """The end of what its processes have printed."""
        return (self.root / "log").read_text()[-3000:]

    def processes(self) -> list[int]:
        """All descendants of the client."""
        found, pending = [], [self.client.pid]
        while pending:
            children = child_pids(pending.pop())
            found += children
            pending += children
        return found

    def wait_until(self, holds: Callable[[], object]) -> None:
        """Wait until `holds()` is true. Fails if the client ends before that."""
        deadline = time.monotonic() + TIMEOUT
        while not holds():
            assert self.client.poll() is None, self.printed()
            assert time.monotonic() < deadline, self.printed()
            self._pause.wait(0.05)

    def kill_at_random(self, chance: random.Random) -> None:
        """At a random moment, kill either one descendant of the client, which survives it, or all processes, and start
        the script again."""
        self._pause.wait(chance.random() * 0.4)
        if chance.random() < 0.5:
            self.kill_all()
            self.start()
        elif descendants := self.processes():
            try:
                os.kill(chance.choice(descendants), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def kill_all(self) -> None:
        descendants = self.processes()
        self.client.kill()
        self.client.wait()
        for pid in descendants:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for_exit(descendants)

    def interrupt(self) -> None:
        """Send Ctrl-C: the job stops with a checkpoint, and the script goes on to its end."""
        self.client.send_signal(signal.SIGINT)
        assert self.client.wait(TIMEOUT) == 0, self.printed()

    def close(self) -> None:
        """Kill what is left."""
        self.kill_all()
        self._log.close()
