"""Exactly once under kills: real processes, real SIGKILL, and errors in critical places.

`--streaming-kills` sets the number of kills of each run, `--streaming-seed` which processes are killed when.
"""

from __future__ import annotations

import os
import random
import re
import signal
import time

import pytest

from tests.support.streaming.child_processes import TIMEOUT, child_pids, wait_for_exit
from tests.support.streaming.killable_run import KillableRun
from tidegate.runners.checkpoint.task_state import loads

MODES = {
    "aligned": ["--checkpoint_mode", "aligned"],
    "unaligned": ["--checkpoint_mode", "unaligned"],
    "turning-unaligned": ["--alignment_timeout", "0.02"],
}
LOADS = {"throttled": {"rate": 1000}, "backpressured": {"rate": 0, "slow": 0.001}}
RUNS = [
    ("aligned", "throttled", "memory"),
    ("aligned", "backpressured", "memory"),
    ("unaligned", "throttled", "memory in slices"),
    ("unaligned", "backpressured", "memory"),
    ("turning-unaligned", "backpressured", "memory"),
    ("aligned", "throttled", "rocksdb"),
    ("unaligned", "backpressured", "rocksdb"),
]


@pytest.mark.parametrize(("mode", "load", "backend"), RUNS)
def test_output_is_exactly_once_under_kills(
    begin: type[KillableRun], mode: str, load: str, backend: str, request: pytest.FixtureRequest
) -> None:
    kills: int = request.config.getoption("--streaming-kills")
    seed: int = request.config.getoption("--streaming-seed")
    chance = random.Random(f"{seed} {mode} {load} {backend}")
    flags = [*MODES[mode], "--state_backend", backend.removesuffix(" in slices")]
    victim = begin(*flags, **LOADS[load], in_slices=backend.endswith("in slices"))
    first = ["worker", "job", "client", "workers"]
    chance.shuffle(first)
    for n in range(kills):
        what = first[n] if n < len(first) else chance.choice(["worker", "worker", "workers", "job", "client"])
        # Sometimes at any moment, even during a restore; otherwise at a critical one.
        if chance.random() < 0.3:
            victim.watch("rwpcmda", chance.randrange(1, 40))
        else:
            victim.watch(chance.choice("rpcmd"), chance.randrange(1, 8))
        if (load == "throttled" or mode == "aligned") and chance.random() < 0.3:  # alignment takes long otherwise
            victim.ask_for_savepoint()
            victim.watch("d", chance.randrange(4))
        victim.kill(what, chance)
    victim.watch("d", 2)
    victim.check(victim.drain())


def test_files_of_every_format_contain_each_record_once(
    begin: type[KillableRun], request: pytest.FixtureRequest
) -> None:
    chance = random.Random(f"{request.config.getoption('--streaming-seed')} formats")
    victim = begin(rate=500, formats="csv,json,parquet,avro,arrow")
    for what in ("workers", "job", "worker"):
        victim.watch(chance.choice("pcmd"), chance.randrange(1, 8))
        victim.kill(what, chance)
    victim.watch("d", 2)
    victim.check(victim.drain())


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("place", ["process", "snapshot", "restore", "commit"])
def test_a_job_recovers_from_an_error_in(begin: type[KillableRun], place: str, backend: str) -> None:
    victim = begin("--state_backend", backend, rate=1500, faulty=place)
    if place == "restore":
        victim.watch("d", 2)
        victim.kill("worker", random.Random(0))
    deadline = time.monotonic() + TIMEOUT
    while not (victim.folder / f"failed-{place}").exists():
        assert time.monotonic() < deadline
        victim.watch("rpcmd", 1)
    victim.watch("d", 2)
    victim.check(victim.drain())
    assert "state=restarting" in victim.stderr
    assert "injected into" in victim.stderr


def test_a_checkpoint_that_cannot_be_written_can_be_tolerated(begin: type[KillableRun]) -> None:
    victim = begin("--tolerated_failed_checkpoints", "1", blocked_checkpoint=3)
    victim.watch("d", 4)
    victim.check(victim.drain())
    assert "checkpoint 3 failed" in victim.stderr
    assert "state=restarting" not in victim.stderr


def test_a_checkpoint_that_cannot_be_written_otherwise_restarts_the_job(begin: type[KillableRun]) -> None:
    victim = begin(blocked_checkpoint=3)
    victim.watch("d", 4)
    victim.check(victim.drain())
    assert "checkpoint 3 failed" in victim.stderr
    assert "state=restarting" in victim.stderr


