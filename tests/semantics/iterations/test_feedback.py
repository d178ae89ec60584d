"""SEMANTICS, Iterations F1 to F5: loops in streams, by runner; those that have none refuse them by name."""

from __future__ import annotations

import os
import random
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate as tg
from tests.semantics.conftest import chosen, running
from tests.support.streaming.small_filesystem import mount_small_filesystem
from tidegate.runners.direct.runner import DirectRunner
from tidegate.testing import TestPipeline, TestStream, assert_that, equal_to, on_time

EACH = tg.Repeatedly(tg.AfterCount(1))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test on the runners that have feedback: with several numbers of workers, by the name of the runner."""
    if "looping" in metafunc.fixturenames:
        names = [name for name in chosen(metafunc.config) if name != "spark"]
        metafunc.parametrize("looping", running(names), indirect=True, scope="session")


@pytest.fixture(scope="session")
def looping(request: pytest.FixtureRequest) -> str:
    return str(request.param).partition("-")[0]


def countdown(numbers: Any) -> Any:
    less = numbers | "less" >> tg.Map(lambda n: n - 1)
    return tg.Round(less | "more" >> tg.Filter(lambda n: n > 0), out=less)


def test_a_runner_without_feedback_refuses_it_by_name(request: pytest.FixtureRequest) -> None:
    if "spark" not in chosen(request.config):
        pytest.skip("not tested on spark")
    pipeline = TestPipeline("spark")
    _ = pipeline | tg.Create([3]) | "loop" >> tg.Feedback(countdown) | tg.Map(print)
    with pytest.raises(tg.UnsupportedError, match=r"the spark runner does not run tg\.Feedback") as caught:
        pipeline.run()
    assert "in step 'loop'" in str(caught.value)


# -- F1: once each, state for good


class Times(tg.DoFn):
    """How often a key has come, and the values in the order in which they came."""

    seen = tg.BagStateSpec("seen")

    def process(self, element: Any, seen: Any = tg.DoFn.StateParam(seen)) -> Iterator[Any]:
        seen.add(element[1])
        yield element[0], list(seen.read())


def test_what_is_fed_back_comes_round_once_and_state_is_one(looping: str) -> None:
    def body(pairs: Any) -> Any:
        times = pairs | tg.ParDo(Times())
        back = times | tg.MapTuple(lambda key, seen: (key, seen[-1] + 1)) | tg.Filter(lambda pair: pair[1] < 4)
        return tg.Round(back, out=times)

    with TestPipeline(looping) as p:
        pairs = p | tg.Create([("a", 1), ("b", 3)]).with_output_types(tuple[str, int])
        found = pairs | tg.Feedback(body)
        assert_that(found, equal_to([("a", [1]), ("a", [1, 2]), ("a", [1, 2, 3]), ("b", [3])]))
    assert p.result.metrics().counter("fed_back") == 2


def children(element: tuple[int, int, int]) -> list[tuple[int, int, int]]:
    """What an element multiplies to, the same each time: a key, how many generations are left, and a number."""
    key, left, number = element
    drawn = random.Random(f"{key} {left} {number}")
    return [(drawn.randrange(5), left - 1, 3 * number + at) for at in range(drawn.choice((0, 1, 1, 2)) if left else 0)]


def regrouped(group: tuple[int, Any]) -> list[tuple[int, tuple[int, int, int]]]:
    """The pairs of a group."""
    return [(group[0], element) for element in group[1]]


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.integers(0, 99)), max_size=8, unique=True),
    st.integers(1, 5),
    st.booleans(),
)
def test_a_loop_gives_what_a_queue_by_hand_gives(
    start: list[tuple[int, int, int]], block_size: int, grouped: bool
) -> None:
    check_loop(TestPipeline(DirectRunner(block_size=block_size)), start, grouped=grouped)


@pytest.mark.parametrize("grouped", [False, True])
def test_workers_give_what_a_queue_by_hand_gives(looping: str, grouped: bool) -> None:
    chance = random.Random(f"{grouped}")
    start = [(chance.randrange(5), chance.randrange(7), number) for number in range(30)]
    check_loop(TestPipeline(looping), start, grouped=grouped)


def check_loop(pipeline: TestPipeline, start: list[tuple[int, int, int]], *, grouped: bool) -> None:
    """Run a loop that begins with these elements, and check what leaves it."""

    def body(elements: Any) -> Any:
        keyed = elements | "by key" >> tg.Map(lambda e: (e[0], e)).with_output_types(tuple[int, tuple[int, int, int]])
        if grouped:
            windowed = keyed | tg.WindowInto(tg.GlobalWindows(), trigger=EACH, accumulation=tg.DISCARDING)
            groups = windowed | tg.GroupByKey() | tg.FlatMap(regrouped)
            keyed = groups
        counted = keyed | tg.ParDo(Times())
        back = keyed | "children" >> tg.FlatMap(lambda pair: children(pair[1]))
        return tg.Round(
            back,
            out={"values": keyed | tg.Values(), "counts": counted | tg.MapTuple(lambda key, seen: (key, len(seen)))},
        )

    todo, handled = list(start), []
    while todo:
        element = todo.pop()
        handled.append(element)
        todo += children(element)
    per_key = Counter(key for key, _, _ in handled)
    elements = pipeline | tg.Create(start).with_output_types(tuple[int, int, int])
    if grouped:
        elements = elements | "triggered" >> tg.WindowInto(tg.GlobalWindows(), trigger=EACH, accumulation=tg.DISCARDING)
    found = elements | tg.Feedback(body)
    assert_that(found.values, equal_to(handled))
    assert_that(found.counts, equal_to([(key, n) for key in per_key for n in range(1, per_key[key] + 1)]))
    pipeline.run()


def test_the_rules_of_unbounded_input_hold_inside_and_end_with_the_loop(looping: str) -> None:
    with TestPipeline(looping) as p:
        numbers = p | tg.Create([3, 2])

        def grouping(inside: Any) -> Any:
            return tg.Round(inside, out=inside | tg.CombineGlobally(sum).without_defaults())

        with pytest.raises(tg.BuildError, match=r"unbounded data in the global window with .* would never emit"):
            _ = numbers | "refused" >> tg.Feedback(grouping)
        left = numbers | tg.Feedback(countdown)
        assert left.is_bounded
        assert_that(left | tg.CombineGlobally(sum), equal_to([2 + 1 + 0 + 1 + 0]))


def test_constants_are_read_as_side_inputs_and_as_streams(looping: str) -> None:
    with TestPipeline(looping) as p:
        least = p | "least" >> tg.Create([2])
        more = p | "more numbers" >> tg.Create([10])

        def body(numbers: Any) -> Any:
            less = numbers | tg.Map(lambda n, by: n - by, tg.AsSingleton(least))
            both = (less, more) | tg.Flatten()
            return tg.Round(less | tg.Filter(lambda n: n > 0), out=both)

        assert_that(p | "start" >> tg.Create([5, 4]) | tg.Feedback(body), equal_to([3, 1, -1, 2, 0, 10]))


def test_a_loop_ends_after_all_that_enters_its_body(looping: str) -> None:
    """A stream that a Flatten adds in the body goes round to its end, though the loop's input has ended before."""
    with TestPipeline(looping) as p:
        start = p | "start" >> tg.Create([1])
        more = p | "more" >> tg.Create([10])

        def body(numbers: Any) -> Any:
            less = (numbers, more) | tg.Flatten() | tg.Map(lambda n: n - 1)
            return tg.Round(less | tg.Filter(lambda n: n > 0), out=less)

        assert_that(start | tg.Feedback(body), equal_to([0, *range(10)]))


