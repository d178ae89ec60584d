"""The sources and sinks of `tidegate.io` keep the rules of the interface, also in pipelines on every runner."""

from __future__ import annotations

import datetime
import functools
import gzip
import itertools
import os
import socketserver
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pydantic
import pytest

import tidegate as tg
from tests.io.formats.writing.test_formats import WRITERS
from tests.support.object_store import s3_file_system
from tests.support.record_files import FORMATS, drain, visits, write
from tests.support.servers.http_server import http_server
from tests.support.written_files import all_rows, rows_of
from tests.testing.conformance.good_sources import append_lines
from tidegate.io.file_source.listing import matching
from tidegate.io.generators.async_iterators import AsyncIteratorSource
from tidegate.io.generators.iterables import IterableSource
from tidegate.io.generators.sequence import SequenceSource
from tidegate.io.generators.socket_lines import SocketSource
from tidegate.io.generators.tail_file import TailSource
from tidegate.io.text.sink import TextSink
from tidegate.io.text.source import TextSource
from tidegate.testing import ConformanceReport, check_sink, check_source

RECORDS = visits(40)
LINES = [f"line {n}" for n in range(17)]

OF_ALL_SOURCES = {
    "reads_everything",
    "is_picklable",
    "splits_cover_everything_once",
    "resumes_at_every_position",
    "readers_are_independent",
    "closes",
    "watermark_never_goes_back",
}
OF_FILE_SINKS = {
    "writes_everything",
    "is_picklable",
    "names_what_it_writes",
    "committables_have_orders",
    "nothing_is_visible_before_the_commit",
    "commits_twice",
    "commits_in_another_process",
    "commits_in_any_order",
    "commits_nothing",
    "commits_each_checkpoint",
    "aborts_before_prepare",
    "aborts_after_prepare",
    "abort_keeps_committed_output",
    "abort_keeps_other_runs",
    "abandoned_attempts_leave_nothing",
    "attempts_of_a_task_do_not_interfere",
    "close_discards_unprepared_output",
    "bad_element_is_a_write_error",
}
IN_PIPELINES = {"pipelines_read_everything", "pipelines_resume_after_failures"}
INTO_PIPELINES = {
    "pipelines_write_everything",
    "pipelines_write_once_after_failures",
    "failed_pipelines_leave_nothing",
}


@dataclass(frozen=True)
class Runners:
    """On which runners a test runs pipelines. On Spark, it runs nothing else."""

    names: tuple[str, ...]

    @property
    def spark(self) -> bool:
        return "spark" in self.names

    def source(self, *args: Any, **options: Any) -> ConformanceReport:
        only = {"only": ["pipelines_read_everything"]} if self.spark else {}
        return check_source(*args, runners=self.names, **options, **only)

    def sink(self, *args: Any, **options: Any) -> ConformanceReport:
        only = {"only": ["pipelines_write_everything"]} if self.spark else {}
        return check_sink(*args, runners=self.names, **options, **only)

    def expected(self, checks: set[str]) -> set[str]:
        """The checks that pass."""
        return {"pipelines_read_everything", "pipelines_write_everything"} & checks if self.spark else checks


@pytest.fixture(
    params=[
        pytest.param(("direct", "streaming"), id="local"),
        pytest.param(("spark",), id="spark", marks=pytest.mark.xdist_group("spark")),
    ]
)
def on(request: pytest.FixtureRequest) -> Runners:
    """Tests of bounded sources, and of sinks, run on every runner."""
    if "spark" in request.param:
        request.getfixturevalue("spark_session")
    return Runners(request.param)


VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((format, {}) for format in WRITERS),
    ("csv", {"partition_by": "k"}),
    ("parquet", {"partition_by": "k"}),
    ("json", {"max_file_bytes": 1}),
    ("arrow", {"max_file_bytes": 1}),
]
"""Sinks of records: one that appends to files, and one that doesn't, with each option."""

