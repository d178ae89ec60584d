"""Named points at which tests interrupt a commit, and a sink whose process is killed or suspended at one."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from tidegate.io import files
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink

FILE_POINTS: Final = ("before moving", "after moving")
"""The points inside a commit of files, in order: each file that becomes visible passes both."""

DELTA_POINTS: Final = (*FILE_POINTS, "before the transaction", "after the transaction")
"""The points inside a commit to a Delta table, in order."""


def interrupt_at(point: str, interrupt: Callable[[], None]) -> None:
    """Call `interrupt` each time that a commit of this process is at a point of `DELTA_POINTS`."""
    when, _, what = point.partition(" ")
    owner: Any
    if what == "moving":
        owner, name = files.Local, "move"
    else:
        import deltalake

        owner, name = deltalake.DeltaTable, "create_write_transaction"
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            interrupt()
        done = original(*arguments, **options)
        if when == "after":
            interrupt()
        return done

    setattr(owner, name, call)


def points_of(inside: Sequence[str]) -> list[str]:
    """All points of a `SinkWithPoints` in order, given those inside its commit."""
    return ["after preparing", *inside, "after committing"]


@dataclass(frozen=True)
class SinkWithPoints(Sink[Any]):
    """Another sink of local files. At a point, the process that writes or commits sends itself a signal if there is a
    file with the names of both in `folder`, such as `SIGKILL before moving`, which it renames to `<name> <pid>` first.

    `inside`: the points inside the commit.
    """

    sink: Sink[Any]
    folder: str
    inside: tuple[str, ...]
    delivery: Any = "exactly_once"

    @property
    def forks_safely(self) -> bool:  # type: ignore[override]
        return self.sink.forks_safely

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        return _AttemptWithPoints(self.sink.attempt(run, task), self.folder)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> Any:
        if not committables:
            return self.sink.commit(run, committables, checkpoint)
        if not hasattr(files.Local, "with_points"):  # the sinks of a process share them
            files.Local.with_points = True  # type: ignore[attr-defined]
            for point in self.inside:
                interrupt_at(point, partial(_signal_once, self.folder, point))
        done = self.sink.commit(run, committables, checkpoint)
        _signal_once(self.folder, "after committing")
        return done

    def abort(self, run: str) -> None:
        self.sink.abort(run)


class _AttemptWithPoints(Attempt[Any]):
    def __init__(self, attempt: Attempt[Any], folder: str) -> None:
        self._attempt = attempt
        self._folder = folder

    def write(self, values: Sequence[Any]) -> None:
        self._attempt.write(values)

    def prepare(self) -> list[Committable]:
        prepared = self._attempt.prepare()
        if prepared:
            _signal_once(self._folder, "after preparing")
        return prepared

    def close(self) -> None:
        self._attempt.close()


def _signal_once(folder: str, point: str) -> None:
    for name in ("SIGKILL", "SIGSTOP"):
        path = Path(folder, f"{name} {point}")
        with suppress(FileNotFoundError):
            path.rename(f"{path} {os.getpid()}")
            os.kill(os.getpid(), getattr(signal, name))
