"""Run simulations: `python -m streaming.simulation --seeds 0:1000`, or one again: `--seed 17 -v`."""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from streaming.simulation.running import simulate


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", default="0:200", help="from:to")
    parser.add_argument("-v", "--verbose", action="store_true")
    options = parser.parse_args()
    first, last = (int(part) for part in options.seeds.split(":"))
    seeds = [options.seed] if options.seed is not None else range(first, last)
    failed, began = 0, time.perf_counter()
    for seed in seeds:
        happened: list[str] = []
        try:
            simulate(seed, happened)
        except Exception as error:
            failed += 1
            print(f"seed {seed}: {type(error).__name__}: {error}; again with --seed {seed} -v")
            if options.verbose:
                traceback.print_exc()
        if options.verbose:
            print("\n".join(happened))
    took = time.perf_counter() - began
    print(f"{len(seeds)} seeds in {took:.1f} s, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