LOCALLY = Runners(("direct", "streaming"))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_text_files_are_a_conforming_source(tmp_path: Path, on: Runners, suffix: str) -> None:
    for name, lines in (("a", LINES[:9]), ("b", LINES[9:])):
        data = "".join(f"{line}\n" for line in lines).encode()
        (tmp_path / f"{name}.txt{suffix}").write_bytes(gzip.compress(data) if suffix else data)
    bad = tmp_path / "bad"
    bad.write_bytes(b"good\nb\xffd\n")
    report = on.source(
        lambda: TextSource((f"{tmp_path}/*.txt{suffix}",), min_split_size=1),
        LINES,
        bad_source=lambda: TextSource((str(bad),)),
        bad_place="line 2",
    )
    assert on.expected({*OF_ALL_SOURCES, *IN_PIPELINES, "bad_input_is_a_read_error"}) <= set(report.passed)


@pytest.mark.parametrize("name", FORMATS)
def test_files_of_records_are_a_conforming_source(
    tmp_path: Path, on: Runners, name: str, pytestconfig: pytest.Config
) -> None:
    """Pipelines read one of the formats, unless `--thorough`: how splits become elements of a pipeline is the same."""
    thorough = pytestconfig.getoption("--thorough")
    transform, make, needs = FORMATS[name]
    data = make(RECORDS)
    paths = [write(tmp_path / "a" / name, data), write(tmp_path / "b" / name, make(visits(10, 40)))]
    bad = data + b"1,2\n" if name.endswith(".csv") else data[: len(data) // 2 + 3]
    broken = write(tmp_path / "broken" / name, bad)

    def source_of(*paths: Path) -> Any:
        return transform(list(paths), as_=dict, min_split_size=1, **needs).source

    runners = on if on.spark or name == next(iter(FORMATS)) or thorough else Runners(())
    report = runners.source(
        lambda: source_of(*paths),
        visits(50),
        bad_source=lambda: source_of(broken),
        bad_place=name,
        limits=(1, 7, 1000),
        max_positions=8,
        desired=(1, 4),
    )
    in_pipelines = IN_PIPELINES if runners.names else set()
    assert on.expected({*OF_ALL_SOURCES, *in_pipelines, "bad_input_is_a_read_error"}) <= set(report.passed)


def test_sequences_are_conforming_sources(on: Runners) -> None:
    report = on.source(lambda: SequenceSource(5, 5000, None), range(5, 5000), limits=(700, 5000), max_positions=5)
    assert set(report.passed) >= on.expected(OF_ALL_SOURCES | IN_PIPELINES)


def test_live_sequences_are_conforming_sources() -> None:
    paced = LOCALLY.source(lambda: SequenceSource(0, 30, 1000.0), range(30))
    endless = LOCALLY.source(lambda: SequenceSource(0, None, 100_000.0), range(30), endless=True)
    for report in (paced, endless):
        assert set(report.passed) >= OF_ALL_SOURCES | IN_PIPELINES


def test_a_clock_is_a_conforming_source() -> None:
    ticks = [tg.Timestamp(n) for n in range(100, 112)]
    report = LOCALLY.source(lambda: tg.PeriodicImpulse(1, start=100, stop=112).source, ticks)
    assert set(report.passed) >= OF_ALL_SOURCES | IN_PIPELINES


def skipping(count: int = 0) -> Iterator[str]:
    return iter(LINES[count:])


@pytest.mark.parametrize("fn", [functools.partial(iter, LINES), skipping, lambda skip: iter(LINES[skip:])])
def test_iterables_are_conforming_sources(on: Runners, fn: Any) -> None:
    report = on.source(lambda: IterableSource(fn, True), LINES, limits=(1, 5), max_positions=6)
    assert set(report.passed) >= on.expected(OF_ALL_SOURCES | IN_PIPELINES)


@pytest.mark.parametrize("fn", [functools.partial(iter, LINES), skipping])
def test_iterables_that_wait_are_conforming_sources(fn: Any) -> None:
    report = LOCALLY.source(lambda: IterableSource(fn, False), LINES, limits=(1, 5), max_positions=6)
    assert set(report.passed) >= OF_ALL_SOURCES | IN_PIPELINES


async def each_line(skip: int) -> AsyncIterator[str]:
    for line in LINES[skip:]:
        yield line


def test_asynchronous_iterators_are_a_conforming_source() -> None:
    report = LOCALLY.source(lambda: AsyncIteratorSource(each_line), LINES, limits=(1, 5), max_positions=6)
    assert set(report.passed) >= OF_ALL_SOURCES | IN_PIPELINES


@pytest.fixture
def line_server() -> Iterator[int]:
    """A server that sends the lines to each client and closes the connection; its port."""

    class SendLines(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.sendall("".join(f"{line}\n" for line in LINES).encode())

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), SendLines) as server:
        server.daemon_threads = True
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def test_a_socket_is_a_conforming_source_that_is_not_read_twice(line_server: int) -> None:
    report = LOCALLY.source(lambda: SocketSource("127.0.0.1", line_server), LINES)
    once = {"resumes_at_every_position", "readers_are_independent", "pipelines_resume_after_failures"}
    assert set(report.passed) >= (OF_ALL_SOURCES | IN_PIPELINES) - once
    assert {report.skipped[name] for name in once} == {
        "replayable = False: elements can't be read a second time",
    }


