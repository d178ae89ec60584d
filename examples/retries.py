"""Deliver messages to addresses that fail now and then: what failed comes round again, later each time.

    tidegate run examples/retries.py --input examples/data/romeo_and_juliet.txt --output build/deliveries
    python examples/retries.py --input examples/data/romeo_and_juliet.txt --output build/deliveries

writes a line such as `3 attempts: O Romeo, Romeo` for each line of the input, and those that failed every time to
`build/deliveries-given-up`. The state of the loop is one for good: it counts the attempts of each message.
With `--runner streaming` all workers run the loop, and after a failure it goes on with what was under way.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from pydantic import Field

import tidegate as tg

Message = tuple[str, int]


class RetriesOptions(tg.PipelineOptions):
    """The messages, the files to write, and how often a delivery fails."""

    input: str = Field(description="text files to read: a path or a pattern, a message in each line")
    output: str = Field(description="the prefix of the files to write")
    fails: float = Field(default=0.5, ge=0, lt=1, description="the share of deliveries that fail")
    retries: int = Field(default=5, ge=0, description="how often a delivery is tried again")
    pause: float = Field(default=0.02, ge=0, description="seconds before the first retry; then twice as many")


def deliver(message: Message, fails: float) -> Message:
    """Deliver a message, or fail as a network does; here a given attempt always ends the same way."""
    text, attempt = message
    if random.Random(f"{text} {attempt}").random() < fails:
        raise ConnectionError(f"attempt {attempt} of {text!r} failed")
    return message


class Later(tg.DoFn):
    """Emits a message as its next attempt, when its pause is over."""

    attempts = tg.ValueStateSpec("attempts")
    PAUSE = tg.ProcessingTimer("pause")

    def __init__(self, pause: float) -> None:
        self.pause = pause

    def process(
        self,
        element: Message,
        attempts: tg.ValueState[int] = tg.DoFn.StateParam(attempts),
        timer: tg.Timer = tg.DoFn.TimerParam(PAUSE),
        now: tg.Timestamp = tg.DoFn.ProcessingTimeParam,
    ) -> None:
        _, attempt = element
        attempts.write(attempt)
        timer.set(now + self.pause * 2 ** (attempt - 1))

    @tg.on_timer(PAUSE)
    def on_pause(
        self, text: str = tg.DoFn.KeyParam, attempts: tg.ValueState[int] = tg.DoFn.StateParam(attempts)
    ) -> Iterator[Message]:
        attempt = attempts.read()
        assert attempt is not None
        yield text, attempt + 1


def pipeline(options: RetriesOptions) -> tg.Pipeline:
    """The pipeline that these options describe."""
    p = tg.Pipeline(options=options)

    def attempt(messages: tg.PCollection[Message]) -> tg.Round[tg.PCollection[Message]]:
        delivered, failed = messages | "Deliver" >> tg.Map(deliver, fails=options.fails).with_exception_handling(
            exc_class=ConnectionError
        )
        undelivered = failed | "Undelivered" >> tg.Map(lambda letter: letter[0]).with_output_types(Message)
        last = undelivered | "Last" >> tg.Filter(lambda message: message[1] > options.retries)
        again = undelivered | "Again" >> tg.Filter(lambda message: message[1] <= options.retries)
        later: tg.PCollection[Any] = again | tg.ParDo(Later(options.pause)).with_output_types(Message)
        return tg.Round(later, out={"delivered": delivered, "given_up": last})

    lines = p | tg.io.ReadFromText(options.input) | tg.Distinct() | tg.Filter(bool)
    messages: tg.PCollection[Message] = lines | "First" >> tg.Map(lambda line: (line, 1)).with_output_types(Message)
    loop = messages | "Deliveries" >> tg.Feedback(attempt)
    _ = (
        loop.delivered
        | "Report" >> tg.MapTuple(lambda text, attempts: f"{attempts} attempts: {text}")
        | "WriteDelivered" >> tg.io.WriteToText(options.output)
    )
    _ = loop.given_up | tg.Keys() | "WriteGivenUp" >> tg.io.WriteToText(f"{options.output}-given-up")
    return p


if __name__ == "__main__":
    pipeline(RetriesOptions.from_args()).run().wait_until_finish()
