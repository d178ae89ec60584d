"""Output that sinks stage with the runner is visible exactly once if processes are killed or suspended at any point."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.streaming.child_processes import TIMEOUT, wait_for_exit
from tests.support.streaming.staging_pipeline import Place, StagingRun
from tidegate.runners.checkpoint.manifest_json import loads

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


@pytest.mark.sampled(3)
@pytest.mark.parametrize("by", ["job", "task"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("victim", ["workers", "client"])
def test_output_is_visible_once_if_a_process_is_killed_at(begin: Begin, victim: str, place: Place, by: str) -> None:
    run = begin(by, hold_at=place)
    run.watch("H")
    if victim == "client":  # the others end with it, except for a process that is held
        run.kill("workers", random.Random(0))
    else:
        run.release()
    run.kill(victim, random.Random(0))
    run.release()
    run.watch("d", 2)
    run.check(run.drain())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("by", ["job", "task"])
@pytest.mark.parametrize("place", PLACES)
def test_output_is_visible_once_if_suspended_processes_continue_after_their_successors(
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


def test_reading_and_checkpoints_continue_while_a_commit_waits_and_a_drain_waits_for_it(begin: Begin) -> None:
    run = begin("job", hold_at="commit")
    run.watch("H")
    before = newest_checkpoint(run)
    while newest_checkpoint(run) < before + 5:  # reading continues with each checkpoint
        run.watch("r", 10)
    assert not list((run.folder / "visible").iterdir())
    run.ask_to_drain()
    run.watch("H", 50)
    assert run.client.poll() is None
    run.release()
    out, _ = run.client.communicate(timeout=TIMEOUT)
    assert run.client.returncode == 0
    run.check(int(out))


def test_a_checkpoint_with_staged_output_is_restored_in_another_directory_and_commits_it(begin: Begin) -> None:
    run = begin("task", hold_at="commit")
    while pending_commits(run) < 2:
        run.watch("H")
    run.kill("workers", random.Random(0))
    run.client.kill()
    run.client.communicate()
    checkpoints = (run.folder / "checkpoints").rename(run.folder / "elsewhere")
    assert list(checkpoints.glob("staged/*/*"))
    run.release()
    run.flags = ["--from_savepoint", str(checkpoints)]
    run.start(workers=3)
    run.watch("d", 3)
    run.check(run.drain())


def test_a_savepoint_waits_for_the_commit_of_its_staged_output_and_can_be_restored_elsewhere(begin: Begin) -> None:
    run = begin("task", hold_at="commit")
    run.watch("H")
    run.ask_for_savepoint()
    before = newest_checkpoint(run)
    while newest_checkpoint(run) < before + 3:  # checkpoints continue while the savepoint waits
        run.watch("H")
    saved = run.folder / "saved" / "1"
    assert not list(saved.rglob("manifest.json"))
    run.release()
    while not list(saved.rglob("manifest.json")):
        run.watch("r")
    run.kill("workers", random.Random(0))
    run.client.kill()
    run.client.communicate()
    (manifest,) = [loads(path.read_bytes()) for path in saved.rglob("manifest.json")]
    assert manifest.commits == ()
    for path in (run.folder / "visible").iterdir():  # output committed after the savepoint is repeated
        if path.name.startswith(".") or int(path.name.split("-")[0]) > manifest.checkpoint:
            path.unlink()
    for folder in ("checkpoints", "local"):  # the new job must not resume from the killed one
        shutil.rmtree(run.folder / folder)
    run.checkpoints = str(run.folder / "another")
    run.flags = ["--from_savepoint", str(saved)]
    run.start(workers=1)
    run.watch("d", 2)
    run.check(run.drain())


def newest_checkpoint(run: StagingRun) -> int:
    """The number of the newest complete checkpoint."""
    found = (run.folder / "checkpoints").glob("chk-*/manifest.json")
    return max((int(path.parent.name.removeprefix("chk-")) for path in found), default=0)


def test_sources_pause_while_too_many_commits_wait_and_resume_after_them(begin: Begin) -> None:
    run = begin("task", "--max_pending_commits", "2", hold_at="commit")
    while pending_commits(run) < 3:  # one more than allowed; there may be no fourth, since the sources pause now
        run.watch("H")
    before = newest_checkpoint(run)
    while newest_checkpoint(run) == before:  # the next one is taken when the sources have been told
        run.watch("H")
    run.release()
    run.watch("d", 8)
    run.watch("r")
    run.check(run.drain())
    assert int((run.folder / "pauses").read_text()) >= 1


def pending_commits(run: StagingRun) -> int:
    """The number of checkpoints whose output the newest manifest lists as pending_commits."""
    newest = run.folder / "checkpoints" / f"chk-{newest_checkpoint(run):06}" / "manifest.json"
    try:
        return len({commit.checkpoint for commit in loads(newest.read_bytes()).commits})
    except FileNotFoundError:
        return 0
