"""A live source that gives no watermark is named when the run ends, if windows or timers behind it waited for one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tidegate as tg


class Feed(tg.io.Source[int]):
    """Twenty elements, then nothing, for ever; with a watermark if it `marks`."""

    bounded = False

    def __init__(self, marks: bool) -> None:
        self.marks = marks

    def splits(self, desired: int) -> list[tg.io.Split]:
        return [tg.io.Split("all")]

    def reader(self, split: tg.io.Split, position: Any = None) -> tg.io.Reader[int]:
        return Twenty(self.marks, position or 0)


class Twenty(tg.io.Reader[int]):
    def __init__(self, marks: bool, given: int) -> None:
        self.marks = marks
        self.given = given

    def read(self, limit: int) -> tg.io.Batch:
        count = min(limit, 20 - self.given)
        self.given += count
        block = tg.io.Block.of(list(range(count)))
        return tg.io.Batch(block, watermark=0 if self.marks else None, wait=0.01)

    def position(self) -> Any:
        return self.given


FIXED = tg.WindowInto(tg.FixedWindows(5))
GLOBAL = tg.WindowInto(tg.GlobalWindows(), tg.Repeatedly(tg.AfterCount(2)), accumulation=tg.DISCARDING)
SUM = tg.CombinePerKey(sum)
LATER = tg.EventTimer("later")


class Late(tg.DoFn):
    """Emits what it has seen of a key by an event-time timer."""

    def process(self, element: tuple[str, int], at: Any = tg.DoFn.TimerParam(LATER)) -> None:
        at.set(100)

    @tg.on_timer(LATER)
    def later(self, key: Any = tg.DoFn.KeyParam) -> Any:
        yield key


def said(
    runner: str,
    caplog: pytest.LogCaptureFixture,
    *,
    marks: bool = False,
    then: tuple[Any, ...] = (FIXED, SUM),
    **read: Any,
) -> str:
    p = tg.Pipeline(runner=runner, options=["--run_for", "1s"])
    stamped = p | "feed" >> tg.Read(Feed(marks), **read) | tg.Map(lambda n: tg.TimestampedValue(("k", n), n))
    for step in then:
        stamped = stamped | step
    _ = stamped | tg.Map(str)
    p.run().wait_until_finish()
    return caplog.text


by_runner = pytest.mark.parametrize("runner", ["direct", "streaming"])


@by_runner
def test_it_is_named_with_what_to_do(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    found = said(runner, caplog)
    assert f"step 'feed' ({__file__}:" in found
    assert "emitted 20 elements but no watermark, so no window downstream could end" in found
    assert "tg.Read(source, timestamp=…)" in found


@by_runner
def test_it_is_named_where_timers_wait_for_it(runner: str, caplog: pytest.LogCaptureFixture) -> None:
    assert "emitted 20 elements but no watermark" in said(runner, caplog, then=(tg.ParDo(Late()),))


def test_one_that_goes_on_from_a_checkpoint_is_named_too(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    p = tg.Pipeline(runner="streaming", options=["--run_for", "1s", "--checkpoint_dir", str(tmp_path)])
    stamped = p | "feed" >> tg.Read(Feed(marks=False)) | "key" >> tg.Map(lambda n: ("k", n))
    _ = stamped | "in windows" >> FIXED | "sum" >> tg.CombinePerKey(sum) | "write" >> tg.Map(str)
    p.run().wait_until_finish()
    assert "no watermark" in caplog.text


@by_runner
@pytest.mark.parametrize(
    "more",
    [
        {"marks": True},
        {"timestamp": lambda n: n},
        {"ingestion_time": True},
        {"then": (GLOBAL, SUM)},
        {"then": (FIXED,)},
    ],
    ids=["marked", "stamped", "on entry", "in the global window", "not grouped"],
)
def test_others_are_not(runner: str, more: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert "no watermark" not in said(runner, caplog, **more)
