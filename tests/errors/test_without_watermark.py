"""A warning at the end of a run names an unbounded source without watermarks if windows or timers waited for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.streaming.result import StreamingResult
from tidegate.sdk.metrics import ENGINE


class Feed(tg.io.Source[int]):
    """Twenty elements, and nothing after them; with a watermark if `has_watermark`."""

    bounded = False

    def __init__(self, has_watermark: bool) -> None:
        self.has_watermark = has_watermark

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split("all")]

    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return FeedReader(self.has_watermark, position or 0)


class FeedReader(tg.io.Reader[int]):
    def __init__(self, has_watermark: bool, read_count: int) -> None:
        self.has_watermark = has_watermark
        self.read_count = read_count

    def read(self, limit: int) -> tg.io.Batch:
        count = min(limit, 20 - self.read_count)
        self.read_count += count
        block = tg.io.Block.of(list(range(count)))
        return tg.io.Batch(block, watermark=0 if self.has_watermark else None, wait=0.01)

    def position(self) -> Any:
        return self.read_count


FIXED = tg.WindowInto(tg.FixedWindows(5))
GLOBAL = tg.WindowInto(tg.GlobalWindows(), tg.Repeatedly(tg.AfterCount(2)), accumulation=tg.DISCARDING)
SUM = tg.CombinePerKey(sum)
LATER = tg.EventTimer("later")


class Late(tg.DoFn):
    """Emits each key when an event-time timer fires."""

    def process(self, element: tuple[str, int], at: Any = tg.DoFn.TimerParam(LATER)) -> None:
        at.set(100)

    @tg.on_timer(LATER)
    def later(self, key: Any = tg.DoFn.KeyParam) -> Any:
        yield key


def log_of_run(
    runner: str,
    caplog: pytest.LogCaptureFixture,
    *,
    has_watermark: bool = False,
    steps: tuple[Any, ...] = (FIXED, SUM),
    **read: Any,
) -> str:
    p = tg.Pipeline(runner=runner, options=["--run_for", "1s"] if runner == "direct" else [])
    stamped = p | "feed" >> tg.Read(Feed(has_watermark), **read) | tg.Map(lambda n: tg.TimestampedValue(("k", n), n))
    for step in steps:
        stamped = stamped | step
    _ = stamped | tg.Map(str)
    end(p.run())
    return caplog.text


def end(result: tg.PipelineResult) -> None:
    """Stop a stream once its twenty elements have been read; the direct runner ends by itself."""
    if isinstance(result, StreamingResult):
        while result.metrics().counter("elements_out", step="feed", namespace=ENGINE) < 20:
            assert result.wait_until_finish(timeout=0.05) is tg.PipelineState.RUNNING
        result.stop()
    result.wait_until_finish()


by_runner = pytest.mark.parametrize("runner", ["direct", "streaming"])


@by_runner
def test_the_warning_names_the_source_and_what_to_do(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    found = log_of_run(runner, caplog)
    assert f"step 'feed' ({__file__}:" in found
    assert "emitted 20 elements but no watermark, so no window downstream could end" in found
    assert "tg.Read(source, timestamp=…)" in found


@by_runner
def test_timers_that_wait_for_the_watermark_cause_the_warning(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    assert "emitted 20 elements but no watermark" in log_of_run(runner, caplog, steps=(tg.ParDo(Late()),))


def in_windows(x: Any) -> Any:
    return x | FIXED | SUM | "global" >> tg.WindowInto(tg.GlobalWindows())


def fed_back(x: Any) -> Any:
    return tg.Round(x | "none" >> tg.Filter(lambda pair: False), out=x | FIXED | SUM)


@pytest.mark.parametrize("loop", [tg.Iterate(in_windows, rounds=2), tg.Feedback(fed_back)], ids=["rounds", "feedback"])
def test_a_grouping_in_a_loop_that_waits_for_the_watermark_causes_the_warning(
    loop: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert "emitted 20 elements but no watermark" in log_of_run("direct", caplog, steps=("loop" >> loop,))


def test_a_run_with_checkpoints_causes_the_warning(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    p = tg.Pipeline(runner="streaming", options=["--checkpoint_dir", str(tmp_path)])
    stamped = p | "feed" >> tg.Read(Feed(has_watermark=False)) | "key" >> tg.Map(lambda n: ("k", n))
    _ = stamped | "in windows" >> FIXED | "sum" >> tg.CombinePerKey(sum) | "write" >> tg.Map(str)
    end(p.run())
    assert "no watermark" in caplog.text


@by_runner
@pytest.mark.parametrize(
    "options",
    [
        {"has_watermark": True},
        {"timestamp": lambda n: n},
        {"ingestion_time": True},
        {"steps": (GLOBAL, SUM)},
        {"steps": (FIXED,)},
    ],
    ids=["marked", "stamped", "on entry", "in the global window", "not grouped"],
)
def test_sources_with_watermarks_and_pipelines_that_need_none_cause_no_warning(
    runner: str, options: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert "no watermark" not in log_of_run(runner, caplog, **options)
