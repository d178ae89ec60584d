"""The interface of runs, and the runners that refuse parts of it."""

from __future__ import annotations

import pytest

import tidegate as tg


def unbounded() -> tg.Pipeline:
    p = tg.Pipeline()
    _ = p | tg.PeriodicImpulse(0.01) | tg.Map(lambda tick: tick)
    return p


def test_an_unbounded_run_on_the_direct_runner_can_be_stopped() -> None:
    result = unbounded().run()
    result.stop()
    assert result.wait_until_finish() is tg.PipelineState.DONE


def test_a_run_on_the_direct_runner_neither_drains_nor_takes_savepoints() -> None:
    result = unbounded().run()
    try:
        with pytest.raises(tg.UnsupportedError, match="the direct runner don't drain: use --runner streaming"):
            result.stop(drain=True)
        with pytest.raises(tg.UnsupportedError, match="the direct runner don't take savepoints"):
            result.stop(savepoint="somewhere")
        with pytest.raises(
            tg.UnsupportedError, match="only streams on the streaming and spark runners have savepoints"
        ):
            result.savepoint("somewhere")
        assert result.state is tg.PipelineState.RUNNING
    finally:
        result.cancel()


def test_a_finished_run_cannot_be_stopped() -> None:
    p = tg.Pipeline()
    _ = p | tg.Create([1]) | tg.Map(abs)
    with pytest.raises(
        tg.UnsupportedError, match="only streams on the streaming and spark runners can be stopped cleanly"
    ):
        p.run().stop()


def test_metrics_are_printed_one_per_line() -> None:
    def count(n: int) -> int:
        tg.Metrics.distribution("tea", "cups").update(n)
        tg.Metrics.string_set("tea", "sorts").add("oolong" if n > 1 else "assam")
        return n

    p = tg.Pipeline()
    _ = p | tg.Create([1, 2]) | tg.Map(count)
    assert str(p.run().metrics()).splitlines() == [
        "Create: tidegate.elements_out = 2",
        "Map(count): tea.cups = count 2, sum 3, min 1, max 2, mean 1.5",
        "Map(count): tea.sorts = assam, oolong",
        "Map(count): tidegate.elements_out = 2",
    ]
