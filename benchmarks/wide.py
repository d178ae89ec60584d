"""Wide pipelines: what many branches beside each other cost the runners, which should be so much for each.

Every branch maps numbers to pairs, sums by key and maps the sums. With `--source shared` all read one source, else
each reads its own, so that on the streaming runner each is a region of its own. Time on the clock counts; processor
time, of all processes of a run together, tells more where others are at work.

    python benchmarks/wide.py --branches 100 200 500 --runners direct streaming
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

import tidegate as tg

ELEMENTS = 100
KEYS = 10


def build(pipeline: tg.Pipeline, branches: int, *, shared: bool) -> None:
    """So many branches, from one source or each from its own."""
    source = pipeline | "numbers" >> tg.Create(range(ELEMENTS)) if shared else None
    for n in range(branches):
        numbers = source if source is not None else pipeline | f"numbers {n}" >> tg.Create(range(ELEMENTS))
        pairs = numbers | f"pair {n}" >> tg.Map(lambda x, n=n: (x % KEYS, x + n))
        _ = pairs | f"sum {n}" >> tg.CombinePerKey(sum) | f"text {n}" >> tg.Map(str)


def run(runner: str, branches: int, source: str) -> None:
    """Run one here, and print its seconds: on the clock, and of processors."""
    pipeline = tg.Pipeline(runner, [])
    build(pipeline, branches, shared=source == "shared")
    start, busy = time.perf_counter(), time.process_time()
    pipeline.run().wait_until_finish()
    own, others = time.process_time() - busy, resource.getrusage(resource.RUSAGE_CHILDREN)
    print(time.perf_counter() - start, own + others.ru_utime + others.ru_stime)


def measured(runner: str, branches: int, source: str, repeats: int) -> tuple[float, float]:
    """The least of each over some processes of their own: nothing is warm but the disk's cache."""
    command = [sys.executable, str(Path(__file__)), "--one", runner, str(branches), source]
    printed = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(repeats)]
    seconds = [tuple(map(float, line.split())) for line in printed]
    return min(wall for wall, _ in seconds), min(busy for _, busy in seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--branches", type=int, nargs="+", default=[125, 250, 500])
    parser.add_argument("--runners", nargs="+", default=["direct", "streaming"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--one", nargs=3, metavar=("RUNNER", "BRANCHES", "SOURCE"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        runner, branches, source = asked.one
        run(runner, int(branches), source)
        return
    print("| source | branches | runner | on the clock | processors | of the first runner |")
    print("|---|---|---|---|---|---|")
    for source in ("shared", "own"):
        for branches in asked.branches:
            first = 0.0
            for runner in asked.runners:
                wall, busy = measured(runner, branches, source, asked.repeats)
                first = first or wall
                print(f"| {source} | {branches} | {runner} | {wall:.2f} s | {busy:.2f} s | {wall / first:.1f} |")


if __name__ == "__main__":
    main()
