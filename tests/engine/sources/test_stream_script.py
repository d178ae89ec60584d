"""The events of a test stream, as every runner replays them."""

from __future__ import annotations

import tidegate as tg
from tidegate.runners.engine.sources.test_stream import StreamScript
from tidegate.runners.engine.time.watermarks import CollectionStatus
from tidegate.sdk.portable import model as portable
from tidegate.testing import TestStream


def script_of(stream: TestStream) -> StreamScript:
    pipeline = tg.Pipeline()
    _ = pipeline | stream
    (node,) = pipeline.portable().nodes
    assert isinstance(node, portable.TestStream)
    return StreamScript(node)


def test_each_event_has_the_new_status_and_the_last_one_ends_the_outputs() -> None:
    stream = TestStream().advance_watermark_to(5).add_elements(["a"]).idle().add_elements(["b"])
    script = script_of(stream.advance_watermark_to_infinity())
    events = []
    while not script.ended:
        event = script.next()
        events.append((None if event.block is None else list(event.block.values), event.status))
    statuses = [status for _, status in events]
    assert statuses[0] is not None
    assert statuses[0] == statuses[1] == statuses[3]
    assert [values for values, _ in events] == [None, ["a"], None, ["b"], None, None]
    assert statuses[2] == CollectionStatus(statuses[0].watermark, idle=True)
    assert statuses[-1] == CollectionStatus(ended=True)


def test_a_stopped_script_only_ends_its_outputs() -> None:
    script = script_of(TestStream().add_elements(["a"]).advance_watermark_to_infinity())
    script.stop()
    assert script.next().status == CollectionStatus(ended=True)
    assert script.ended
