"""Run simulations: `python -m tests.streaming.simulation --seeds 0:1000`, or one again: `--seed 17 -v`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor

from tests.streaming.simulation.running import simulate

CHUNK = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0:200", help="from:to")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--log", action="store_true", help="what happened, and nothing of how long it took")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    if options.seed is not None:
        return show(options.seed, verbose=options.verbose, log=options.log)
    first, last = (int(part) for part in options.seeds.split(":"))
    chunks = [range(at, min(at + CHUNK, last)) for at in range(first, last, CHUNK)]
    failed, began = 0, time.perf_counter()
    with ProcessPoolExecutor(options.jobs) as pool:
        for said in pool.map(failures, chunks):
            failed += len(said)
            for line in said:
                print(line, flush=True)
    print(f"{last - first} seeds in {time.perf_counter() - began:.1f} s, {failed} failed")
    return 1 if failed else 0


def failures(seeds: range) -> list[str]:
    """What is wrong with each seed for which something is."""
    said = []
    for seed in seeds:
        try:
            simulate(seed)
        except Exception as error:
            said.append(f"seed {seed}: {type(error).__name__}: {error}; again with --seed {seed} -v")
    return said


def show(seed: int, *, verbose: bool, log: bool) -> int:
    """One seed in full."""
    happened: list[str] = []
    failed = ""
    try:
        simulate(seed, happened)
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        if verbose:
            traceback.print_exc()
    if verbose or log:
        print("\n".join(happened))
    print(f"seed {seed}: {failed or 'all is well'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
