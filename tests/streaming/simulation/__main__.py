"""Run simulations: `python -m tests.streaming.simulation --seeds 0:1000`, or repeat one: `--seed 17 -v`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.streaming.simulation.harness import Simulate, failures
from tests.streaming.simulation.rounds import simulate_rounds
from tests.streaming.simulation.running import simulate

CHUNK = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0:200", help="from:to")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--loop", action="store_true", help="of a pipeline whose elements go round")
    kinds.add_argument("--rounds", action="store_true", help="of loops whose rounds all workers run")
    parser.add_argument("--log", action="store_true", help="print all events, without measured times")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    run = simulate_rounds if options.rounds else partial(simulate, loop=options.loop)
    if options.seed is not None:
        return show(options.seed, run, verbose=options.verbose, log=options.log)
    command = "tests.streaming.simulation" + " --loop" * options.loop + " --rounds" * options.rounds
    first, last = (int(part) for part in options.seeds.split(":"))
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    failed, began = 0, time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        for messages in pool.map(partial(failures, simulate=run, command=command), chunks):
            failed += len(messages)
            for line in messages:
                print(line, flush=True)
    print(f"{last - first} seeds in {time.perf_counter() - began:.1f} s, {failed} failed")
    return 1 if failed else 0


def show(seed: int, run: Simulate, *, verbose: bool, log: bool) -> int:
    """Run one seed, and print its events."""
    history: list[str] = []
    failed = ""
    try:
        run(seed, history)
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
