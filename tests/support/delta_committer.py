"""A process that commits to a Delta table and stops itself at a point of the commit.

    python -m tests.support.delta_committer POINT FILE

`FILE` has the pickled sink, the run, the committables and the checkpoint.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path

from tests.support.streaming.commit_points import interrupt_at


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