def test_a_growing_file_is_a_conforming_source(tmp_path: Path) -> None:
    path, bad = tmp_path / "log", tmp_path / "bad"
    append_lines(path, *LINES)
    bad.write_bytes(b"good\nb\xffd\n")
    report = LOCALLY.source(
        lambda: TailSource(str(path), poll_interval=0.01),
        LINES,
        bad_source=lambda: TailSource(str(bad), poll_interval=0.01),
        bad_place=str(bad),
        add=lambda: append_lines(path, "new", "newer"),
        lose=lambda: os.truncate(path, 0),
    )
    assert set(report.passed) >= {
        *OF_ALL_SOURCES,
        *IN_PIPELINES,
        "never_blocks",
        "bad_input_is_a_read_error",
        "reads_what_is_added",
        "lost_position_is_refused",
    }


ENUMERATED = {
    "discovers_each_split_once",
    "enumerator_restarts_between_any_two_looks",
    "enumerator_state_is_bounded",
    "enumerator_says_when_to_look_again",
    "discovers_what_is_added",
}


def test_a_folder_that_is_followed_is_a_conforming_source(tmp_path: Path) -> None:
    for name, lines in (("a", LINES[:5]), ("b", LINES[5:6]), ("c", LINES[6:])):
        append_lines(tmp_path / f"{name}.txt", *lines)
    report = LOCALLY.source(
        lambda: tg.io.ReadFromText(tmp_path / "*.txt", follow=True, poll_interval=0.01, min_age=0).source,
        LINES,
        add=lambda: append_lines(tmp_path / "d.txt", "new", "newer"),
    )
    assert set(report.passed) >= OF_ALL_SOURCES | IN_PIPELINES | ENUMERATED


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_of_records_that_is_followed_is_a_conforming_source(tmp_path: Path, name: str) -> None:
    """Pipelines read one of the formats, on the runner that resumes: how pipelines follow folders is the same for all,
    and the same as for lines of text."""
    transform, make, needs = FORMATS[name]
    runners = Runners(("streaming",)) if name == "visits.parquet" else Runners(())
    for number, first in enumerate(range(0, 30, 10)):
        write(tmp_path / f"{number}-{name}", make(visits(10, first)))

    def add() -> list[Any]:
        write(tmp_path / f".{name}", make(visits(5, 30))).rename(tmp_path / f"3-{name}")
        return visits(5, 30)

    def lose() -> None:
        for path in tmp_path.iterdir():
            path.unlink()

    report = runners.source(
        lambda: transform(tmp_path / "*", as_=dict, follow=True, poll_interval=0.01, min_age=0, **needs).source,
        visits(30),
        add=add,
        lose=lose,
        limits=(7, 1000),
        max_positions=4,
    )
    passed = OF_ALL_SOURCES | ENUMERATED | (IN_PIPELINES if runners.names else set()) | {"lost_position_is_refused"}
    assert passed <= set(report.passed)


