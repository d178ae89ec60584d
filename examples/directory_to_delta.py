"""Follow a directory of JSON lines into a Delta table, and count the requests of each minute in another one.

    tidegate run examples/directory_to_delta.py --input 'examples/data/logs/*.jsonl' --output build --follow=false
    tidegate run examples/directory_to_delta.py --input 'incoming/*.jsonl' --output build --runner streaming \
--checkpoint_dir build/checkpoints

The first command reads the files that are there. The second one reads each file that appears, until Ctrl-C stops it,
and goes on with the rest when it is given again. Both append to the tables

- `build/requests`, in a partition for each day;
- `build/minutes`: the requests and failures of each minute, as soon as it is over.

Each checkpoint is one transaction of each table, so that every request is in its table once, whatever fails in between.
Lines that are no requests are appended to a table `build/broken`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime

from pydantic import Field

import tidegate as tg


class TableOptions(tg.PipelineOptions):
    """The files to follow, and where the tables are."""

    input: str = Field(description="the files of JSON lines, as a pattern")
    output: str = Field(description="the folder of the tables, or its URL")
    follow: bool = Field(default=True, description="whether to go on with files that appear")
    lateness: float = Field(default=60.0, ge=0, description="seconds by which a request may be older than others")


@dataclass(frozen=True)
class Line:
    """What is read of a line."""

    at: datetime
    path: str
    status: int


@dataclass(frozen=True)
class Request:
    """A row of the table of requests."""

    day: date
    at: datetime
    path: str
    status: int


@dataclass(frozen=True)
class Minute:
    """A row of the table of minutes."""

    minute: datetime
    requests: int
    failed: int


@dataclass(frozen=True)
class Broken:
    """A line that is no request."""

    file: str
    line: int | None
    reason: str


def request(line: Line) -> Request:
    """The request of a line."""
    return Request(line.at.date(), line.at, line.path, line.status)


def minute(counts: tuple[int, int], window: tg.IntervalWindow = tg.DoFn.WindowParam) -> Minute:
    """The row of a minute with so many requests, of which so many failed."""
    requests, failed = counts
    return Minute(window.start.to_utc_datetime(), requests, failed)


def add(counts: list[tuple[int, int]]) -> tuple[int, int]:
    """The sum of several counts."""
    return sum(requests for requests, _ in counts), sum(failed for _, failed in counts)


def pipeline(options: TableOptions) -> tg.Pipeline:
    """Requests, and their number by minute."""
    p = tg.Pipeline(options=options, name="directory to delta")
    read = tg.ReadFromJson(
        options.input,
        as_=Line,
        bad_records="dead_letter",
        follow=options.follow,
        timestamp=lambda line: line.at,
        out_of_orderness=options.lateness,
    )
    lines, broken = p | "read" >> read
    requests = lines | tg.Map(request)
    requests | "write requests" >> tg.WriteToDelta(f"{options.output}/requests", Request, partition_by="day")
    (
        broken
        | tg.Map(lambda bad: Broken(bad.file, bad.line_or_row, bad.reason))
        | "write broken" >> tg.WriteToDelta(f"{options.output}/broken", Broken)
    )
    (
        requests
        | tg.WindowInto(tg.FixedWindows(60))
        | "one" >> tg.Map(lambda request: (1, int(request.status >= 500)))
        | "count" >> tg.CombineGlobally(tg.associative(add)).without_defaults()
        | tg.Map(minute)
        | "write minutes" >> tg.WriteToDelta(f"{options.output}/minutes", Minute)
    )
    return p


if __name__ == "__main__":
    pipeline(TableOptions.from_args()).run().wait_until_finish()