def test_a_worker_that_is_stuck_is_killed(begin: type[KillableRun]) -> None:
    victim = begin("--task_timeout", "2")
    victim.watch("d", 2)
    os.kill(victim.workers()[0], signal.SIGSTOP)
    victim.watch("a")
    victim.watch("d", 2)
    victim.check(victim.drain())
    assert "--task_timeout" in victim.stderr


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_damaged_checkpoint_is_reported_and_the_job_resumes_from_the_previous_one(
    begin: type[KillableRun], backend: str
) -> None:
    victim = begin("--retained_checkpoints", "3", "--state_backend", backend)
    victim.watch("d", 4)
    orphans = [*child_pids(victim.client.pid), *victim.workers()]
    victim.client.kill()
    victim.client.communicate()
    wait_for_exit(orphans)
    newest = max((victim.folder / "checkpoints").glob("chk-*/manifest.json")).parent
    damaged = max(newest.glob("*.state"), key=lambda path: path.stat().st_size)
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 1
    damaged.write_bytes(data)
    victim.start()
    victim.watch("d", 2)
    victim.drain()
    number = int(newest.name.removeprefix("chk-"))
    assert f"{damaged.name} is damaged" in victim.stderr
    assert f"resuming from checkpoint {number - 1} in" in victim.stderr


def test_the_later_of_two_runs_on_one_directory_takes_over(begin: type[KillableRun]) -> None:
    victim = begin()
    victim.watch("d", 2)
    first = victim.client
    victim.start()
    assert first.wait(TIMEOUT) != 0
    first.communicate()
    victim.watch("d", 2)
    victim.check(victim.drain())
    assert "another run has taken over the checkpoints" in victim.stderr


@pytest.mark.parametrize("successor", ["finishes", "is killed"])
def test_late_output_of_a_process_presumed_dead_is_removed_when_the_job_starts_again(
    begin: type[KillableRun], successor: str
) -> None:
    victim = begin()
    victim.watch("d", 2)
    zombie = victim.client
    job, workers = victim.stop_in_prepare()
    victim.start()
    victim.watch("d", 2)
    if successor == "finishes":
        numbers = victim.drain()
    else:
        orphans = [victim.client.pid, *child_pids(victim.client.pid), *victim.workers()]
        victim.client.kill()
        victim.client.communicate()
        wait_for_exit(orphans)
    pending = set((victim.folder / "pending").iterdir())
    for pid in workers:  # they finish preparing output, and wait for the outcome of the checkpoint
        os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + TIMEOUT
    while set((victim.folder / "pending").iterdir()) == pending:
        assert time.monotonic() < deadline, "the workers write no output"
    for pid in (job, zombie.pid):
        os.kill(pid, signal.SIGCONT)
    zombie.communicate(timeout=TIMEOUT)
    assert zombie.returncode != 0
    wait_for_exit([job, *workers])
    victim.start()
    if successor == "finishes":
        assert victim.drain() == numbers
    else:
        victim.watch("d", 2)
        numbers = victim.drain()
    victim.check(numbers)
    assert "another run has taken over the checkpoints" in victim.stderr


def test_in_flight_elements_of_an_unaligned_checkpoint_are_restored_with_another_number_of_workers(
    begin: type[KillableRun],
) -> None:
    victim = begin(*MODES["unaligned"], **LOADS["backpressured"])
    for workers in (3, 1):
        victim.watch("d", 3)
        orphans = [*child_pids(victim.client.pid), *victim.workers()]
        victim.client.kill()
        victim.client.communicate()
        wait_for_exit(orphans)
        newest = max((victim.folder / "checkpoints").glob("chk-*/manifest.json")).parent
        states = [loads(path.read_bytes()) for path in newest.glob("*.state")]
        assert any(state.incoming or state.outgoing for state in states), "no elements are in flight"
        victim.start(workers)
    victim.watch("d", 3)
    victim.check(
        victim.drain(), ordered_too=False
    )  # splits have moved to other tasks than those that sent the in-flight elements


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_job_resumes_from_checkpoints_after_a_savepoint(begin: type[KillableRun], backend: str) -> None:
    victim = begin("--state_backend", backend)
    victim.watch("d", 3)
    victim.ask_for_savepoint()
    while not (saved := list(victim.folder.glob("saved/1/chk-*/manifest.json"))):
        victim.watch("d")
    victim.watch("d", 3)
    victim.kill("job", random.Random(0))
    victim.watch("d", 3)
    victim.check(victim.drain())
    savepoint = int(saved[0].parent.name.removeprefix("chk-"))
    (first, *_) = re.findall(r"resuming from checkpoint (\d+) in", victim.stderr)
    assert int(first) > savepoint


def test_a_drain_is_completed_after_the_job_process_dies(begin: type[KillableRun]) -> None:
    victim = begin(rate=0, slow=0.001)
    victim.watch("d", 2)
    victim.ask_to_drain()
    victim.watch("w")
    victim.kill("job", random.Random(0))
    victim.check(victim.drain())