def test_one_loop_feeds_another(looping: str) -> None:
    with TestPipeline(looping) as p:
        first = p | tg.Create([3]) | "first" >> tg.Feedback(countdown)
        assert_that(first | "second" >> tg.Feedback(countdown), equal_to([1, 0, 0, -1]))


# -- F2, F3: timestamps, windows and the watermark


def test_timestamps_and_windows_go_round(looping: str) -> None:
    with TestPipeline(looping) as p:
        stamped = p | tg.Create([tg.TimestampedValue(2, 12), tg.TimestampedValue(1, 3)])
        windowed = stamped | tg.WindowInto(tg.FixedWindows(10))
        found = windowed | tg.Feedback(countdown)
        sums = found | tg.Map(lambda n: ("k", n)) | tg.GroupByKey() | tg.MapTuple(lambda _, group: sorted(group))
        assert_that(sums, equal_to([on_time([0], (0, 10)), on_time([0, 1], (10, 20))]), panes=True)


def test_an_element_made_earlier_than_what_it_is_made_of_is_refused(looping: str) -> None:
    def body(numbers: Any) -> Any:
        back = numbers | tg.Filter(lambda n: n < 1) | tg.Map(lambda n: tg.TimestampedValue(n + 1, 3))
        return tg.Round(back, out=numbers)

    p = TestPipeline(looping)
    events = TestStream().advance_watermark_to(10).add_elements([tg.TimestampedValue(0, 12)])
    _ = p | events | "loop" >> tg.Feedback(body) | tg.Map(print)
    with pytest.raises(tg.RunError, match=r"an element with the timestamp .* was fed back, which is earlier") as caught:
        p.run()
    assert "in step 'loop'" in str(caught.value)


