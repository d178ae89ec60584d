"""Calls on an event loop: timeouts, retries, batches and the life cycle of functions, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tidegate as tg
from tests.support.controlled_calls import VirtualLoop
from tidegate.runners.engine.asynchronous.call_runner import CallRunner
from tidegate.runners.engine.asynchronous.outcomes import Completed, Item, Outcome, SetupFailed
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import ENGINE, MetricCells, MetricKey
from tidegate.sdk.portable.async_calls import AsyncCalls, BatchSettings
from tidegate.sdk.time import Duration


class CallReport:
    """Outcomes, metrics and the duration that a runner has reported for some calls."""

    def __init__(self, items: list[Item], seconds: float) -> None:
        self.outcomes = {item.id: item.outcome for item in items if isinstance(item, Completed)}
        self.setup_failures = [item.error for item in items if isinstance(item, SetupFailed)]
        self.metrics = MetricCells()
        for item in items:
            if isinstance(item, MetricCells):
                self.metrics.merge(item)
        self.seconds = seconds
        """Duration by the loop's clock."""

    def result(self, id: int = 0) -> Any:
        return self.outcomes[id].result()

    def count(self, name: str, namespace: str = ENGINE) -> int:
        return self.metrics.counters.get(MetricKey("step", namespace, name), 0)


def run(fn: Any, *arguments: Any, during: Callable[[], Awaitable[None]] | None = None, **settings: Any) -> CallReport:
    """Run concurrent calls, one per argument, to their end; or close the runner after `during`."""
    items: list[Item] = []

    async def main() -> float:
        runner = CallRunner(fn, AsyncCalls(100, awaits=True, **settings), "step", None, items.append)
        runner.begin(list(enumerate(arguments)))
        if during is not None:
            await during()
        elif runner._tasks:
            await asyncio.wait(runner._tasks)
        duration = asyncio.get_running_loop().time()
        await runner.close()
        return duration

    with asyncio.Runner(loop_factory=VirtualLoop) as loop:
        return CallReport(items, loop.run(main()))


