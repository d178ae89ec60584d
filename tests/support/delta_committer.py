"""A process that makes a commit to a Delta table, and stops itself at a named point of it.

    python -m tests.support.delta_committer POINT FILE

`FILE` has the pickled sink, the run, the committables and the checkpoint.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import deltalake

from tidegate.io import files

POINTS = ("before moving", "after moving", "before the transaction", "after the transaction")
"""The points at which a commit may be stopped, in order."""


def stopping(point: str) -> None:
    """Let this process stop itself, once, at a point of the next commit."""

    def stop() -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def around(original: Any, before: bool) -> Any:
        stopped = []

        def call(*arguments: Any, **options: Any) -> Any:
            if before and not stopped:
                stopped.append(stop())
            done = original(*arguments, **options)
            if not before and not stopped:
                stopped.append(stop())
            return done

        return call

    when, _, what = point.partition(" ")
    owner, name = (files.Local, "move") if what == "moving" else (deltalake.DeltaTable, "create_write_transaction")
    setattr(owner, name, around(getattr(owner, name), when == "before"))


def main() -> None:
    point, path = sys.argv[1:]
    sink, run, committables, checkpoint = pickle.loads(Path(path).read_bytes())
    stopping(point)
    sink.commit(run, committables, checkpoint)


if __name__ == "__main__":
    main()