def test_matched_files_are_a_conforming_source(tmp_path: Path, on: Runners) -> None:
    for number in range(5):
        append_lines(tmp_path / f"{number}.txt", "line")
    found = [each.metadata for each in matching((f"{tmp_path}/*",), False, tg.ReadError)]
    report = on.source(lambda: tg.io.MatchFiles(tmp_path / "*").read.source, found, limits=(1, 1000))
    assert on.expected(OF_ALL_SOURCES | IN_PIPELINES) <= set(report.passed)


def test_matched_files_that_appear_are_a_conforming_source(tmp_path: Path) -> None:
    def files() -> list[Any]:
        return [each.metadata for each in matching((f"{tmp_path}/*",), False, tg.ReadError)]

    for number in range(3):
        append_lines(tmp_path / f"{number}.txt", "line")

    def add() -> list[Any]:
        append_lines(tmp_path / "3.txt", "line")
        return files()[3:]

    report = check_source(
        lambda: tg.io.MatchFiles(tmp_path / "*", follow=True, poll_interval=0.01, min_age=0).read.source,
        files(),
        add=add,
        limits=(1, 1000),
    )
    assert set(report.passed) >= OF_ALL_SOURCES | ENUMERATED


@pytest.mark.parametrize("name", ["visits.csv", "visits.parquet"])
def test_files_on_a_web_server_are_a_conforming_source(tmp_path: Path, on: Runners, name: str) -> None:
    transform, make, needs = FORMATS[name]
    write(tmp_path / "a" / name, make(RECORDS))
    write(tmp_path / "b" / name, make(visits(10, 40)))
    with http_server(tmp_path) as url:
        report = on.source(
            lambda: transform([f"{url}/a/{name}", f"{url}/b/{name}"], as_=dict, min_split_size=1, **needs).source,
            visits(50),
            limits=(7, 1000),
            max_positions=4,
            desired=(1, 4),
        )
    assert on.expected(OF_ALL_SOURCES | IN_PIPELINES) <= set(report.passed)


@pytest.fixture(scope="module")
def bucket() -> Iterator[Any]:
    """The file system of a store with a bucket `bucket`."""
    for name in ("s3fs", "moto", "flask"):
        pytest.importorskip(name)
    with s3_file_system("bucket") as store:
        yield store


def rows_written(bucket: Any, sink: Any) -> list[Any]:
    """The rows of the Parquet files of a sink."""
    bucket.invalidate_cache()
    paths = bucket.glob(f"{sink.prefix.removeprefix('s3://')}*")
    return [row for path in paths for row in rows_of(bucket.cat(path), "parquet")]


@pytest.mark.xdist_group("s3")
def test_files_in_s3_are_a_conforming_source(bucket: Any) -> None:
    for name, records in (("a", RECORDS), ("b", visits(10, 40))):
        bucket.pipe(f"bucket/in/{name}.parquet", FORMATS["visits.parquet"][1](records))
    report = LOCALLY.source(
        lambda: tg.io.ReadFromParquet("s3://bucket/in/*", as_=dict).source,
        visits(50),
        limits=(7, 1000),
        max_positions=4,
        desired=(1, 4),
    )
    assert set(report.passed) >= OF_ALL_SOURCES | IN_PIPELINES


@pytest.mark.xdist_group("s3")
def test_a_folder_in_s3_that_is_followed_is_a_conforming_source(bucket: Any) -> None:
    def lines_in(name: str, *lines: str) -> list[str]:
        bucket.pipe(f"bucket/followed/{name}", "".join(f"{line}\n" for line in lines).encode())
        return list(lines)

    lines_in("a", *LINES[:9])
    lines_in("b", *LINES[9:])
    report = LOCALLY.source(
        lambda: tg.io.ReadFromText("s3://bucket/followed/*", follow=True, poll_interval=0.01).source,
        LINES,
        add=lambda: lines_in("c", "new", "newer"),
        limits=(1, 1000),
        max_positions=4,
    )
    assert set(report.passed) >= OF_ALL_SOURCES | IN_PIPELINES | ENUMERATED


