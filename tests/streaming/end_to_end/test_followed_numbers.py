"""Following files or a table into windows and files or tables is exactly once: real processes are killed and suspended.

With `--streaming-kills` above 10, each run has that many kills at random, and each point of a commit has one. There
are only a few by default.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.streaming.child_processes import TIMEOUT, wait_for_exit
from tests.support.streaming.commit_points import points_of
from tests.support.streaming.followed_numbers import POINTS, FollowedNumbers

MANY = 10

Follow = Callable[[str, str], FollowedNumbers]


@pytest.fixture
def follow(tmp_path: Path) -> Iterator[Follow]:
    runs: list[FollowedNumbers] = []

    def start(source: str, sink: str) -> FollowedNumbers:
        runs.append(FollowedNumbers(tmp_path, source, sink))
        return runs[-1]

    yield start
    for numbers in runs:
        numbers.run.close()


def some_points(request: pytest.FixtureRequest, sink: str) -> list[str]:
    """The points of a commit to try: one at random, or all of them if many processes are to be killed."""
    kills, seed = (request.config.getoption(f"--streaming-{name}") for name in ("kills", "seed"))
    points = points_of(POINTS[sink])
    return points if kills > MANY else random.Random(f"{seed} {sink}").sample(points, 1)


@pytest.mark.parametrize(
    ("source", "sink"), [("text", "text"), ("csv", "parquet"), ("text", "delta"), ("delta", "delta")]
)
def test_each_number_is_written_and_counted_once_under_kills(
    follow: Follow, source: str, sink: str, request: pytest.FixtureRequest
) -> None:
    kills, seed = (request.config.getoption(f"--streaming-{name}") for name in ("kills", "seed"))
    chance = random.Random(f"{seed} {source} {sink}")
    numbers = follow(source, sink)
    for _ in range(kills if kills > MANY or sink == "text" else 1):
        numbers.wait_for_more()
        numbers.add(chance.randrange(1, 4))
        numbers.run.kill_at_random(chance)
    numbers.add(10)
    numbers.check()


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_each_number_is_written_and_counted_once_if_processes_die_or_are_suspended_at_a_point_of_a_commit(
    follow: Follow, sink: str, request: pytest.FixtureRequest
) -> None:
    numbers = follow("text", sink)
    for point in some_points(request, sink):
        wait_for_exit([numbers.interrupted(f"SIGKILL {point}")])
        numbers.wait_until_written()
        numbers.interrupted(f"SIGSTOP {point}")
        zombie, below = numbers.run.client, numbers.run.processes()
        for pid in (zombie.pid, *below):
            os.kill(pid, signal.SIGSTOP)
        numbers.run.start()
        numbers.add()
        numbers.wait_until_written()
        for pid in (*below, zombie.pid):
            os.kill(pid, signal.SIGCONT)
        assert zombie.wait(TIMEOUT) != 0
        wait_for_exit(below)
        numbers.add()
        numbers.wait_until_written()
    numbers.add(8)
    numbers.check()
