"""`make bench-building`: measures what finding the text of functions adds to building and starting a pipeline.

    python benchmarks/building.py [--functions 200] [--turns 15]

The first table shows what each function adds when a pipeline is built and its functions are pickled, and when its loops
are compiled, for functions that are all different and for branches that all have the same one. The second shows the
processor time of building a pipeline in a script of 1,000 lines and running ten elements, with `--inline off` and `on`
in turns. Nothing is known of the script before each of them, but what both import has been imported: a process of half
a second varies by more than this differs.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import linecache
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tidegate as tg
from tidegate.runners.engine.elementwise.fused_node import load_link
from tidegate.runners.engine.loops.inlining import inlined_body
from tidegate.sdk.portable.model import ParDo, Pipeline
from tidegate.sdk.user_code import body
from tidegate.sdk.user_code.body import find_body

LINES = 1_000
STEPS = 20
"""The number of steps of the script of 1,000 lines."""
TARGET_FUNCTION = 0.3
TARGET_START = 5.0
"""Milliseconds."""

HEAD = """
import tidegate as tg
LIMIT = 3
"""
FUNCTION = '''
def function_{n}(x):
    """Adds a number to its argument."""
    return x + {n} * LIMIT

'''


def script(functions: int, lines: int = 0) -> str:
    """A script with so many functions, and comments up to a number of lines."""
    text = HEAD + "".join(FUNCTION.format(n=n) for n in range(functions))
    return "# a comment\n" * (lines - text.count("\n")) + text


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def branches(functions: list[Callable[[int], int]]) -> tg.Pipeline:
    """A pipeline in which each function is a branch of its own."""
    p = tg.Pipeline()
    values = p | tg.Create(range(10))
    for n, fn in enumerate(functions):
        _ = values | str(n) >> tg.Map(fn)
    return p


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    begun = time.process_time()
    work()
    return time.process_time() - begun


def functions_of(pipeline: Pipeline) -> Iterator[Any]:
    """The links of a sealed pipeline's functions, which are loaded."""
    for node in pipeline.nodes:
        if isinstance(node, ParDo):
            yield load_link(node, pipeline)


def forget() -> None:
    """Forget the texts that were found, as in a new process."""
    body._found.clear()
    body._proofs.clear()


def measure_functions(count: int, turns: int, folder: Path) -> None:
    """Print the milliseconds that each function adds."""
    path = folder / "different.py"
    path.write_text(script(count))
    module = imported(path)
    different = [vars(module)[f"function_{n}"] for n in range(count)]
    print("| functions | find the text (ms each) | decide where it runs (ms each) | target |")
    print("|---|---|---|---|")
    for name, functions in {"different": different, "equal": [different[0]] * count}.items():
        finding, deciding = [], []
        for _ in range(turns):
            forget()
            finding.append(seconds(partial(list, map(find_body, functions))))
            links = list(functions_of(branches(functions).sealed(values=True)))
            forget()
            deciding.append(seconds(partial(list, map(inlined_body, links))))
        each = [f"{min(times) / count * 1e3:.3f}" for times in (finding, deciding)]
        print(f"| {count} {name} | {' | '.join(each)} | {TARGET_FUNCTION} |", flush=True)


def run_ten_elements(functions: list[Callable[[int], int]], inline: str) -> None:
    """Build a pipeline of a step for each function, and run it."""
    p = tg.Pipeline(options=tg.PipelineOptions.from_args(["--inline", inline]))
    values = p | tg.Create(range(10))
    for n, fn in enumerate(functions):
        values = values | str(n) >> tg.Map(fn)
    p.run()


def measure_start(turns: int, folder: Path) -> None:
    """Print the processor time (ms) of building and running a pipeline of ten elements."""
    path = folder / "long_script.py"
    path.write_text(script((LINES - 20) // FUNCTION.count("\n"), LINES))
    module = imported(path)
    functions = [vars(module)[f"function_{n}"] for n in range(STEPS)]
    run_ten_elements(functions, "on")  # imports what runs need
    times: dict[str, list[float]] = {"off": [], "on": []}
    for _ in range(turns):
        for inline, measured in times.items():
            forget()
            linecache.clearcache()
            measured.append(seconds(partial(run_ten_elements, functions, inline)) * 1e3)
    lines = path.read_text().count("\n")
    print(f"\nA script of {lines:,} lines with {STEPS} steps runs ten elements (ms of processor time):\n")
    print("| | off | on | difference | target |")
    print("|---|---|---|---|---|")
    for name, of in (("minimum", min), ("median", statistics.median)):
        off, on = of(times["off"]), of(times["on"])
        print(f"| {name} | {off:.1f} | {on:.1f} | {on - off:+.1f} | {TARGET_START} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=200)
    parser.add_argument("--turns", type=int, default=15)
    args = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        measure_functions(args.functions, args.turns, Path(folder))
        measure_start(args.turns, Path(folder))


if __name__ == "__main__":
    main()
