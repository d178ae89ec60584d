"""Analyse the log of a web server: the status codes of each path by minute, and the share of requests that failed.

    tidegate run examples/log_analysis.py --input 'examples/data/logs/*.jsonl' --output build/log

reads JSON lines such as `{"at": "2024-03-01T12:00:03Z", "path": "/cart", "status": 200, "ms": 31}` and writes

- `build/log-statuses….csv`: how many requests of a path had which status, in each minute;
- `build/log-failures….csv`: requests, failures and the share of failures of each path, in each minute;
- `build/log-broken….csv`: lines that are no requests, with the reason. They are counted as `bad_records`.

A minute is one of event time, that of the request: it doesn't matter when or in which order the lines are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import Field

import tidegate as tg


class LogOptions(tg.PipelineOptions):
    """The files to read, and where to write."""

    input: str = Field(description="the files of JSON lines, as a pattern")
    output: str = Field(description="how the names of the files to write begin")
    failing: int = Field(default=500, description="the least status code that is a failure")


@dataclass(frozen=True)
class Request:
    """A line of the log; its other members are left out."""

    at: datetime
    path: str
    status: int


def statuses(count: tuple[tuple[str, int], int], window: tg.IntervalWindow = tg.DoFn.WindowParam) -> tg.Row:
    """How many requests of a path had a status in a minute."""
    (path, status), requests = count
    return tg.Row(minute=window.start.to_utc_datetime(), path=path, status=status, requests=requests)


def failed(request: Request, least: int) -> tuple[str, int]:
    """The path of a request, and 1 if it failed, else 0."""
    return request.path, int(request.status >= least)


def failures(of_path: tuple[str, tuple[int, int]], window: tg.IntervalWindow = tg.DoFn.WindowParam) -> tg.Row:
    """The requests of a path in a minute, and how many of them failed."""
    path, (requests, failed) = of_path
    share = round(failed / requests, 4)
    return tg.Row(minute=window.start.to_utc_datetime(), path=path, requests=requests, failed=failed, share=share)


def pipeline(options: LogOptions) -> tg.Pipeline:
    """Requests by minute, path and status."""
    p = tg.Pipeline(options=options, name="log analysis")
    read = tg.ReadFromJson(
        options.input, as_=Request, bad_records="dead_letter", timestamp=lambda request: request.at, out_of_orderness=10
    )
    requests, broken = p | "read" >> read
    by_minute = requests | "by minute" >> tg.WindowInto(tg.FixedWindows(60))
    (
        by_minute
        | "status" >> tg.Map(lambda request: (request.path, request.status))
        | "count" >> tg.CombinePerElement(len)
        | tg.Map(statuses)
        | "write statuses" >> tg.WriteToCsv(f"{options.output}-statuses", file_name_suffix=".csv", num_shards=1)
    )
    (
        by_minute
        | "failed" >> tg.Map(failed, options.failing)
        | "add up" >> tg.CombinePerKey((len, sum))
        | tg.Map(failures)
        | "write failures" >> tg.WriteToCsv(f"{options.output}-failures", file_name_suffix=".csv", num_shards=1)
    )
    broken | "write broken" >> tg.WriteToCsv(f"{options.output}-broken", file_name_suffix=".csv", num_shards=1)
    return p


if __name__ == "__main__":
    pipeline(LogOptions.from_args()).run().wait_until_finish()
