"""Loops count each round once under kills: real processes, real SIGKILL, in rounds and between them.

With `--mode streaming`, one task runs all rounds, and checkpoints are taken. `--loop-kills 150` kills so many workers
in each mode, in as many runs as that takes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.example_scripts import lines_of
from tests.support.streaming.child_processes import TIMEOUT, EventPipe

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")

PAIRS = tuple[int, int]
VERTICES = 24
ROUNDS = 14
EDGES = [edge for n in range(VERTICES) for edge in ((n, (n + 1) % VERTICES), ((n + 1) % VERTICES, n))]


def loops(pipeline: Any, folder: Path) -> None:
    """A sum over neighbours in bulk, and components by a loop with a solution, which report as they go on."""
    here = str(folder)

    def tell(key: int, both: tuple[int, int]) -> PAIRS:  # type: ignore[valid-type]
        if key % 6 == 0:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(f"{here}/worker-{os.getpid()}", os.O_CREAT | os.O_EXCL))
            with contextlib.suppress(BlockingIOError):
                pipe = os.open(f"{here}/events", os.O_WRONLY | os.O_NONBLOCK)
                os.write(pipe, b"t")
                os.close(pipe)
        return both[1], both[0]

    edges = pipeline | "edges" >> tg.Create(EDGES).with_output_types(PAIRS)
    start = pipeline | "start" >> tg.Create([(n, n) for n in range(VERTICES)]).with_output_types(PAIRS)

    def bulk(values: Any) -> Any:
        told = values | tg.Join.inner(edges) | "tell" >> tg.MapTuple(tell).with_output_types(PAIRS)
        new = told | tg.CombinePerKey(sum) | tg.MapValues(lambda n: n % 97).with_output_types(PAIRS)
        total = new | tg.Values() | tg.CombineGlobally(sum).without_defaults()
        return tg.Round(new, out={"seen": total | tg.Map(lambda n, number=tg.DoFn.RoundParam: f"{number}: {n}")})

    def delta(known: tg.Solution[int, int], changed: Any) -> Any:
        told = changed | tg.Join.inner(edges) | "tell" >> tg.MapTuple(tell).with_output_types(PAIRS)
        seen = changed | known.lookup() | tg.Map(lambda pair, number=tg.DoFn.RoundParam: f"{number}: {pair}")
        return tg.Round(told, out={"seen": seen})

    sums = start | "bulk" >> tg.Iterate(bulk, rounds=ROUNDS)
    labels = (start, start) | "delta" >> tg.IterateDelta(delta, merge=min)
    for name, result in (("sums", sums.result), ("labels", labels.result)):
        _ = result | f"text of {name}" >> tg.Map(str) | name >> tg.io.WriteToText(str(folder / name))
    for name, out in (("of sums", sums.out["seen"]), ("of labels", labels.out["seen"])):
        _ = out | name >> tg.io.WriteToText(str(folder / name))


def expected() -> dict[str, list[str]]:
    values, seen = {n: n for n in range(VERTICES)}, []
    for number in range(1, ROUNDS + 1):
        values = {n: sum(values[a] for a, b in EDGES if b == n) % 97 for n in range(VERTICES)}
        seen.append(f"{number}: {sum(values.values())}")
    known, changed, of_labels, number = {n: n for n in range(VERTICES)}, dict.fromkeys(range(VERTICES)), [], 0
    while changed:
        number += 1
        of_labels += [f"{number}: {(n, (known[n], known[n]))}" for n in changed]
        new = {n: min([known[n], *(known[a] for a, b in EDGES if b == n and a in changed)]) for n in known}
        changed = dict.fromkeys(n for n in known if new[n] != known[n])
        known = new
    return {
        "sums": sorted(map(str, values.items())),
        "labels": sorted(map(str, known.items())),
        "of sums": sorted(seen),
        "of labels": sorted(of_labels),
    }


class Killer(threading.Thread):
    """Kills workers, at most so many, each after some more events, until the run is over."""

    def __init__(self, folder: Path, kills: int, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self.killed = 0
        self._folder = folder
        self._kills = kills
        self._chance = chance
        self._over = threading.Event()
        self._events = EventPipe(str(folder / "events"))

    def run(self) -> None:
        left = self._chance.randrange(1, 60)
        while self.killed < self._kills and not self._over.wait(0.001):
            left -= len(self._events.happened())
            if left <= 0:
                self._kill()
                left = self._chance.randrange(1, 60)

    def stop(self) -> None:
        """The run is over."""
        self._over.set()
        self.join(TIMEOUT)
        self._events.close()

    def _kill(self) -> None:
        """Kill a worker, or all of them."""
        pids = [int(path.name.removeprefix("worker-")) for path in sorted(self._folder.glob("worker-*"))]
        for pid in pids if self._chance.random() < 0.2 else [self._chance.choice(pids)]:
            (self._folder / f"worker-{pid}").unlink()
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.killed += 1


@pytest.mark.parametrize("mode", ["batch", "streaming"])
def test_each_round_counts_once_under_kills(mode: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    kills: int = request.config.getoption("--loop-kills")
    chance = random.Random(f"{request.config.getoption('--streaming-seed')} {mode}")
    killed = runs = 0
    while killed < kills:
        runs += 1
        assert runs <= 10 + kills, "the workers were not killed in time"
        folder = tmp_path / str(runs)
        folder.mkdir()
        options = {"mode": mode, "workers": 2, "checkpoint_interval": "20ms"}
        restarts = {"restart_strategy": "fixed", "restart_delay": "10ms", "restart_attempts": 1000}
        p = tg.Pipeline("streaming", {**options, **restarts})
        loops(p, folder)
        killer = Killer(folder, min(4, kills - killed), chance)
        killer.start()
        result = p.run()
        killer.stop()
        killed += killer.killed
        for name, lines in expected().items():
            assert sorted(lines_of(folder / name)) == lines, (name, runs)
        assert result.metrics().counter("rounds", step="bulk") == ROUNDS
        assert result.metrics().counter("fed_back", step="bulk") == ROUNDS * VERTICES
