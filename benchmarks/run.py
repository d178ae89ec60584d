"""`make bench`: compares the workloads on a runner with hand-written loops. Prints a table.

    python benchmarks/run.py [W1 W2 …] [--runner direct] [--repeat 3] [-- flags for the runner]

The ratios within one run matter; absolute times drift. Each figure is the median of the repeats, in which pipelines and
loops take turns. Each workload has a process of its own, because forked workers share the memory of its input. W8 is a
whole process: start, import, a pipeline of ten elements, end. The streaming runner is measured in streaming mode, on
two workers with a checkpoint every second (`-- --mode streaming --workers 2 --checkpoint_interval 1s`). Its tasks read
elements in no fixed order, so W6 sums there by how much each element raises the maximum of its key.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TARGETS = {
    "direct": {"W1": 2.0, "W2": 1.3, "W3": 2.0, "W4": 2.5, "W5": 1.5, "W6": 4.0, "W7": 1.5, "W9": 1.2},
    "streaming": {"W1": 2.0, "W2": 1.0, "W3": 1.6, "W4": 2.5, "W5": 1.5, "W6": 3.0, "W7": 1.2},
}
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


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    gc.collect()
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def compare(name: str, flags: list[str], repeat: int) -> tuple[float, float]:
    """Median seconds of the loop and of the pipeline. Exits if their results differ."""
    import data
    import plain
    import workloads

    _load(data, name)
    unordered = name == "W6" and "streaming" in flags
    loops, pipelines = [], []
    for _ in range(repeat):
        seconds, expected = timed(plain.LOOPS[name])
        loops.append(seconds)
        seconds, result = timed(lambda: workloads.run("W6 unordered" if unordered else name, flags))
        pipelines.append(seconds)
        if result != (plain.rises() if unordered else expected):
            raise SystemExit(f"{name}: the result of the pipeline is {result}, that of the loop {expected}")
    return statistics.median(loops), statistics.median(pipelines)


def _load(data: Any, name: str) -> None:
    inputs = {
        "W2": ["text"],
        "W3": ["events"],
        "W4": ["visits", "stamped_visits"],
        "W5": ["grouped"],
        "W6": ["readings"],
        "W9": ["readings"],
    }
    for part in inputs.get(name, ["left", "right"] if name == "W7" else []):
        getattr(data, part)()


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


def run_in_process(name: str, argv: list[str], flags: list[str]) -> None:
    """Measure one workload in a new process, and print its row."""
    options = [arg for arg in argv if not re.fullmatch(r"W\d", arg)]
    done = subprocess.run([sys.executable, __file__, name, *options, "--", *flags], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(done.returncode)
    print(done.stdout.splitlines()[-1], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workloads", nargs="*", metavar="W1…W9")
    parser.add_argument("--runner", default="direct")
    parser.add_argument("--repeat", type=int, default=3)
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    args, flags = parser.parse_args(argv[:cut]), argv[cut + 1 :]
    names = args.workloads or [f"W{i}" for i in range(1, 10)]
    targets = TARGETS.get(args.runner, {})
    print(f"runner {args.runner}, Python {sys.version.split()[0]}, {os.cpu_count()} cores, median of {args.repeat}")
    print(f"{'':4}{'loop s':>9}{'pipeline s':>12}{'ratio':>8}{'target':>7}")
    for name in names:
        if name == "W8":
            seconds, peak = time_process(TINY.format(runner=args.runner), 7)
            target = PROCESS_TARGETS.get(args.runner, "-")
            print(f"W8: {seconds:.3f} s for a whole process (target {target}), peak {peak:.0f} MB (target, direct: 50)")
            bare, (loaded, memory) = time_process("", 7)[0], time_process("import tidegate", 7)
            print(f"import tidegate: {(loaded - bare) * 1000:.0f} ms (target 150), peak {memory:.0f} MB (target 40)")
            continue
        if len(names) > 1:
            run_in_process(name, argv[:cut], flags)
            continue
        loop, pipeline = compare(name, ["--runner", args.runner, *flags], args.repeat)
        target = f"{targets[name]:.1f}" if name in targets else ""
        print(f"{name:4}{loop:9.3f}{pipeline:12.3f}{pipeline / loop:8.2f}{target:>7}", flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
