"""Run simulations: `python -m tests.streaming.simulation --seeds 0:1000`, or repeat one: `--seed 17 -v`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.streaming.simulation.running import simulate

CHUNK = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0:200", help="from:to")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--loop", action="store_true", help="of a pipeline whose elements go round")
    parser.add_argument("--log", action="store_true", help="print all events, without measured times")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.seed, verbose=options.verbose, log=options.log, loop=options.loop)
    first, last = (int(part) for part in options.seeds.split(":"))
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    failed, began = 0, time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        for messages in pool.map(partial(failures, loop=options.loop), chunks):
            failed += len(messages)
            for line in messages:
                print(line, flush=True)
    print(f"{last - first} seeds in {time.perf_counter() - began:.1f} s, {failed} failed")
    return 1 if failed else 0


def failures(seeds: range, *, loop: bool) -> list[str]:
    """The errors of the seeds that fail."""
    messages = []
    for seed in seeds:
        try:
            simulate(seed, loop=loop)
        except Exception as error:
            asked = f"--seed {seed}" + " --loop" * loop
            messages.append(f"seed {seed}: {type(error).__name__}: {error}; repeat it with {asked} -v")
    return messages


def show(seed: int, *, verbose: bool, log: bool, loop: bool) -> int:
    """Run one seed, and print its events."""
    history: list[str] = []
    failed = ""
    try:
        simulate(seed, history, loop=loop)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        if verbose:
            traceback.print_exc()
    if verbose or log:
        print("\n".join(history))
    print(f"seed {seed}: {failed or 'no invariant is violated'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
