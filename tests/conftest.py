"""Shared by all tests: the profiles of Hypothesis, a limit to how long a test takes, and the Spark session.

In continuous integration (`CI` set) the examples are the same on every run, so that failures repeat; elsewhere they are
new each time. Neither profile has deadlines or checks the speed of generation: shared machines stall, and these tests
don't assert speed. `--hypothesis-profile` selects a profile.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from importlib.util import find_spec
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.spark.small_jvms import archive_classes, environment
from tidegate.sdk.secrets import redaction, registry

AGAIN = 60.0
"""After how long (s) a test that has gone on nonetheless is ended again."""
NO_SPEED_CHECKS = [HealthCheck.too_slow]
settings.register_profile("desk", deadline=None, suppress_health_check=NO_SPEED_CHECKS)
settings.register_profile(
    "ci", deadline=None, suppress_health_check=NO_SPEED_CHECKS, derandomize=True, database=None, print_blob=True
)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Scripts start background jobs with SIGINT ignored; child processes of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.pop("PYTHONUNBUFFERED", None)
"""With it, Python writes a line and its end separately, and processes that print to one pipe mix their lines."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tidegate")
    group.addoption("--spark-pipelines", type=int, default=18, help="how many random pipelines to compare on Spark")
    group.addoption("--expressions", type=int, default=100, help="how many random expressions to compare with Spark")
    group.addoption("--regions", type=int, default=8, help="how many random pipelines to compare that Spark computes")
    group.addoption("--tpch", help="a folder with tables of TPC-H, recorded by tests/support/sql/record_tpch.py")
    group.addoption(
        "--tpch-streaming",
        choices=["sample", "all"],
        default="sample",
        help="which queries of TPC-H to run on streaming",
    )
    group.addoption("--loops", type=int, default=24, help="how many random loops to compare with their unrolling")
    group.addoption("--graphs", type=int, default=10, help="how many random graphs to compare with networkx")
    group.addoption("--rounds", type=int, default=40, help="how many rounds leave neither files nor memory behind")
    group.addoption("--duckdb", help="a Python that has DuckDB, which answers random queries, too")
    group.addoption("--queries", type=int, default=200, help="how many random queries to compare with DuckDB")
    group.addoption("--nexmark", choices=["sample", "all"], default="sample", help="how many queries each test runs")
    group.addoption("--nexmark-events", type=int, default=5_000, help="how many events to compare with DuckDB")
    group.addoption("--spark-kills", type=int, default=1, help="how often to kill an executor in each stage")
    group.addoption(
        "--spark-stream-rounds",
        type=int,
        default=0,
        help="how many faults befall a stream on a cluster, in turn (0: a driver and an executor are killed)",
    )
    group.addoption(
        "--streaming-workers",
        choices=["sample", "all"],
        default="sample",
        help="which tests of the contract to run on 1 and 3 streaming workers too",
    )
    group.addoption(
        "--streaming-memory",
        choices=["sample", "tiny"],
        default="sample",
        help="tiny: run all tests of the contract on streaming workers with next to no memory too",
    )
    group.addoption(
        "--streaming-pipelines", type=int, default=30, help="how many random pipelines to compare as streams"
    )
    group.addoption("--streaming-loops", type=int, default=5, help="how many random loops to run on several workers")
    group.addoption("--loop-kills", type=int, default=2, help="how many workers to kill in loops of each mode")
    group.addoption("--streaming-kills", type=int, default=3, help="how many processes to kill in each streaming run")
    group.addoption("--streaming-seconds", type=float, default=5.0, help="how long a stream is held back")
    group.addoption("--streaming-seed", type=int, default=1, help="seed of the random kills and pipelines")
    group.addoption(
        "--outage-seconds",
        type=float,
        default=0.0,
        help="how long a store is away at least, in each of several ways (0: in one way, until the job has said so)",
    )
    group.addoption("--simulation-seeds", type=int, default=160, help="how many simulated streams to run")
    group.addoption("--round-seeds", type=int, default=5, help="how many simulated runs of loops to run")
    group.addoption("--feedback-seeds", type=int, default=12, help="how many simulated streams with feedback to run")
    group.addoption(
        "--promise-examples", type=int, default=3, help="how many streams to run for each rule of the main promise"
    )
    group.addoption(
        "--inlined-functions", type=int, default=300, help="how many random functions to call and to inline"
    )
    group.addoption("--longest-test", type=float, default=1200, help="after how many seconds a test fails (0: never)")
    group.addoption("--thorough", action="store_true", help="run all cases of sampled tests, and all examples")
    group.addoption("--spark-scale", type=int, default=1, help="how many times larger the tests of Spark's scale are")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without `--thorough`, keep each n-th case of a test marked `sampled(n)`, none of one marked `thorough`, and half
    of a property's examples.

    Names of cases must be the same in each process, or pytest-xdist runs nothing.
    """
    for item in items:
        if " at 0x" in item.nodeid:
            raise pytest.UsageError(f"{item.nodeid}: the name of the case has an address in it, use ids=")
    if config.getoption("--thorough"):
        return
    kept, left_out, cases = [], [], Counter[str]()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        test = item.nodeid.partition("[")[0]
        left_out_whole = item.get_closest_marker("thorough") is not None
        if left_out_whole or (sampled is not None and cases[test] % sampled.args[0]):
            left_out.append(item)
        else:
            kept.append(item)
            _halve_examples(getattr(item, "function", None))
        cases[test] += 1
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


@contextlib.contextmanager
def time_limit(seconds: float, name: str) -> Iterator[None]:
    """Fail in the main thread after so many seconds; 0: never. The stacks of the other threads go to standard error.

    A signal interrupts whatever waits in Python. Windows has none, and so no limit.
    """
    if not seconds or not hasattr(signal, "SIGALRM"):
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(sys.__stderr__ or 2)
        pytest.fail(f"{name} has taken longer than {seconds:g} s (--longest-test); where it was, the traceback says")

    before = signal.signal(signal.SIGALRM, end)
    outer = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *outer)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End a test that takes too long, also in its fixtures."""
    with time_limit(item.config.getoption("--longest-test"), item.nodeid):
        return (yield)