async def sleep_for(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def test_calls_run_at_the_same_time() -> None:
    report = run(sleep_for, 3, 1, 2)
    assert [report.result(id) for id in range(3)] == [3, 1, 2]
    assert report.seconds == 3
    assert list(report.outcomes) == [1, 2, 0]  # in order of completion


def test_a_call_that_takes_longer_than_the_timeout_fails() -> None:
    report = run(sleep_for, 5, 1, timeout=Duration(2))
    with pytest.raises(TimeoutError, match=r"the call took longer than the timeout of 2 s"):
        report.result(0)
    assert report.result(1) == 1
    assert report.seconds == 2
    assert (report.count("calls"), report.count("calls_failed"), report.count("calls_timed_out")) == (2, 1, 1)


def test_a_timeout_error_raised_by_the_call_itself_is_kept() -> None:
    async def impatient(_: Any) -> None:
        await asyncio.wait_for(asyncio.sleep(9), 1)

    report = run(impatient, None, timeout=Duration(5))
    assert isinstance(report.outcomes[0].error, TimeoutError)
    assert "the call took" not in str(report.outcomes[0].error)
    assert report.count("calls_timed_out") == 0


class Flaky:
    """Fails a number of times, then returns the number of calls."""

    def __init__(self, failures: int, error: type[Exception] = ConnectionError) -> None:
        self.failures = failures
        self.error = error
        self.at: list[float] = []

    async def __call__(self, argument: Any) -> int:
        self.at.append(asyncio.get_running_loop().time())
        if len(self.at) <= self.failures:
            raise self.error("away")
        return len(self.at)


def test_failed_calls_are_retried_with_exponential_backoff() -> None:
    flaky = Flaky(4)
    report = run(flaky, None, retry=tg.Retry(attempts=5, backoff=1, max_backoff=3).portable())
    assert report.result() == 5
    assert flaky.at == [0, 1, 3, 6, 9]
    assert (report.count("calls"), report.count("calls_retried"), report.count("calls_failed")) == (5, 4, 0)
    assert report.metrics.distributions[MetricKey("step", ENGINE, "call_seconds")].count == 5


def test_the_error_of_the_last_attempt_is_that_of_the_call() -> None:
    report = run(Flaky(9), None, retry=tg.Retry(attempts=3).portable())
    with pytest.raises(ConnectionError, match="away"):
        report.result()
    assert (report.count("calls"), report.count("calls_retried"), report.count("calls_failed")) == (3, 2, 1)


def test_other_exceptions_are_not_retried() -> None:
    report = run(Flaky(1, KeyError), None, retry=tg.Retry(on=(ConnectionError, TimeoutError)).portable())
    assert isinstance(report.outcomes[0].error, KeyError)
    assert report.count("calls") == 1


def test_each_attempt_has_the_full_timeout() -> None:
    durations = [5.0, 1.5]

    async def accelerating(_: Any) -> str:
        await asyncio.sleep(durations.pop(0))
        return "done"

    report = run(accelerating, None, timeout=Duration(2), retry=tg.Retry(backoff=1, on=TimeoutError).portable())
    assert report.result() == "done"
    assert report.seconds == 2 + 1 + 1.5


def test_a_call_that_is_cancelled_by_its_own_code_fails() -> None:
    async def cancelled(_: Any) -> None:
        raise asyncio.CancelledError

    with pytest.raises(RunError, match="cancelled by its own code"):
        run(cancelled, None).result()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_the_loop_survives_a_call_that_exits(error: BaseException) -> None:
    async def ends(_: Any) -> None:
        raise error

    assert run(ends, None).outcomes[0].error is error


def test_metrics_of_calls_belong_to_their_step() -> None:
    async def counting(n: int) -> None:
        await asyncio.sleep(n)
        tg.Metrics.counter("mine", "seen").inc(n)

    assert run(counting, 1, 2).count("seen", "mine") == 3


# ---- batches


def batches(**settings: Any) -> dict[str, Any]:
    return {"batch": BatchSettings(settings.get("size", 2), Duration(settings.get("wait", 1)))}


def test_batches_are_full_or_have_waited_long_enough() -> None:
    batches_called: list[list[int]] = []

    async def names(keys: list[int]) -> list[str]:
        batches_called.append(keys)
        return [f"n{key}" for key in keys]

    report = run(names, 1, 2, 3, **batches())
    assert batches_called == [[1, 2], [3]]
    assert [report.result(id) for id in range(3)] == ["n1", "n2", "n3"]
    assert report.seconds == 1
    assert report.count("calls") == 2


def test_a_batch_may_return_a_mapping_without_keys_that_are_not_found() -> None:
    async def names(keys: list[int]) -> dict[int, str]:
        return {1: "one"}

    report = run(names, 1, 2, **batches())
    assert (report.result(0), report.result(1)) == ("one", None)


def test_a_batch_fails_or_is_retried_as_a_whole() -> None:
    calls: list[list[int]] = []

    async def flaky(keys: list[int]) -> list[int]:
        calls.append(keys)
        if len(calls) < 2:
            raise ConnectionError("away")
        return keys

    report = run(flaky, 1, 2, retry=tg.Retry().portable(), **batches())
    assert (report.result(0), report.result(1)) == (1, 2)
    assert calls == [[1, 2], [1, 2]]
    failed = run(Flaky(9), 1, 2, **batches())
    assert isinstance(failed.outcomes[0].error, ConnectionError)
    assert isinstance(failed.outcomes[1].error, ConnectionError)


@pytest.mark.parametrize("returned", ["ab", [1], None, 7])
def test_a_batch_without_a_result_for_each_key_is_refused(returned: Any) -> None:
    async def wrong(keys: list[int]) -> Any:
        return returned

    with pytest.raises(RunError, match="was called with a list of 2 keys and returned"):
        run(wrong, 1, 2, **batches()).result()


# ---- the life cycle


class Client(tg.AsyncFunction[int, int]):
    """Records its life cycle calls."""

    def __init__(self) -> None:
        self.life: list[str] = []

    async def setup(self) -> None:
        await asyncio.sleep(1)
        self.life.append("setup")

    async def __call__(self, argument: int, /) -> int:
        self.life.append("call")
        await asyncio.sleep(1)
        return argument

    async def teardown(self) -> None:
        await asyncio.sleep(1)
        self.life.append("teardown")


def test_setup_comes_before_all_calls_and_teardown_after_them() -> None:
    client = Client()
    run(client, 1, 2)
    assert client.life == ["setup", "call", "call", "teardown"]


def test_calls_in_flight_are_cancelled_by_close() -> None:
    client = Client()
    report = run(client, 1, during=lambda: asyncio.sleep(1.5))
    assert report.outcomes == {}
    assert client.life == ["setup", "call", "teardown"]


def test_there_are_no_calls_if_setup_fails() -> None:
    class Refused(Client):
        async def setup(self) -> None:
            raise ConnectionError("no server")

    client = Refused()
    report = run(client, 1)
    assert [str(error) for error in report.setup_failures] == ["no server"]
    assert (report.outcomes, client.life) == ({}, [])


def test_a_function_may_return_something_to_await() -> None:
    assert run(lambda n: sleep_for(n), 2).result() == 2


def test_an_outcome_raises_the_same_error_each_time() -> None:
    try:
        raise ValueError("one")
    except ValueError as error:
        outcome = Outcome(error=error)
    depths = []
    for _ in range(3):
        with pytest.raises(ValueError, match="one") as raised:
            outcome.result()
        depths.append(len(raised.traceback))
    assert depths[0] == depths[-1]
