"""Following files or a table into windows and files or tables is exactly once: real processes are killed and suspended.

`--streaming-kills` sets the number of kills of each run at random; with more than 10, processes are also interrupted at
each point of a commit, and else only at some of them.
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


def some_points(request: pytest.FixtureRequest, sink: str, few: int) -> list[str]:
    """The points of a commit to try: a few at random, or all of them if many processes are to be killed."""
    kills, seed = (request.config.getoption(f"--streaming-{name}") for name in ("kills", "seed"))
    points = points_of(POINTS[sink])
    return points if kills > 10 else random.Random(f"{seed} {sink}").sample(points, few)


@pytest.mark.parametrize(
    ("source", "sink"), [("text", "text"), ("csv", "parquet"), ("text", "delta"), ("delta", "delta")]
)
def test_each_number_is_written_and_counted_once_under_kills(
    follow: Follow, source: str, sink: str, request: pytest.FixtureRequest
) -> None:
    kills, seed = (request.config.getoption(f"--streaming-{name}") for name in ("kills", "seed"))
    chance = random.Random(f"{seed} {source} {sink}")
    numbers = follow(source, sink)
    for _ in range(kills):
        numbers.wait_for_more()
        numbers.add(chance.randrange(1, 4))
        numbers.run.kill_at_random(chance)
    numbers.add(10)
    numbers.check()


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_each_number_is_written_and_counted_once_if_a_process_dies_at_a_point_of_a_commit(
    follow: Follow, sink: str, request: pytest.FixtureRequest
) -> None:
    numbers = follow("text", sink)
    for point in some_points(request, sink, 2):
        wait_for_exit([numbers.interrupted(f"SIGKILL {point}")])
        numbers.wait_until_written()
    numbers.add(8)
    numbers.check()


@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_each_number_is_written_and_counted_once_if_a_suspended_job_continues_after_its_successor(
    follow: Follow, sink: str, request: pytest.FixtureRequest
) -> None:
    numbers = follow("text", sink)
    for point in some_points(request, sink, 1):
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
