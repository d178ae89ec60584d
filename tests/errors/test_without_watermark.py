"""A live source that gives no watermark, with windows behind it, is named when the run ends: nothing came of it."""

from __future__ import annotations

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


def said(caplog: pytest.LogCaptureFixture, *, marks: bool = False, windows: Any = None, **read: Any) -> str:
    p = tg.Pipeline(options=["--run_for", "1s"])
    stamped = p | "feed" >> tg.Read(Feed(marks), **read) | tg.Map(lambda n: tg.TimestampedValue(("k", n), n))
    if windows is None:
        _ = stamped | tg.WindowInto(tg.FixedWindows(5)) | tg.CombinePerKey(sum) | tg.Map(str)
    else:
        _ = stamped | windows | tg.CombinePerKey(sum) | tg.Map(str)
    p.run().wait_until_finish()
    return caplog.text


def test_it_is_named_with_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    found = said(caplog)
    assert "step 'feed' gave 20 elements and no watermark, so windows behind it never ended" in found
    assert "tg.Read(source, timestamp=…)" in found


@pytest.mark.parametrize(
    "more",
    [
        {"marks": True},
        {"timestamp": lambda n: n},
        {"ingestion_time": True},
        {"windows": tg.WindowInto(tg.GlobalWindows(), tg.Repeatedly(tg.AfterCount(2)), accumulation=tg.DISCARDING)},
    ],
    ids=["marked", "stamped", "on entry", "not in windows"],
)
def test_others_are_not(more: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert "no watermark" not in said(caplog, **more)
