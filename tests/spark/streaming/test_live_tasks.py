"""Tasks that live on in a worker's memory from one batch to the next."""

from __future__ import annotations

import tidegate as tg
from tests.support.spark.live_numbers import LiveNumbers
from tests.support.spark.micro_batches import MemoryStore, MicroBatches
from tidegate.runners.spark.streaming.task import StreamTask
from tidegate.runners.spark.streaming.worker import LiveTasks

abandoned: list[int] = []


class Recorded(StreamTask):
    """A task of which it is known whether it was abandoned."""

    def abandon(self) -> None:
        abandoned.append(self._index)
        super().abandon()


class Connected(tg.DoFn):
    """Has a connection from `setup` to `teardown`."""

    def setup(self) -> None:
        self.open = True

    def process(self, element: int) -> list[int]:
        assert self.open
        return [element]

    def teardown(self) -> None:
        assert self.open
        self.open = False


def test_tasks_of_a_process_have_functions_of_their_own() -> None:
    """Tasks are restored in a process, and leave it, while others go on there."""
    pipeline = tg.Pipeline(MicroBatches(3, seed=0, elements=3), ["--mode", "streaming"])
    connected = pipeline | tg.Create(range(60)) | tg.ParDo(Connected())
    assert sorted(connected.collect()) == list(range(60))


def test_a_task_that_has_gone_to_another_process_does_not_stay_in_memory() -> None:
    pipeline = tg.Pipeline(options=["--runner", "direct"])
    _ = pipeline | tg.Read(LiveNumbers(1_000_000)) | tg.Map(str)
    job = MicroBatches(2, elements=10).batches(pipeline.sealed(), pipeline.options).job
    live, stores = LiveTasks(Recorded), [MemoryStore(), MemoryStore()]
    abandoned.clear()
    for now, indices in [(1, (0, 1)), (2, (0,)), (3, (0,))]:
        assert abandoned == []
        for index in indices:
            live.run(job, 0, index, stores[index], [], now)
    assert abandoned == [1]
    live.close()
    assert abandoned == [1]
