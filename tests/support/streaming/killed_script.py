"""A script on the streaming runner, with a short time between checkpoints, whose processes can be killed."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

from tests.support.streaming.child_processes import TIMEOUT, child_pids, wait_for_exit

ROOT = Path(__file__).resolve().parents[3]


class KilledScript:
    """Runs `text` as `script.py` in a folder, with the folders `in` and `out` in it as arguments."""

    def __init__(self, root: Path, text: str) -> None:
        self.root = root
        (root / "script.py").write_text(text)
        self.log = (root / "log").open("ab")
        self.start()

    def start(self) -> None:
        flags = ["--runner", "streaming", "--checkpoint_dir", str(self.root / "chk"), "--checkpoint_interval", "0.1"]
        self.client = subprocess.Popen(
            [sys.executable, self.root / "script.py", self.root / "in", self.root / "out", *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=self.log,
            stderr=self.log,
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

    def kill_one(self, chance: random.Random) -> None:
        """Kill one descendant of the client; if the client ends with it, start the script again."""
        if descendants := self.processes():
            try:
                os.kill(chance.choice(descendants), signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.client.poll() is not None:
            self.kill_all()
            self.start()

    def stop(self) -> None:
        self.client.send_signal(signal.SIGTERM)
        self.client.wait(TIMEOUT)
        self.log.close()
