"""A run of real processes that a test kills, stops or starves, and whose output it checks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

from tests.support.streaming.child_processes import PATIENCE, Told, children
from tests.support.streaming.exactly_once_pipeline import Run, check, command, records_of

FLAGS = [
    *("--buffer_timeout", "0", "--checkpoint_interval", "0.15", "--checkpoint_min_pause", "0.05"),
    *("--restart_strategy", "fixed", "--restart_delay", "0.02", "--restart_attempts", "1000"),
]


class Victim:
    """A run that may be killed: its client, the client's job process, and that one's workers."""

    def __init__(self, run: Run, flags: list[str]) -> None:
        self.run = run
        self.folder = Path(run.folder)
        self._flags = flags
        self._clients: list[subprocess.Popen[str]] = []
        self._told = Told(run.told)
        self._savepoints = 0
        self.client = self.start()

    def start(self, workers: int = 2) -> subprocess.Popen[str]:
        """A client: the first one, or one that goes on from the checkpoints of another."""
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        with open(self.folder / "said", "a") as said:
            self.client = subprocess.Popen(
                command(
                    self.run,
                    ["--checkpoint_dir", f"{self.folder}/checkpoints", f"--workers={workers}", *FLAGS, *self._flags],
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self._clients.append(self.client)
        return self.client

    @property
    def said(self) -> str:
        """What all clients have said on stderr."""
        return (self.folder / "said").read_text()

    def watch(self, what: str, times: int = 1) -> None:
        """Wait until so many things of these kinds have happened from now on."""
        ended = "the client has ended"
        self._told.watch(
            what, times, fault=lambda: "" if self.client.poll() is None else f"{ended}: {self.said[-3000:]}"
        )

    def workers(self) -> list[int]:
        """The worker processes there are."""
        return [pid for job in children(self.client.pid) for pid in children(job)]

    def kill(self, what: str, chance: random.Random) -> None:
        """SIGKILL for one of the run's processes, or all workers at once."""
        jobs, workers = children(self.client.pid), self.workers()
        match what:
            case "client":
                killed = [self.client.pid]
            case "job":
                killed = jobs
            case "worker":
                killed = chance.sample(workers, min(1, len(workers)))
            case "workers":
                killed = workers
            case _:
                raise ValueError(what)
        for pid in killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if what == "client":
            self.client.communicate()
            self.start()

    def stop_in_prepare(self) -> tuple[int, list[int]]:
        """SIGSTOP for all of the run, while sinks prepare output; the job's process, and those of the workers."""
        self.run.held.touch()
        self.watch("h")
        (job,), workers = children(self.client.pid), self.workers()
        for pid in (self.client.pid, job, *workers):
            os.kill(pid, signal.SIGSTOP)
        self.run.held.unlink()
        return job, workers

    def ask_for_savepoint(self) -> None:
        """Have it take one, and go on."""
        self._savepoints += 1
        self._say(f"{self.folder}/saved/{self._savepoints}")

    def ask_to_drain(self) -> None:
        """Have it end."""
        self._say("drain")

    def _say(self, line: str) -> None:
        assert self.client.stdin is not None
        self.client.stdin.write(f"{line}\n")
        self.client.stdin.flush()

    def drain(self) -> int:
        """Have it end, and say how many records it has read."""
        out, _ = self.client.communicate("drain\n", timeout=PATIENCE)
        assert self.client.returncode == 0, self.said[-3000:]
        return int(json.loads(out))

    def check(self, numbers: int, *, ordered_too: bool = True) -> None:
        """Both sinks have what they should, and nothing is left over."""
        committed = sorted((self.folder / "committed").iterdir())
        texts = sorted((self.folder / "text").glob("part-*"), key=in_checkpoints)
        for paths in (committed, texts):
            check(records_of(paths), numbers, ordered_too=ordered_too)
        assert not list((self.folder / "pending").iterdir())
        assert not list((self.folder / "text").glob(".tidegate-*"))

    def close(self) -> None:
        """Whatever is left of it goes."""
        for client in self._clients:
            if client.poll() is None:
                for pid in (client.pid, *(pid for job in children(client.pid) for pid in (job, *children(job)))):
                    os.kill(pid, signal.SIGKILL)
                client.communicate()
        self._told.close()


def in_checkpoints(path: Path) -> tuple[int, str]:
    """The order in which text files became visible: by checkpoint, then by task."""
    return int(path.name.split("-")[2]), path.name
