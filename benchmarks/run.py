"""`make bench`: compares the workloads on a runner with hand-written loops. Prints tables.

    python benchmarks/run.py [W1 W2 …] [--runner direct] [--runs 3] [--turns 9] [--inline off on] [-- flags]

In each turn, the loop, the pipeline with `--inline off` and the pipeline with `--inline on` are executed one after the
other. Absolute times drift, so what counts are the ratios to the loop: of the least times of all turns, and of the
medians. All of this is done in several runs, each with a process of its own for each workload, since forked workers
share the memory of its input. The last table has the worst of the runs' medians, which is what the targets are for.

W8 is a whole process: start, import, a pipeline of ten elements, end. The streaming runner is measured in streaming
mode, on two workers with a checkpoint every second (`-- --mode streaming --workers 2 --checkpoint_interval 1s`). Its
tasks read elements in no fixed order, so W6 sums there by how much each element raises the maximum of its key.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGETS = {
    "direct": {"W1": 1.0, "W2": 1.15, "W3": 1.1, "W4": 2.2, "W5": 1.16, "W6": 1.9, "W7": 1.17, "W9": 1.2},
    "streaming": {"W1": 1.0, "W2": 0.75, "W3": 1.1, "W4": 2.3, "W5": 1.0, "W6": 2.2, "W7": 1.0},
}
"""The worst median of a pipeline's times with `--inline on`, divided by that of the loop."""
PROCESS_TARGETS = {"direct": 0.25, "streaming": 1.0}
TINY = """
import tidegate as tg
with tg.Pipeline(options=["--runner", {runner!r}]) as p:
    p | tg.Create(range(10)) | tg.Map(lambda x: (x % 2, x)) | tg.CombinePerKey(sum) | tg.Map(str)
"""
PEAK = """
import re
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read()).group(1))
"""
Times = dict[str, list[float]]
"""The seconds of all turns: of the "loop", and of the pipeline by the value of `--inline`."""


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def take_turns(name: str, flags: list[str], inline: Sequence[str], turns: int) -> Times:
    """Execute the loop and the pipelines in turns. Exits if their results differ."""
    import data
    import plain
    import workloads

    _load(data, name)
    unordered = name == "W6" and "streaming" in flags
    times: Times = {"loop": [], **{each: [] for each in inline}}
    for _ in range(turns):
        seconds, expected = timed(plain.LOOPS[name])
        times["loop"].append(seconds)
        expected = plain.rises() if unordered else expected
        for each in inline:
            workload, options = "W6 unordered" if unordered else name, [*flags, "--inline", each]
            seconds, result = timed(lambda: workloads.run(workload, options))  # noqa: B023
            times[each].append(seconds)
            if result != expected:
                raise SystemExit(f"{name}: the result of the pipeline is {result}, that of the loop {expected}")
    return times


def _load(data: Any, name: str) -> None:
    inputs = {
        "W2": ["text"],
        "W3": ["events"],
        "W4": ["visits", "stamped_visits"],
        "W5": ["grouped"],
        "W6": ["readings"],
        "W7": ["left", "right"],
        "W9": ["readings"],
    }
    for part in inputs.get(name, []):
        getattr(data, part)()


def in_own_process(name: str, args: argparse.Namespace, flags: list[str]) -> Times:
    """The times of one workload, measured in a new process."""
    options = ["--runner", args.runner, "--turns", str(args.turns), "--inline", *args.inline]
    command = [sys.executable, __file__, "--inside", name, *options, "--", *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(done.returncode)
    times: Times = json.loads(done.stdout.splitlines()[-1])
    return times


def compare(names: Sequence[str], args: argparse.Namespace, flags: list[str]) -> None:
    """Print a table for each run, and one of the worst medians."""
    targets = TARGETS.get(args.runner, {})
    medians: dict[str, dict[str, list[float]]] = {name: {each: [] for each in args.inline} for name in names}
    for run in range(1, args.runs + 1):
        print(f"\nrun {run}     loop s" + "".join(f"   {each:>3}: min  median" for each in args.inline))
        for name in names:
            times = in_own_process(name, args, flags)
            loop = times["loop"]
            row = f"{name:5}{statistics.median(loop):12.3f}"
            for each in args.inline:
                median = statistics.median(times[each]) / statistics.median(loop)
                medians[name][each].append(median)
                row += f"{min(times[each]) / min(loop):11.2f}{median:8.2f}"
            print(row, flush=True)
    print("\nworst median " + "".join(f"{each:>8}" for each in args.inline) + "  target")
    for name in names:
        row = "".join(f"{max(medians[name][each]):8.2f}" for each in args.inline)
        print(f"{name:13}{row}{targets.get(name, ''):>8}")
    if "on" in args.inline:
        worst = ", ".join(f'"{name}": {max(medians[name]["on"]):.2f}' for name in names)
        print(f"as targets: {{{worst}}}", flush=True)


def time_process(code: str, repeat: int) -> tuple[float, float]:
    """Median seconds and maximum peak memory (MB) of a process that runs `code`."""
    times, peak = [], 0.0
    for _ in range(repeat):
        start = time.perf_counter()
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            [sys.executable, "-c", code + PEAK], cwd=HERE.parent, env=env, check=True, capture_output=True, text=True
        )
        times.append(time.perf_counter() - start)
        peak = max(peak, int(done.stdout) / 1024)
    return statistics.median(times), peak


def measure_process(runner: str) -> None:
    """W8."""
    seconds, peak = time_process(TINY.format(runner=runner), 7)
    target = PROCESS_TARGETS.get(runner, "-")
    print(f"\nW8: {seconds:.3f} s for a whole process (target {target}), peak {peak:.0f} MB (target, direct: 50)")
    bare, (loaded, memory) = time_process("", 7)[0], time_process("import tidegate", 7)
    print(f"import tidegate: {(loaded - bare) * 1000:.0f} ms (target 150), peak {memory:.0f} MB (target 40)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="W1…W9")
    parser.add_argument("--runner", default="direct")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--inline", nargs="+", default=["off", "on"], choices=["off", "on", "always"])
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    args, flags = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    if args.inside:
        print(json.dumps(take_turns(args.inside, ["--runner", args.runner, *flags], args.inline, args.turns)))
        return
    names = args.workloads or [f"W{i}" for i in range(1, 10)]
    load = f"load {os.getloadavg()[0]:.1f}"
    print(f"runner {args.runner} {' '.join(flags)}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, {load}")
    print(f"{args.turns} turns in each run; pipelines by --inline, as ratios to the loop")
    in_loops = [name for name in names if name != "W8"]
    if in_loops:
        compare(in_loops, args, flags)
    if "W8" in names:
        measure_process(args.runner)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
