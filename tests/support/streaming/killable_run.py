"""A run in real processes that a test kills or suspends, and whose output it then checks."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.streaming.child_processes import TIMEOUT, EventPipe, child_pids
from tests.support.streaming.exactly_once_pipeline import Run, check_exactly_once, client_command, read_records
from tests.support.written_files import rows_of

FLAGS = [
    *("--buffer_timeout", "0", "--checkpoint_interval", "0.15", "--checkpoint_min_pause", "0.05"),
    *("--restart_strategy", "fixed", "--restart_delay", "0.02", "--restart_attempts", "1000"),
]


class KillableRun:
    """A run with its client, the client's job process, and the workers of that process."""

    def __init__(self, run: Run, flags: list[str]) -> None:
        self.run = run
        self.folder = Path(run.folder)
        self.flags = flags
        """The flags of the next client."""
        self._clients: list[subprocess.Popen[str]] = []
        self._events = EventPipe(run.event_pipe)
        self._savepoints = 0
        self.client = self.start()

    def start(self, workers: int = 2) -> subprocess.Popen[str]:
        """Start a client: the first, or one that resumes from the checkpoints of the one before."""
        paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
        with open(self.folder / "stderr", "a") as stderr:
            self.client = subprocess.Popen(
                self.command(
                    ["--checkpoint_dir", f"{self.folder}/checkpoints", f"--workers={workers}", *FLAGS, *self.flags]
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
        self._clients.append(self.client)
        return self.client

    def command(self, flags: Sequence[str]) -> list[str]:
        """The command that starts a client."""
        return client_command(self.run, flags)

    @property
    def stderr(self) -> str:
        """The stderr of all clients."""
        return (self.folder / "stderr").read_text()

    def watch(self, what: str, times: int = 1) -> None:
        """Wait for `times` further events of the kinds in `what`."""
        ended = "the client has ended"
        self._events.watch(
            what, times, fault=lambda: "" if self.client.poll() is None else f"{ended}: {self.stderr[-3000:]}"
        )

    def workers(self) -> list[int]:
        """The ids of the worker processes."""
        return [pid for job in child_pids(self.client.pid) for pid in child_pids(job)]

    def kill(self, what: str, chance: random.Random) -> None:
        """Send SIGKILL to one of the run's processes, or to all workers at once."""
        jobs, workers = child_pids(self.client.pid), self.workers()
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
        """Send SIGSTOP to all processes while sinks prepare output; the ids of the job's process and of the workers."""
        self.run.hold_file.touch()
        self.watch("h")
        (job,), workers = child_pids(self.client.pid), self.workers()
        for pid in (self.client.pid, job, *workers):
            os.kill(pid, signal.SIGSTOP)
        self.run.hold_file.unlink()
        return job, workers

    def ask_for_savepoint(self) -> None:
        """Ask for a savepoint; the job continues."""
        self._savepoints += 1
        self._send_line(f"{self.folder}/saved/{self._savepoints}")

    def ask_to_drain(self) -> None:
        """Ask for a drain, and don't wait for it."""
        self._send_line("drain")

    def _send_line(self, line: str) -> None:
        assert self.client.stdin is not None
        self.client.stdin.write(f"{line}\n")
        self.client.stdin.flush()

    def drain(self) -> int:
        """Drain the job; the number of records that it has read."""
        out, _ = self.client.communicate("drain\n", timeout=TIMEOUT)
        assert self.client.returncode == 0, self.stderr[-3000:]
        return int(json.loads(out))

    def check(self, numbers: int, *, ordered_too: bool = True) -> None:
        """Check that both sinks hold exactly the expected output and no temporary files."""
        committed = sorted((self.folder / "committed").iterdir())
        texts = sorted((self.folder / "text").glob("part-*"), key=commit_order)
        for paths in (committed, texts):
            check_exactly_once(read_records(paths), numbers, ordered_too=ordered_too)
        for name in filter(None, self.run.formats.split(",")):
            files = sorted(
                self.folder.glob(f"{name}/kind=*/part-*"), key=lambda path: (path.parent, commit_order(path))
            )
            rows = [row for path in files for row in rows_of(path.read_bytes(), name)]
            check_exactly_once((json.loads(row["text"]) for row in rows), numbers, ordered_too=ordered_too)
            assert not list((self.folder / name).glob(".tidegate-*"))
        assert not list((self.folder / "pending").iterdir())
        assert not list((self.folder / "text").glob(".tidegate-*"))

    def close(self) -> None:
        """Kill the processes that still run."""
        for client in self._clients:
            if client.poll() is None:
                for pid in (client.pid, *(pid for job in child_pids(client.pid) for pid in (job, *child_pids(job)))):
                    os.kill(pid, signal.SIGKILL)
                client.communicate()
        self._events.close()


def commit_order(path: Path) -> tuple[int, str]:
    """The order in which text files became visible: by checkpoint, then by task."""
    return int(path.name.split("-")[2]), path.name
