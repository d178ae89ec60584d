"""Output that sinks stage with the runner is visible exactly once, whoever is killed or suspended at which point."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.streaming.child_processes import TIMEOUT, wait_for_exit
from tests.support.streaming.staging_pipeline import Place, StagingRun
from tidegate.runners.streaming.checkpoint.manifest_json import loads

PLACES: list[Place] = ["prepared", "commit", "during", "committed"]
Begin = Callable[..., StagingRun]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    runs: list[StagingRun] = []

    def start(by: str, *flags: str, hold_at: Place | None = None) -> StagingRun:
        runs.append(StagingRun(tmp_path, by, flags, hold_at))
        return runs[-1]

    yield start
    for run in runs:
        run.release()
        run.close()


@pytest.mark.parametrize("by", ["job", "task"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", ["workers", "client"])
def test_output_comes_once_if_a_process_is_killed_at(begin: Begin, what: str, place: Place, by: str) -> None:
    run = begin(by, hold_at=place)
    run.watch("H")
    if what == "client":  # the others end with it, and one that is held doesn't notice
        run.kill("workers", random.Random(0))
    else:
        run.release()
    run.kill(what, random.Random(0))
    run.release()
    run.watch("d", 2)
    run.check(run.drain())


@pytest.mark.parametrize("by", ["job", "task"])
@pytest.mark.parametrize("place", PLACES)
def test_output_comes_once_if_processes_that_were_suspended_go_on_after_their_successors(
    begin: Begin, place: Place, by: str
) -> None:
    run = begin(by, hold_at=place)
    run.watch("H")
    zombie, others = run.client, run.suspend()
    run.release()
    run.start()
    run.watch("d", 3)
    run.resume(zombie, others)
    zombie.communicate("\n", timeout=TIMEOUT)
    wait_for_exit(others)
    run.watch("d", 2)
    run.check(run.drain())


def test_reading_and_checkpoints_go_on_while_a_commit_waits_and_stop_waits_for_it(begin: Begin) -> None:
    run = begin("job", hold_at="commit")
    run.watch("H")
    before = manifests(run)
    while manifests(run) < before + 5:  # each has read on
        run.watch("r", 10)
    assert not list((run.folder / "visible").iterdir())
    run.ask_to_drain()
    run.watch("H", 50)
    assert run.client.poll() is None
    run.release()
    out, _ = run.client.communicate(timeout=TIMEOUT)
    assert run.client.returncode == 0
    run.check(int(out))


def manifests(run: StagingRun) -> int:
    """The number of the newest complete checkpoint."""
    found = (run.folder / "checkpoints").glob("chk-*/manifest.json")
    return max((int(path.parent.name.removeprefix("chk-")) for path in found), default=0)


def test_sources_pause_while_too_many_commits_wait_and_resume_after_them(begin: Begin) -> None:
    run = begin("task", "--max_pending_commits", "2", hold_at="commit")
    while pending(run) < 4:
        run.watch("H")
    run.release()
    run.watch("d", 8)
    run.watch("r")
    run.check(run.drain())
    assert int((run.folder / "pauses").read_text()) >= 1


def pending(run: StagingRun) -> int:
    """Of how many checkpoints the newest one has output to commit."""
    newest = run.folder / "checkpoints" / f"chk-{manifests(run):06}" / "manifest.json"
    try:
        return len({commit.checkpoint for commit in loads(newest.read_bytes()).commits})
    except FileNotFoundError:
        return 0