def _halve_examples(test: Any) -> None:
    """Halve the examples of a property that has many; once, since its cases share them."""
    chosen: settings | None = getattr(test, "_hypothesis_internal_use_settings", None)
    if chosen is None or chosen.max_examples < 20 or hasattr(test, "_all_examples"):
        return
    test._all_examples = chosen.max_examples
    test._hypothesis_internal_use_settings = settings(chosen, max_examples=chosen.max_examples // 2)


@pytest.fixture(scope="session", autouse=True)
def compiled_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let the processes that tests of all workers start share compiled modules, if PYTHONDONTWRITEBYTECODE is set."""
    with pytest.MonkeyPatch.context() as patch:
        if "PYTHONDONTWRITEBYTECODE" in os.environ and "PYTHONPYCACHEPREFIX" not in os.environ:
            own = tmp_path_factory.getbasetemp()
            folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "compiled"
            patch.delenv("PYTHONDONTWRITEBYTECODE")
            patch.setenv("PYTHONPYCACHEPREFIX", str(folder))
            yield
        else:
            yield


@pytest.fixture(autouse=True)
def forgotten_secrets() -> Iterator[None]:
    """Forget the secrets that a test registers: messages of later tests would hide the same words."""
    tables: list[dict[Any, Any]] = [redaction._concealed, registry._values, registry._names, registry._suggested]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before):
        table.clear()
        table.update(entries)


@pytest.fixture(scope="session", autouse=True)
def small_jvms(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give the drivers that tests start as processes of their own the options of a JVM that lives for seconds.

    The archive of Spark's classes is in pytest's cache; without that (`-p no:cacheprovider`) there is none.
    """
    if "SPARK_SUBMIT_OPTS" in os.environ or find_spec("pyspark") is None:
        yield
        return
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(None if cache is None else cache.mkdir("spark-classes")).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark_classes(small_jvms: None) -> None:
    """The archive of Spark's classes has been written: for fixtures on which several JVMs depend."""
    archive_classes()


@pytest.fixture(scope="session")
def spark_session(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The Spark session of all tests that do not need their own: `--runner spark` finds and uses it unchanged.

    Tests that ask for it belong in xdist's group "spark", so that only one worker starts a JVM.
    """
    from tidegate.runners.spark.driver.session import missing, with_local_workers

    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    request.getfixturevalue("spark_classes")
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.driver.memory": "768m",
        "spark.log.level": "OFF",
        "spark.sql.parser.manageParserCaches": "true",
        "spark.sql.parser.parserDfaCacheFlushThreshold": "20000",  # what parsers keep of random queries fills the heap
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    folders: list[TemporaryDirectory[str]] = []  # not those that the runner removes with a session of its own
    for name, value in with_local_workers(settings, folders).items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
    yield session
    session.stop()
    for folder in folders:
        folder.cleanup()
