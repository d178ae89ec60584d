"""A stream whose only sink stages its output with the runner, and which is held at chosen points of a commit.

While the file `hold-PLACE` is in the run's folder, a process that reaches that place waits there, and repeatedly
reports "H": `prepared` (a task has prepared output, and its checkpoint waits for it), `commit`, `during` (one file is
visible, another is not), `committed` (all is done, but not acknowledged).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import tidegate as tg
from tests.support.streaming.child_processes import child_pids
from tests.support.streaming.exactly_once_pipeline import PARTITIONS, NumberSource, Run
from tests.support.streaming.killable_run import KillableRun
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, StagedFile, in_order
from tidegate.sdk.metrics import ENGINE

Place = Literal["prepared", "commit", "during", "committed"]


def hold(run: Run, place: str) -> None:
    """Wait here for as long as the test wants."""
    path = Path(run.folder, f"hold-{place}")
    while path.exists():
        run.report("H")
        time.sleep(0.001)


@dataclass(frozen=True)
class StagingSink(Sink[str]):
    """Copies each staged file to a name that says which piece it is."""

    run: Run
    by_path: bool
    commit_by: Literal["job", "task"] = "job"
    delivery: Any = "exactly_once"

    @property
    def visible(self) -> Path:
        return Path(self.run.folder, "visible")

    def attempt(self, run: str, task: int) -> Attempt[str]:
        return StagingAttempt(self, run, task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        assert checkpoint is not None
        hold(self.run, "commit")
        if self.commit_by == "task":
            assert len({each.order[0] for each in committables}) == 1
        for each in in_order(committables):
            final = self.visible / f"{checkpoint:06}-{each.payload}"
            if final.exists():
                continue
            part = final.with_name(f".{final.name}.{os.getpid()}")
            with part.open("wb") as copy:
                for file in each.files:
                    with file.open() as staged:
                        copy.write(staged.read())
            os.replace(part, final)
            hold(self.run, "during")
        hold(self.run, "committed")
        self.run.report("d")

    def abort(self, run: str) -> None:
        for path in Path(self.run.folder, "local").glob(f"{run}-*"):
            path.unlink(missing_ok=True)


class StagingAttempt(Attempt[str]):
    def __init__(self, sink: StagingSink, run: str, task: int) -> None:
        self._sink = sink
        self._run = run
        self._task = task
        self._attempt = os.urandom(4).hex()
        self._sequence = 0
        self._lines: list[str] = []

    def write(self, values: Sequence[str]) -> None:
        self._lines += values

    def prepare(self) -> list[Committable]:
        if not self._lines:
            return []
        half = len(self._lines) // 2
        prepared = []
        for lines in (self._lines[:half], self._lines[half:]):
            self._sequence += 1
            name = f"{self._attempt}-{self._sequence:06}"
            first, second = (self._staged(f"{name}-{n}", lines[n::2]) for n in (0, 1))
            prepared.append(Committable((self._task, self._sequence), name, (first, second)))
        self._lines = []
        if self._task == 1:
            hold(self._sink.run, "prepared")
        return prepared

    def _staged(self, name: str, lines: Sequence[str]) -> StagedFile:
        data = "".join(lines).encode()
        if not self._sink.by_path:
            return StagedFile.of_bytes(name, data)
        path = Path(self._sink.run.folder, "local", f"{self._run}-{name}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        return StagedFile.of_path(name, path)


def build_pipeline(run: Run, by: Any, by_path: bool, options: Sequence[str]) -> tg.Pipeline:
    """`partition number` for every number of a source without end."""
    pipeline = tg.Pipeline(options=[*options, "--runner", "streaming"])
    lines = pipeline | "numbers" >> tg.Read(NumberSource(run)) | "lines" >> tg.Map(lambda r: f"{r[2]} {r[1]}\n")
    _ = lines | "staging" >> tg.Write(StagingSink(run, by_path, by))
    return pipeline


def main() -> None:
    """The client of a run: a line on stdin is the folder of a savepoint, or drains the job."""
    run = Run(**json.loads(sys.argv[1]))
    result: Any = build_pipeline(run, sys.argv[2], sys.argv[3] == "path", sys.argv[4:]).run()
    while (line := sys.stdin.readline().rstrip("\n")) not in ("", "drain"):
        result.savepoint(line)
    result.stop(drain=True)
    result.wait_until_finish()
    metrics = result.metrics()
    Path(run.folder, "pauses").write_text(str(metrics.counter("source_pauses", namespace=ENGINE, step="")))
    print(metrics.counter("elements_out", step="numbers"))


class StagingRun(KillableRun):
    """Such a stream in real processes. `checkpoints`: another checkpoint directory for the next client."""

    def __init__(
        self,
        folder: Path,
        by: str,
        flags: Sequence[str],
        hold_at: Place | None = None,
        checkpoints: str | None = None,
    ) -> None:
        (folder / "visible").mkdir()
        self.checkpoints = checkpoints
        self._how = [by, "path" if by == "task" else "bytes"]
        if hold_at is not None:
            (folder / f"hold-{hold_at}").touch()
        super().__init__(Run(str(folder), rate=1000), list(flags))

    def command(self, flags: Sequence[str]) -> list[str]:
        if self.checkpoints is not None:
            flags = ["--checkpoint_dir", self.checkpoints, *flags[2:]]
        script = "from tests.support.streaming.staging_pipeline import main; main()"
        return [sys.executable, "-c", script, json.dumps(asdict(self.run)), *self._how, *flags]

    def release(self) -> None:
        """Let the processes that are held continue."""
        for path in self.folder.glob("hold-*"):
            path.unlink()

    def suspend(self) -> list[int]:
        """Send SIGSTOP to all processes, and return those that are not the test's children."""
        jobs, workers = child_pids(self.client.pid), self.workers()
        for pid in (self.client.pid, *jobs, *workers):
            os.kill(pid, signal.SIGSTOP)
        return [*jobs, *workers]

    def resume(self, client: subprocess.Popen[str], others: Sequence[int]) -> None:
        """Let suspended processes continue."""
        for pid in (*others, client.pid):
            os.kill(pid, signal.SIGCONT)

    def check(self, numbers: int, *, ordered_too: bool = True) -> None:
        """Every line is visible once, and nothing is left that was staged."""
        lines = [line for path in (self.folder / "visible").glob("[!.]*") for line in path.read_text().splitlines()]
        assert len(lines) == len(set(lines)) == numbers
        for partition in range(PARTITIONS):
            found = sorted(int(line.split()[1]) for line in lines if line.startswith(f"{partition} "))
            assert found == list(range(len(found)))
        assert self.staged() == []

    def staged(self) -> list[Path]:
        """The staged files in the checkpoint directory, and those in local paths."""
        checkpoints = Path(self.checkpoints or self.folder / "checkpoints")
        places = (checkpoints / "staged", self.folder / "local")
        return [path for place in places for path in place.rglob("*") if path.is_file()]