class Later(tg.DoFn):
    """Emits each element a minute after it came."""

    WAIT = tg.ProcessingTimer("wait")
    waiting = tg.BagStateSpec("waiting")

    def process(
        self,
        element: Any,
        waiting: Any = tg.DoFn.StateParam(waiting),
        wait: Any = tg.DoFn.TimerParam(WAIT),
        now: Any = tg.DoFn.ProcessingTimeParam,
    ) -> None:
        waiting.add(element[1])
        wait.set(now + 60)

    @tg.on_timer(WAIT)
    def on_wait(self, key: Any = tg.DoFn.KeyParam, waiting: Any = tg.DoFn.StateParam(waiting)) -> Iterator[Any]:
        for value in waiting.read():
            yield key, value
        waiting.clear()


def retry(pairs: Any) -> Any:
    """Pairs come round a minute later while their value is above 0."""
    failed = pairs | "failed" >> tg.Filter(lambda pair: pair[1] > 0)
    later = failed | tg.ParDo(Later()) | tg.MapTuple(lambda key, left: (key, left - 1))
    done = pairs | "done" >> tg.Filter(lambda pair: pair[1] == 0)
    return tg.Round(later, out=done)


def test_windows_behind_a_loop_wait_for_what_is_under_way(looping: str) -> None:
    """The watermark passes the end of the window of "slow" while it waits in the loop, and not behind the loop."""
    events = (
        TestStream()
        .add_elements([tg.TimestampedValue(("slow", 2), 5), tg.TimestampedValue(("fast", 0), 6)])
        .advance_watermark_to(100)
        .add_elements([tg.TimestampedValue(("next", 0), 105)])
        .advance_watermark_to(200)
        .advance_processing_time(60)
        .add_elements([tg.TimestampedValue(("last", 0), 205)])
        .advance_processing_time(60)
    )
    with TestPipeline(looping) as p:
        pairs = p | events | tg.WindowInto(tg.FixedWindows(10))
        keys = pairs | tg.Feedback(retry) | tg.MapTuple(lambda key, _: (0, key))
        groups = keys | tg.GroupByKey() | tg.MapTuple(lambda _, group: sorted(group))
        assert_that(
            groups,
            equal_to(
                [on_time(["fast", "slow"], (0, 10)), on_time(["next"], (100, 110)), on_time(["last"], (200, 210))]
            ),
            panes=True,
        )
    assert p.result.metrics().counter("dropped_late") == 0


def test_what_the_watermark_causes_is_late_when_it_is_fed_back_and_counted(looping: str) -> None:
    def body(numbers: Any) -> Any:
        sums = numbers | tg.CombineGlobally(sum).without_defaults()
        return tg.Round(sums | tg.Filter(lambda n: n < 10), out=sums)

    p = TestPipeline(looping)
    stamped = p | tg.Create([tg.TimestampedValue(3, 1), tg.TimestampedValue(4, 2)])
    windowed = stamped | tg.WindowInto(tg.FixedWindows(10))
    with pytest.warns(tg.TidegateWarning, match="emits when the watermark has passed a window, and what it emits is"):
        found = windowed | tg.Feedback(body)
    assert_that(found, equal_to([7]))
    metrics = p.run().metrics()
    assert (metrics.counter("fed_back"), metrics.counter("fed_back_late")) == (1, 1)


def test_what_is_made_of_an_element_from_before_is_late_when_it_is_fed_back_and_counted(looping: str) -> None:
    """State keeps an element behind which the watermark is when another one calls it up."""

    def body(pairs: Any) -> Any:
        times = pairs | tg.ParDo(Times())
        second = times | tg.Filter(lambda pair: len(pair[1]) == 2)
        return tg.Round(second | tg.MapTuple(lambda key, seen: tg.TimestampedValue((key, seen[0]), 1)), out=times)

    events = TestStream().add_elements([tg.TimestampedValue(("a", 0), 1)]).advance_watermark_to(10)
    with TestPipeline(looping) as p:
        pairs = p | events.add_elements([tg.TimestampedValue(("a", 1), 12)])
        found = pairs | tg.Map(lambda pair: pair).with_output_types(tuple[str, int]) | tg.Feedback(body)
        assert_that(found, equal_to([("a", [0]), ("a", [0, 1]), ("a", [0, 1, 0])]))
    assert p.result.metrics().counter("fed_back_late") == 1


# -- F4: the end


