"""TestStream: a stream whose elements, watermarks and processing time a test scripts (SEMANTICS, TestStream)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

from tidegate.sdk.data.values import SPECIAL, TimestampedValue
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.portable import model as portable
from tidegate.sdk.portable.values import Values
from tidegate.sdk.primitives import MultiOutput
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, Duration, DurationLike, TimestampLike, format_micros
from tidegate.sdk.typehints import hints
from tidegate.sdk.user_code.validation import any_timestamp, positive_duration
from tidegate.testing.expected_panes import time_text


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements for one output, with their timestamps (µs)."""

    values: tuple[Any, ...]
    timestamps: tuple[int, ...]
    tag: str = portable.MAIN


Event: TypeAlias = Elements | portable.AdvanceWatermark | portable.AdvanceClock | portable.Idle


class TestStream(PTransform[Pipeline, Any]):
    """An unbounded collection scripted event by event (the names are Beam's):

        pipeline | TestStream().add_elements([tg.TimestampedValue("a", 3)]).advance_watermark_to(10)

    The runner finishes all processing that an event causes before it sends the next one. The end of the script is the
    end of input. Elements and watermarks may go to several outputs, by `tag`, each with its own watermark; the result
    is then a `MultiOutput`, as with `ParDo.with_outputs`.
    """

    __test__ = False  # pytest: not a test class

    def __init__(self, *, name: str | None = None) -> None:
        self.label = name
        self.events: tuple[Event, ...] = ()
        self.main_tag = portable.MAIN
        self._tags: tuple[str, ...] | None = None

    def add_elements(
        self, elements: Iterable[Any], *, timestamp: TimestampLike | None = None, tag: str | None = None
    ) -> Self:
        """Add elements that arrive together. Those that are not `TimestampedValue`s get `timestamp`, if it is given."""
        if isinstance(elements, (str, bytes)) or not isinstance(elements, Iterable):
            raise BuildError(f"add_elements takes a list of elements, not {shorten(elements)}")
        micros = MIN_MICROS if timestamp is None else any_timestamp("add_elements", "timestamp", timestamp).micros
        values, timestamps = [], []
        for element in elements:
            if type(element) is TimestampedValue:
                values.append(element.value)
                timestamps.append(_settable(element.micros, element))
            elif type(element) in SPECIAL:
                raise BuildError(
                    f"add_elements takes plain elements and TimestampedValues, not {shorten(element)}: windows are "
                    "given by tg.WindowInto, outputs by tag="
                )
            else:
                values.append(element)
                timestamps.append(_settable(micros, element))
        return self._add(Elements(tuple(values), tuple(timestamps), tag or self.main_tag)) if values else self

    def advance_watermark_to(self, watermark: TimestampLike, *, tag: str | None = None) -> Self:
        """Advance the watermark: no earlier element is expected. Raises BuildError if the watermark would go back."""
        micros = any_timestamp("advance_watermark_to", "watermark", watermark).micros
        return self._add(portable.AdvanceWatermark(micros, tag or self.main_tag))

    def advance_watermark_to_infinity(self, *, tag: str | None = None) -> Self:
        """Advance the watermark to the end of time: no further element is expected."""
        return self._add(portable.AdvanceWatermark(MAX_MICROS, tag or self.main_tag))

    def advance_processing_time(self, duration: DurationLike) -> Self:
        """Advance processing time by `duration`."""
        return self._add(
            portable.AdvanceClock(positive_duration("advance_processing_time", "duration", duration).micros)
        )

    def idle(self, tag: str | None = None) -> Self:
        """Mark an output as idle: until its next event it doesn't hold back the watermark of later steps."""
        return self._add(portable.Idle(tag or self.main_tag))

    def with_outputs(self, *tags: str, main: str = portable.MAIN) -> Self:
        """Declare the outputs, including those without events; `main` is the output of events without a tag."""
        if len({main, *tags}) != len(tags) + 1 or not all(isinstance(tag, str) and tag for tag in (main, *tags)):
            raise BuildError(f"output tags are distinct non-empty strings, not {(main, *tags)!r}")
        if main != self.main_tag and self.events:
            raise BuildError("TestStream: name the main output before the first event")
        self._tags, self.main_tag = tags, main
        return self

    def expand(self, input: Pipeline) -> Any:
        if not isinstance(input, Pipeline):
            raise BuildError("TestStream begins a pipeline: write `pipeline | TestStream()...`")
        tags = self._outputs()
        outputs = [input.collection(element_type=self._type(self.main_tag), bounded=False)]
        outputs[0].tag = self.main_tag
        outputs += [input.collection(tag, element_type=self._type(tag), bounded=False) for tag in tags[1:]]
        input.add(portable.TestStream, outputs, events=tuple(map(_portable, self.events)))
        if tags == (self.main_tag,) and self._tags is None:
            return outputs[0]
        return MultiOutput({out.tag: out for out in outputs})

    def _add(self, event: Event) -> Self:
        match event:
            case portable.AdvanceWatermark(to=to, tag=tag) if to < (before := self._watermark(tag)):
                raise BuildError(
                    f"a watermark never goes back: this one would go from {format_micros(before)} to "
                    f"{format_micros(to)}{_of_output(tag)}. To test late elements, add elements with timestamps "
                    "behind the watermark"
                )
            case Elements(tag=tag) if self._watermark(tag) == MAX_MICROS:
                raise BuildError(
                    f"the watermark is at the end of time{_of_output(tag)}, so no element can follow: add these "
                    "before advance_watermark_to_infinity(), which the end of the script implies"
                )
        self.events += (event,)
        return self

    def _watermark(self, tag: str) -> int:
        """The watermark of an output (µs)."""
        advances = (event for event in self.events if isinstance(event, portable.AdvanceWatermark))
        return max((event.to for event in advances if event.tag == tag), default=MIN_MICROS)

    def _outputs(self) -> tuple[str, ...]:
        used = dict.fromkeys(event.tag for event in self.events if not isinstance(event, portable.AdvanceClock))
        if self._tags is None:
            return tuple(dict.fromkeys([self.main_tag, *used]))
        declared = (self.main_tag, *self._tags)
        for tag in used:
            if tag not in declared:
                raise BuildError(f"an event is for the output {tag!r}, which .with_outputs does not name: {declared!r}")
        return declared

    def _type(self, tag: str) -> Any:
        if self.output_type is not None:
            return self.output_type
        kinds = [
            element_type(value)
            for event in self.events
            if isinstance(event, Elements) and event.tag == tag
            for value in event.values[:100]
        ]
        return hints.union(kinds) if kinds else Any

    def __repr__(self) -> str:
        return "TestStream()" + "".join(f".{_call(event, self.main_tag)}" for event in self.events)


