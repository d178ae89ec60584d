"""Commits to a Delta table that are interrupted at named points, and a process that stops itself at one.

    python -m tests.support.delta_committer POINT FILE

`FILE` has the pickled sink, the run, the committables and the checkpoint.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import deltalake

from tidegate.io import files
from tidegate.io.delta.sink import DeltaSink
from tidegate.sdk.connectors.sinks import Committable

POINTS = ("before moving", "after moving", "before the transaction", "after the transaction")
"""The points at which a commit may be stopped, in order."""


def interrupt_at(point: str, interrupt: Callable[[], None]) -> None:
    """Call `interrupt` each time that a commit of this process is at a point of `POINTS`."""
    when, _, what = point.partition(" ")
    owner, name = (files.Local, "move") if what == "moving" else (deltalake.DeltaTable, "create_write_transaction")
    original = getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        if when == "before":
            interrupt()
        done = original(*arguments, **options)
        if when == "after":
            interrupt()
        return done

    setattr(owner, name, call)


class SinkWithPoints(DeltaSink):
    """A sink whose commits send this process a signal at a point, once, if there is a file of that name in `folder`.

    `SIGKILL before moving` is such a file; it is renamed to `<name> <pid>` first.
    """

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> list[str]:
        if committables and not hasattr(files.Local, "with_points"):
            files.Local.with_points = True  # type: ignore[attr-defined]
            folder = Path(self.location.url).parent
            for point in POINTS:
                interrupt_at(point, partial(_signal_once, folder, point))
        return super().commit(run, committables, checkpoint)


def _signal_once(folder: Path, point: str) -> None:
    for name in ("SIGKILL", "SIGSTOP"):
        with suppress(FileNotFoundError):
            (folder / f"{name} {point}").rename(folder / f"{name} {point} {os.getpid()}")
            os.kill(os.getpid(), getattr(signal, name))


def main() -> None:
    point, path = sys.argv[1:]
    sink, run, committables, checkpoint = pickle.loads(Path(path).read_bytes())
    stops = iter([signal.SIGSTOP])

    def stop_once() -> None:
        for each in stops:
            os.kill(os.getpid(), each)

    interrupt_at(point, stop_once)
    sink.commit(run, committables, checkpoint)


if __name__ == "__main__":
    main()