def test_a_loop_over_bounded_input_ends_when_nothing_is_under_way(looping: str) -> None:
    """The input has ended long before the timers in the loop fire; the sum behind it waits for them. No test waits: the
    clock of a test stream is set forward."""
    events = TestStream().add_elements([("a", 3), ("b", 0)])
    with TestPipeline(looping) as p:
        done = p | events | tg.Feedback(retry)
        counts = done | tg.WindowInto(tg.FixedWindows(10)) | tg.combiners.Count.Globally().without_defaults()
        assert_that(counts, equal_to([2]))
    assert p.result.metrics().counter("fed_back") == 3


def test_a_run_of_a_loop_without_end_can_be_limited(looping: str) -> None:
    p = TestPipeline(looping, {"run_for": "50ms"})
    _ = p | tg.Create([1]) | tg.Feedback(lambda numbers: tg.Round(numbers | tg.Map(abs), out=numbers)) | tg.Map(abs)
    p.run().wait_until_finish()
    if looping == "direct":  # the processes of others may need longer to begin
        assert p.result.metrics().counter("fed_back") > 1


def test_a_loop_without_end_that_makes_calls_can_be_limited(looping: str) -> None:
    begun = time.monotonic()

    def call(n: int) -> int:
        if time.monotonic() > begun + 60:
            raise AssertionError("the loop goes on")
        return n

    p = TestPipeline(looping, {"run_for": "50ms"})
    calling = p | tg.Create([1]) | tg.Feedback(lambda n: tg.Round(n | "call" >> tg.AsyncMap(call), out=n))
    _ = calling | tg.Map(abs)
    p.run().wait_until_finish()
    if looping == "direct":
        assert p.result.metrics().counter("fed_back") > 0


# -- F5: limits


def test_what_has_gone_round_so_often_leaves_by_another_output(looping: str) -> None:
    def again(numbers: Any) -> Any:
        return tg.Round(numbers | tg.Map(lambda n: n + 1), out=numbers)

    with TestPipeline(looping) as p:
        seen, lost = p | tg.Create([0, 10]) | tg.Feedback(again, max_hops=2)
        assert_that(seen, equal_to([0, 1, 2, 10, 11, 12]))
        assert_that(lost, equal_to([3, 13]))
    assert p.result.metrics().counter("too_far") == 2


def test_hops_are_counted_through_calls_beside_the_stream(looping: str, tmp_path: Path) -> None:
    """The calls of the first two numbers return when that of the last one has begun."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def last_returns_first(n: int) -> int:
        if n == 21:
            os.open(gate, os.O_RDWR)  # this process keeps it open
        elif n % 2 == 0:
            os.close(os.open(gate, os.O_RDONLY))  # when it has been opened for writing
        return n + 1

    def again(numbers: Any) -> Any:
        return tg.Round(numbers | tg.AsyncMap(last_returns_first, ordered=False), out=numbers)

    with TestPipeline(looping) as p:
        result = p | tg.Create([0, 10, 21]) | tg.Feedback(again, max_hops=1)
        assert_that(result.main, equal_to([0, 1, 10, 11, 21, 22]))
        assert_that(result.too_far, equal_to([2, 12, 23]))


def test_what_is_fed_back_spills(looping: str) -> None:
    def double(pairs: Any) -> Any:
        twice = pairs | tg.FlatMap(lambda pair: [(pair[0] * 2 + at, "x" * 1000) for at in (0, 1)])
        back = twice | tg.Filter(lambda pair: pair[0] < 4096)
        return tg.Round(back, out=pairs)

    with TestPipeline(looping, {"memory_budget": "100k"}) as p:
        pairs = p | tg.Create([(1, "")]).with_output_types(tuple[int, str])
        assert_that(pairs | tg.Feedback(double) | tg.Keys() | tg.CombineGlobally(sum), equal_to([sum(range(1, 4096))]))


def test_a_loop_that_multiplies_without_end_fails_and_is_named(looping: str, tmp_path: Path) -> None:
    """On the direct runner a limit on the size of files stands for a disk that is full."""

    def double(texts: Any) -> Any:
        return tg.Round(texts | tg.FlatMap(lambda text: [text + "0", text + "1"]), out=texts | tg.Filter(bool))

    with ExitStack() as limited:
        options = {"memory_budget": "100k"}
        if looping == "direct":
            limited.enter_context(file_size_limit(1_000_000))
        else:
            small = limited.enter_context(mount_small_filesystem(tmp_path / "small", 4))
            options["temp_dir"] = str(small.path)
        p = TestPipeline(looping, options)
        _ = p | tg.Create(["x" * 1000]) | "loop" >> tg.Feedback(double) | tg.Map(len)
        with pytest.raises(tg.RunError, match=r"elements that were fed back and wait for their turn") as caught:
            p.run()
    assert "in step 'loop'" in str(caught.value)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Let this process write no file larger than `size` bytes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