def _of_output(tag: str) -> str:
    return "" if tag == portable.MAIN else f" (output {tag!r})"


def element_type(value: Any) -> Any:
    """The type of an element, including the types of the items of a short tuple."""
    if type(value) is tuple and 0 < len(value) <= 8:
        return tuple[tuple(element_type(item) for item in value)]  # type: ignore[misc]
    return type(value)


def _settable(micros: int, element: Any) -> int:
    if micros >= MAX_MICROS - 1:
        raise BuildError(f"{shorten(element)}: an element can't be stamped at or after the end of time")
    return micros


def _portable(event: Event) -> portable.TestEvent:
    match event:
        case Elements(values=values, timestamps=timestamps, tag=tag):
            return portable.AddElements(Values(list(values), len(values)), timestamps, tag)
        case _:
            return event


def _call(event: Event, main: str) -> str:
    """The call that adds an event."""
    match event:
        case Elements(values=values, timestamps=timestamps):
            elements = ", ".join(
                repr(value) if micros == MIN_MICROS else f"TimestampedValue({value!r}, {time_text(micros)})"
                for value, micros in zip(values, timestamps, strict=True)
            )
            text = f"add_elements([{elements}]"
        case portable.AdvanceWatermark(to=to):
            text = "advance_watermark_to_infinity(" if to == MAX_MICROS else f"advance_watermark_to({time_text(to)}"
        case portable.AdvanceClock(by=by):
            return f"advance_processing_time({Duration(micros=by).seconds():g})"
        case portable.Idle():
            return f"idle({event.tag!r})" if event.tag != main else "idle()"
    if event.tag == main:
        return f"{text})"
    return f"{text}, tag={event.tag!r})" if not text.endswith("(") else f"{text}tag={event.tag!r})"
