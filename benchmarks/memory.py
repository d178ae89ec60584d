"""Measures the peak memory and the time of groupings that exceed the memory budget, each in a process of its own.

    python benchmarks/memory.py                 # all cases, as a table
    python benchmarks/memory.py --case pairs    # one case

For each case it prints the peak resident memory of the process, the processor time per element (µs), which includes
making the elements, and whether the result is correct. The exit code is 1 if a peak exceeds the limit or a result is
wrong. The target of the first two cases is 1.0 µs.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tidegate as tg
from tidegate.sdk.connectors.sources import Position, SimpleSource, Split

BUDGET = "256MB"
LIMIT_MB = 600
STEP = 2_654_435_761
"""An odd factor permutes the numbers below a power of two, so keys are in no recognizable order."""


@dataclass(frozen=True)
class Pairs(SimpleSource[tuple[int, Any]]):
    """`count` pairs with `keys` different keys (a power of two), each of which occurs `count / keys` times.

    The values are the numbers from 0; with `texts`, formatted as strings of 100 characters.
    """

    count: int
    keys: int
    texts: bool

    def generate(self, split: Split, position: Position) -> Iterator[tuple[Position, tuple[int, Any]]]:
        mask = self.keys - 1
        for n in range(position or 0, self.count):
            yield n + 1, (n * STEP & mask, f"{n:100}" if self.texts else n)


def summary(pair: tuple[int, Any]) -> tuple[int, int, int]:
    """The number of keys (1), of values, and the sum of the values of one group. Iterates over the values twice."""
    _, values = pair
    return 1, sum(1 for _ in values), sum(map(int, values))


def total(parts: list[tuple[int, int, int]]) -> tuple[int, int, int]:
    """The sum of each column; a part may be a total itself."""
    keys, values, sums = zip(*parts, strict=True)
    return sum(keys), sum(values), sum(sums)


def run(count: int, keys: int, texts: bool) -> dict[str, Any]:
    """Group `count` pairs with `keys` keys, and compare the result with the expected one."""
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "result.json"

        def write(result: tuple[int, int, int]) -> None:
            out.write_text(json.dumps(result))

        pipeline = tg.Pipeline("direct", ["--memory_budget", BUDGET])
        groups = pipeline | tg.Read(Pairs(count, keys, texts)) | tg.GroupByKey()
        _ = groups | tg.Map(summary) | tg.CombineGlobally(tg.associative(total)) | tg.Map(write)
        begun = time.process_time()
        result = pipeline.run()
        result.wait_until_finish()
        seconds = time.process_time() - begun
        found = json.loads(out.read_text())
    return {
        "right": found == [min(keys, count), count, count * (count - 1) // 2],
        "micros": seconds / count * 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "spills": result.metrics().counter("spills"),
    }


CASES = {
    "in memory": ("1 million small pairs, 1 hundred thousand keys", 1_000_000, 1 << 17, False),
    "spilled": ("10 million small pairs, 1 million keys", 10_000_000, 1 << 20, False),
    "pairs": ("20 million small pairs, 4 million keys", 20_000_000, 1 << 22, False),
    "few keys": ("20 million small pairs, 1 thousand keys", 20_000_000, 1 << 10, False),
    "one key": ("one key with 5 million values", 5_000_000, 1, False),
    "texts": ("one key with 5 million values of 100 bytes", 5_000_000, 1, True),
}


def main() -> int:
    """Run each case in a process of its own, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--inside", choices=CASES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        print(json.dumps(run(*CASES[args.inside][1:])))
        return 0
    good = True
    print(f"budget {BUDGET}, limit {LIMIT_MB} MB")
    for case in [args.case] if args.case else CASES:
        done = subprocess.run([sys.executable, __file__, "--inside", case], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{CASES[case][0]:<44} failed:\n{done.stderr}")
            good = False
            continue
        found = json.loads(done.stdout)
        good = good and found["right"] and found["peak_mb"] <= LIMIT_MB
        verdict = "right" if found["right"] else "WRONG"
        numbers = f"{found['peak_mb']:>5} MB {found['micros']:>6.2f} µs  {found['spills']:>4} spills"
        print(f"{CASES[case][0]:<44} {numbers}  {verdict}")
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