@pytest.mark.xdist_group("s3")
def test_files_in_s3_are_a_conforming_sink(bucket: Any) -> None:
    numbers = itertools.count()

    report = LOCALLY.sink(
        lambda: tg.io.WriteToParquet(f"s3://bucket/out/{next(numbers)}/x", {"n": int}).sink,
        [{"n": n} for n in range(10)],
        functools.partial(rows_written, bucket),
        bad_element={"n": "x"},
        bad_place="n",
    )
    assert set(report.passed) == OF_FILE_SINKS | INTO_PIPELINES


@pytest.mark.xdist_group("spark")
def test_files_in_s3_are_read_and_written_on_spark(spark_session: Any, bucket: Any) -> None:
    """Workers of the session have been started without the credentials, so the options carry them."""
    options = {
        "key": "testing",
        "secret": pydantic.SecretStr("the secret of s3 on spark"),
        "client_kwargs": {"endpoint_url": os.environ["AWS_ENDPOINT_URL"], "region_name": "us-east-1"},
    }
    numbers = itertools.count()
    for name, records in (("a", RECORDS), ("b", visits(10, 40))):
        bucket.pipe(f"bucket/on-spark/{name}.parquet", FORMATS["visits.parquet"][1](records))

    on_spark = Runners(("spark",))
    reading = on_spark.source(
        lambda: tg.io.ReadFromParquet("s3://bucket/on-spark/*", as_=dict, storage_options=options).source, visits(50)
    )
    writing = on_spark.sink(
        lambda: (
            tg.io.WriteToParquet(f"s3://bucket/from-spark/{next(numbers)}/x", {"n": int}, storage_options=options).sink
        ),
        [{"n": n} for n in range(10)],
        functools.partial(rows_written, bucket),
    )
    assert reading.passed == ("pipelines_read_everything",)
    assert writing.passed == ("pipelines_write_everything",)


@pytest.mark.parametrize(("suffix", "shards"), [(".txt", 0), (".txt.gz", 2)])
def test_text_files_are_a_conforming_sink(tmp_path: Path, on: Runners, suffix: str, shards: int) -> None:
    numbers = itertools.count()

    def read_back(sink: TextSink) -> list[str]:
        found = TextSource((f"{sink.prefix}*",), allow_empty=True)
        return [line for split in found.splits(1) for line in drain(found, split)]

    report = on.sink(
        lambda: TextSink(str(tmp_path / str(next(numbers)) / "x"), suffix, num_shards=shards, encoding="ascii"),
        LINES,
        read_back,
        bad_element="é",
        bad_place="ascii",
    )
    assert set(report.passed) == on.expected(OF_FILE_SINKS | INTO_PIPELINES)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("format", "options"), VARIANTS)
def test_files_of_records_are_a_conforming_sink(
    tmp_path: Path, on: Runners, format: str, options: dict[str, Any]
) -> None:
    numbers = itertools.count()
    addressed = "partition_by" in options
    elements = [{"n": n, "text": f"text {n}"} for n in range(10)]

    def make() -> Any:
        path = tmp_path / str(next(numbers)) / "x"
        return WRITERS[format](
            path, {"k": str, "n": int, "text": str} if addressed else {"n": int, "text": str}, **options
        ).sink

    def read_back(sink: Any) -> list[Any]:
        folder = tmp_path / Path(sink.prefix).relative_to(tmp_path).parts[0]
        rows = [{"n": int(row["n"]), "text": row["text"]} for row in all_rows(folder, format)]
        return [((f"k={row['n'] % 3}",), {"k": str(row["n"] % 3), **row}) for row in rows] if addressed else rows

    written = [((f"k={row['n'] % 3}",), {"k": str(row["n"] % 3), **row}) for row in elements]  # type: ignore[operator]
    bad = {"n": datetime.date(2013, 1, 1), "text": "x", "k": "1"}
    report = on.sink(
        make,
        written if addressed else elements,
        read_back,
        bad_element=(("k=1",), bad) if addressed else bad,
        bad_place="n",
    )
    assert set(report.passed) == on.expected(OF_FILE_SINKS | INTO_PIPELINES)
