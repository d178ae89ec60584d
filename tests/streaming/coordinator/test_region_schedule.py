"""The order in which regions run, and which of them run again after a failure."""

from __future__ import annotations

import pytest

from tests.support.streaming.coordinator_harness import count_words_to_text, make_job
from tidegate.runners.streaming.coordinator.region_schedule import RegionSchedule


@pytest.fixture
def regions() -> RegionSchedule:
    """The schedule of a job with two regions of two tasks each."""
    job = make_job(count_words_to_text(), batch=True)
    assert len(job.plan.regions) == 2
    return RegionSchedule(job.topology)


def run(regions: RegionSchedule) -> list[int]:
    """Run all tasks of the regions that are next, and return those regions."""
    ran = []
    while (region := regions.next) is not None:
        regions.deploy(region)
        ran.append(region)
        for task in [task for task in regions.deployed() if not regions.is_done(region)]:
            regions.end(task)
    return ran


def test_a_region_is_next_when_all_tasks_of_the_one_before_have_ended(regions: RegionSchedule) -> None:
    assert regions.next == 0
    regions.deploy(0)
    assert regions.next is None
    first, second = regions.deployed()
    assert not regions.end(first)
    assert regions.next is None
    assert regions.end(second)
    assert regions.next == 1


def test_a_task_that_reports_its_end_twice_counts_once(regions: RegionSchedule) -> None:
    regions.deploy(0)
    first, second = regions.deployed()
    assert not regions.end(first)
    assert not regions.end(first)
    assert regions.end(second)
    assert not regions.end(second)


def test_a_region_that_is_done_stays_done_when_workers_are_lost(regions: RegionSchedule) -> None:
    regions.deploy(0)
    for task in list(regions.deployed()):
        regions.end(task)
    regions.deploy(1)
    regions.end(list(regions.deployed())[-1])
    regions.reset()
    assert list(regions.deployed()) == []
    assert len(list(regions.done_before())) == 2
    assert run(regions) == [1]
    assert regions.all_done


def test_all_regions_run_again_from_a_checkpoint_except_those_it_records_as_done(regions: RegionSchedule) -> None:
    assert run(regions) == [0, 1]
    regions.rewind()
    assert run(regions) == [0, 1]
    regions.rewind(frozenset({0}))
    assert run(regions) == [1]


def test_checkpoints_may_begin_with_the_last_region(regions: RegionSchedule) -> None:
    regions.deploy(0)
    assert not regions.last_deployed
    for task in list(regions.deployed()):
        regions.end(task)
    regions.deploy(1)
    assert regions.last_deployed
