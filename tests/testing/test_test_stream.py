"""Building a TestStream; the tests of the contract show its behaviour when it runs."""

from __future__ import annotations

from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk.portable import model as portable
from tidegate.testing import TestStream


def events(stream: TestStream) -> tuple[Any, ...]:
    pipeline = tg.Pipeline()
    _ = pipeline | stream
    [node] = pipeline.portable().nodes
    assert isinstance(node, portable.TestStream)
    return node.events


def test_a_script_becomes_events_of_the_portable_pipeline() -> None:
    elements, watermark, clock, idle, infinity = events(
        TestStream()
        .add_elements(["a", tg.TimestampedValue("b", 2)])
        .advance_watermark_to(5)
        .advance_processing_time(3)
        .idle()
        .advance_watermark_to_infinity()
    )
    assert elements.values.load() == ["a", "b"]
    assert elements.timestamps == (tg.MIN_TIMESTAMP.micros, 2_000_000)
    assert watermark == portable.AdvanceWatermark(5_000_000)
    assert clock == portable.AdvanceClock(3_000_000)
    assert idle == portable.Idle()
    assert infinity == portable.AdvanceWatermark(tg.MAX_TIMESTAMP.micros)


def test_a_stream_can_be_built_by_statements() -> None:
    stream = TestStream()
    stream.add_elements([1])
    stream.advance_watermark_to(5)
    assert len(events(stream)) == 2


def test_a_label_makes_an_independent_copy() -> None:
    stream = TestStream().add_elements([1])
    labelled = "label" >> stream
    stream.add_elements([2])
    assert len(events(labelled)) == 1


def test_adding_no_elements_is_no_event() -> None:
    assert events(TestStream().add_elements([])) == ()


def test_the_output_of_a_stream_is_unbounded_and_has_the_type_of_its_elements() -> None:
    pcoll = tg.Pipeline() | TestStream().add_elements([("a", 1), ("b", 2)])
    assert not pcoll.is_bounded
    assert pcoll.element_type == tuple[str, int]
    assert (tg.Pipeline() | TestStream()).element_type is Any
    assert (tg.Pipeline() | TestStream().with_output_types(int)).element_type is int


def test_the_element_type_is_checked_against_the_next_step() -> None:
    def shout(text: str) -> str:
        return text.upper()

    with pytest.raises(tg.TypeCheckError, match="int"):
        _ = tg.Pipeline() | TestStream().add_elements([1]) | tg.Map(shout)


def test_tags_create_further_outputs() -> None:
    out = tg.Pipeline() | TestStream().add_elements([1]).add_elements(["a"], tag="words")
    assert (out.main.element_type, out.words.element_type) == (int, str)
    assert [pcoll.tag for pcoll in out] == ["main", "words"]


def test_outputs_can_be_declared_and_the_main_one_named() -> None:
    out = tg.Pipeline() | TestStream().with_outputs("words", main="numbers").add_elements([1]).idle("words")
    assert [pcoll.tag for pcoll in out] == ["numbers", "words"]
    assert out.numbers.element_type is int
    assert out["numbers"] is out[None]


def test_the_portable_pipeline_can_be_pickled() -> None:
    import pickle

    pipeline = tg.Pipeline()
    _ = pipeline | TestStream().add_elements([1]).advance_watermark_to(3)
    sealed = pipeline.sealed(values=True)
    [node] = pickle.loads(pickle.dumps(sealed)).nodes
    assert node.events[0].values.load() == [1]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: TestStream().add_elements("abc"), "a list of elements"),
        (lambda: TestStream().add_elements(5), "a list of elements"),
        (lambda: TestStream().add_elements([tg.WindowedValue(1, 0, ())]), "plain elements"),
        (lambda: TestStream().add_elements([tg.TaggedOutput("t", 1)]), "outputs by tag="),
        (lambda: TestStream().add_elements([tg.TimestampedValue(1, tg.GlobalWindow().max_timestamp())]), "end of time"),
        (lambda: TestStream().add_elements([1], timestamp="now"), "timestamp"),
        (lambda: TestStream().advance_watermark_to("now"), "watermark"),
        (lambda: TestStream().advance_processing_time(0), "duration"),
        (lambda: TestStream().advance_processing_time(-1), "duration"),
        (
            lambda: TestStream().advance_watermark_to(20).add_elements([1]).advance_watermark_to(10),
            "would go from 1970-01-01T00:00:20Z to 1970-01-01T00:00:10Z. To test late elements, add elements",
        ),
        (
            lambda: TestStream().advance_watermark_to(9, tag="b").advance_watermark_to(8, tag="b"),
            r"1970-01-01T00:00:08Z \(output 'b'\)",
        ),
        (lambda: TestStream().advance_watermark_to_infinity().advance_watermark_to(8), "a watermark never goes back"),
        (lambda: TestStream().advance_watermark_to_infinity().add_elements([1]), "so no element can follow: add these"),
        (lambda: TestStream().advance_watermark_to(tg.MAX_TIMESTAMP).add_elements([1]), "so no element can follow"),
        (lambda: TestStream().with_outputs("a", "a"), "distinct"),
        (lambda: TestStream().with_outputs("main"), "distinct"),
        (lambda: TestStream().add_elements([1]).with_outputs(main="numbers"), "before the first event"),
        (lambda: tg.Pipeline() | TestStream().with_outputs("a").add_elements([1], tag="b"), "'b'"),
        (lambda: tg.Pipeline() | tg.Create([1]) | TestStream(), "begins a pipeline"),
    ],
)
def test_an_invalid_script_is_refused_when_it_is_built(make: Any, problem: str) -> None:
    with pytest.raises(tg.BuildError, match=problem):
        make()


def test_outputs_have_watermarks_of_their_own() -> None:
    stream = TestStream().advance_watermark_to(20).advance_watermark_to(10, tag="other").advance_watermark_to(20)
    stream.advance_watermark_to_infinity(tag="other").add_elements([1]).advance_watermark_to_infinity()
    stream.advance_watermark_to_infinity().advance_processing_time(1).idle()
    assert len(events(stream)) == 9


def test_a_stream_prints_as_the_calls_that_make_it() -> None:
    stream = (
        TestStream()
        .add_elements(["a", tg.TimestampedValue("b", 2.5)])
        .add_elements([1], tag="other")
        .advance_watermark_to(tg.Timestamp(micros=1))
        .advance_watermark_to(7, tag="other")
        .advance_watermark_to_infinity(tag="other")
        .advance_processing_time(0.000007)
        .idle()
        .idle("other")
    )
    text = repr(stream)
    rebuilt = eval(text, {"TestStream": TestStream, "TimestampedValue": tg.TimestampedValue, **vars(tg)})
    assert rebuilt.events == stream.events
    assert text.startswith("TestStream().add_elements(['a', TimestampedValue('b', 2.5)])")
