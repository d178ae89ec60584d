"""A pipeline that is run inside its `with` block does not run again at the end of the block."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tidegate.testing import TestPipeline, assert_that, equal_to


@pytest.fixture
def found(capsys: pytest.CaptureFixture[str]) -> Any:
    def printed() -> list[str]:
        return capsys.readouterr().out.split()

    return printed


def test_a_run_inside_the_block_is_the_only_one(found: Any) -> None:
    with tg.Pipeline() as p:
        p | tg.Create([1, 2]) | tg.Map(print)
        result = p.run()
    assert found() == ["1", "2"]
    assert p.result is result


def test_each_block_runs_the_pipeline_even_if_it_ran_before(found: Any) -> None:
    p = tg.Pipeline()
    numbers = p | tg.Create([1])
    numbers | tg.Map(print)
    p.run()
    with p:
        numbers | "plus" >> tg.Map(lambda n: print(n + 1))
    assert found() == ["1", "1", "2"]


def test_steps_added_after_a_run_inside_the_block_are_refused(found: Any) -> None:
    def write() -> None:
        with tg.Pipeline(name="tea") as p:
            p | tg.Create([1]) | tg.Map(print)
            p.run()
            p | "more" >> tg.Create([2]) | tg.Map(print)

    with pytest.raises(tg.BuildError) as caught:
        write()
    assert found() == ["1"]
    assert "the pipeline 'tea' was run inside its `with` block, and the step 'more', applied at" in str(caught.value)
    assert "leave out run()" in str(caught.value)


def test_a_run_that_failed_inside_the_block_is_not_repeated(found: Any) -> None:
    with tg.Pipeline() as p:
        p | tg.Create([1]) | tg.Map(lambda n: print(n) or n / 0)  # type: ignore[func-returns-value]
        with pytest.raises(tg.UserCodeError):
            p.run()
    assert found() == ["1"]


def test_a_run_refused_inside_the_block_is_refused_again_at_the_end_of_the_block() -> None:
    def write() -> None:
        with tg.Pipeline("nonsense") as p:
            p | tg.Create([1]) | tg.Map(print)
            with pytest.raises(tg.OptionsError):
                p.run()

    with pytest.raises(tg.OptionsError, match="there is no runner 'nonsense'"):
        write()


def test_the_end_of_the_block_waits_for_the_run_inside_it() -> None:
    with tg.Pipeline("streaming") as p:
        p | tg.PeriodicImpulse(start=0, stop=1, interval=0.5) | tg.Map(lambda at: at)
        result = p.run()
    assert result.state is tg.PipelineState.DONE


def test_a_test_pipeline_that_ran_inside_its_block_is_checked_once(found: Any) -> None:
    with TestPipeline("direct") as p:
        assert_that(p | tg.Create([1]) | tg.Map(lambda n: print(n) or n), equal_to([2]))  # type: ignore[func-returns-value]
        with pytest.raises(AssertionError):
            p.run()
    assert found() == ["1"]
