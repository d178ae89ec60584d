"""Wide pipelines: measures the cost of many parallel branches, which should be proportional to their number.

Each branch maps numbers to pairs, sums them by key and maps the sums. The branches either share a source, or each has
its own and is a region of its own on the streaming runner. Elapsed time is what counts; the processor time of all
processes of a run is more reliable on a machine with other load.

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
    """Build the branches, with one shared source or one for each."""
    source = pipeline | "numbers" >> tg.Create(range(ELEMENTS)) if shared else None
    for n in range(branches):
        numbers = source if source is not None else pipeline | f"numbers {n}" >> tg.Create(range(ELEMENTS))
        pairs = numbers | f"pair {n}" >> tg.Map(lambda x, n=n: (x % KEYS, x + n))
        _ = pairs | f"sum {n}" >> tg.CombinePerKey(sum) | f"text {n}" >> tg.Map(str)


def run(runner: str, branches: int, source: str) -> None:
    """Run one pipeline in this process, and print its elapsed and processor seconds."""
    pipeline = tg.Pipeline(runner, [])
    build(pipeline, branches, shared=source == "shared")
    start, busy = time.perf_counter(), time.process_time()
    pipeline.run().wait_until_finish()
    this, children = time.process_time() - busy, resource.getrusage(resource.RUSAGE_CHILDREN)
    print(time.perf_counter() - start, this + children.ru_utime + children.ru_stime)


def measured(runner: str, branches: int, source: str, repeats: int) -> tuple[float, float]:
    """The minimum elapsed and processor seconds of several new processes."""
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
    args = parser.parse_args()
    if args.one:
        runner, branches, source = args.one
        run(runner, int(branches), source)
        return
    print("| source | branches | runner | elapsed | processor time | ratio to the first runner |")
    print("|---|---|---|---|---|---|")
    for source in ("shared", "own"):
        for branches in args.branches:
            first = 0.0
            for runner in args.runners:
                wall, busy = measured(runner, branches, source, args.repeats)
                first = first or wall
                print(f"| {source} | {branches} | {runner} | {wall:.2f} s | {busy:.2f} s | {wall / first:.1f} |")


if __name__ == "__main__":
    main()
