"""What can be asked of any run, and which runners refuse it by name."""

from __future__ import annotations

import pytest

import tidegate as tg


def unbounded() -> tg.Pipeline:
    p = tg.Pipeline()
    _ = p | tg.PeriodicImpulse(0.01) | tg.Map(lambda tick: tick)
    return p


def test_a_run_on_direct_that_goes_on_can_be_stopped() -> None:
    result = unbounded().run()
    result.stop()
    assert result.wait_until_finish() is tg.PipelineState.DONE


def test_a_run_on_direct_neither_drains_nor_takes_savepoints() -> None:
    result = unbounded().run()
    try:
        with pytest.raises(tg.UnsupportedError, match="the direct runner don't drain: say --runner streaming"):
            result.stop(drain=True)
        with pytest.raises(tg.UnsupportedError, match="the direct runner don't take savepoints"):
            result.stop(savepoint="somewhere")
        with pytest.raises(tg.UnsupportedError, match="only runs on the streaming runner have savepoints"):
            result.savepoint("somewhere")
        assert result.state is tg.PipelineState.RUNNING
    finally:
        result.cancel()


def test_a_run_that_is_over_can_not_be_stopped() -> None:
    p = tg.Pipeline()
    _ = p | tg.Create([1]) | tg.Map(abs)
    with pytest.raises(tg.UnsupportedError, match="only runs on the streaming runner can be stopped so"):
        p.run().stop()
