"""The runners the contract is tested on: `runner` is each of them, `stream_runner` each that runs unbounded input.

The streaming runner is tested with 2 workers always. On samples of the tests, the same each time, it is tested with 1
and 3 workers too, and with 2 and 3 workers that have next to no memory: blocks of one element, a budget that every
element exceeds, and live state in RocksDB. `--streaming-workers all` runs every test with each number of workers,
`--streaming-memory tiny` every test, with 2 and 3 workers, with next to no memory.

Streams on Spark run in this process here, by the tasks that Spark would run, in batches of one event, with some tasks
restored after each (`tests/support/spark/micro_batches.py`): with 1 and with 3 tasks, on samples of the tests, but not
those marked `live(micro_batches=False)`. `--streaming-workers all` runs every test so.

On the direct runner, and by workers with next to no memory, functions are inlined from the first element on (`--inline
always`). Elsewhere the functions of so few elements are called.

A test with a `stream_runner` is also generated for Spark itself, unless it is marked `live`: there it passes if the
runner refuses the test stream, by name and before it runs anything.

By default all runners are tested; `TIDEGATE_TEST_RUNNERS=direct` or, with the plugin, `--tidegate-runner` selects.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import hypothesis
import pytest

from tidegate.runners.direct.runner import DirectRunner
from tidegate.runners.streaming import runner as streaming
from tidegate.sdk.errors import TidegateError, UnsupportedError
from tidegate.sdk.options.defaults import replaced
from tidegate.sdk.options.registry import BUILT_IN
from tidegate.sdk.runner import find_runner

BOUNDED_ONLY = frozenset({"spark"})
ALWAYS = "direct,streaming,spark"


@dataclass(frozen=True)
class Workers:
    """A configuration of the streaming runner for tests; one in `sample` tests is run with it."""

    number: int
    sample: int = 1
    tiny: bool = False
    """True if they have next to no memory."""


WORKERS: Final = {
    "streaming": Workers(2),
    "streaming-1": Workers(1, sample=12),
    "streaming-3": Workers(3, sample=12),
    "streaming-2-tiny": Workers(2, sample=8, tiny=True),
    "streaming-3-tiny": Workers(3, sample=8, tiny=True),
}
"""By the name used in the ids of tests."""
MICRO_BATCHES: Final = {"micro_batches_1": 2, "micro_batches_3": 3}
"""Streams on Spark, but in this process, by the names of runners; one in so many tests is run with each."""
TINY: Final[Mapping[str, Any]] = {"memory_budget": 1, "block_size": 1, "state_backend": "rocksdb", "inline": "always"}
"""Settings of workers with next to no memory."""


def pytest_configure(config: pytest.Config) -> None:
    hypothesis.settings.register_profile("promise", max_examples=config.getoption("promise_examples"))
    config.addinivalue_line("markers", "live(micro_batches=True): Spark does not refuse the test's pipeline")
    config.addinivalue_line("markers", "refused(runner): the test passes if this runner refuses its pipeline")


def chosen(config: pytest.Config) -> list[str]:
    """The selected runners, in their usual order."""
    asked = config.getoption("--tidegate-runner", default=[]) or os.environ.get("TIDEGATE_TEST_RUNNERS", ALWAYS).split(
        ","
    )
    return [name for name in BUILT_IN if name in asked]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = chosen(metafunc.config)
    bounded_only = [name for name in names if name in BOUNDED_ONLY]
    if "runner" in metafunc.fixturenames:
        metafunc.parametrize("runner", running(names), indirect=True, scope="session")
    if "stream_runner" in metafunc.fixturenames:
        # Hypothesis would report the refusal of a property as a failing example, and shrink it.
        refusing = [] if hasattr(metafunc.function, "hypothesis") else bounded_only
        refused = [pytest.param(name, marks=pytest.mark.refused(name)) for name in refusing]
        streams = running(name for name in names if name not in BOUNDED_ONLY)
        live = metafunc.definition.get_closest_marker("live")
        if live is not None:
            refused = []
        if "spark" in names and (live is None or live.kwargs.get("micro_batches", True)):
            streams += list(MICRO_BATCHES)
        metafunc.parametrize("stream_runner", [*streams, *refused], indirect=True, scope="session")
    if "bounded_only_runner" in metafunc.fixturenames:
        metafunc.parametrize("bounded_only_runner", running(bounded_only), indirect=True, scope="session")


def running(names: Iterable[str]) -> list[Any]:
    """Runners as parameters; tests on Spark run in a single xdist worker."""
    every = [each for name in names for each in (WORKERS if name == "streaming" else [name])]
    return [pytest.param(name, marks=[pytest.mark.xdist_group("spark")] if name == "spark" else []) for name in every]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect all but a sample of the tests for some configurations; it depends on the tests' names alone."""
    all_workers = config.getoption("--streaming-workers") == "all"
    tiny_memory = config.getoption("--streaming-memory") == "tiny"

    def is_left_out(item: pytest.Item) -> bool:
        if (sample := MICRO_BATCHES.get(runner_of(item))) is not None:
            return not all_workers and zlib.crc32(item.nodeid.encode()) % sample != 0
        workers = workers_of(item)
        if workers is None or (workers.tiny and tiny_memory) or (not workers.tiny and all_workers):
            return False
        return zlib.crc32(item.nodeid.encode()) % workers.sample != 0

    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(left_out)
        items[:] = [item for item in items if item not in dropped]


def workers_of(item: pytest.Item) -> Workers | None:
    """The streaming workers that a test of this folder runs on; None on other runners."""
    return WORKERS.get(runner_of(item))


def runner_of(item: pytest.Item) -> str:
    """The name of the runner of a test of this folder; "" if it has none."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    name = parameters.get("runner", parameters.get("stream_runner", parameters.get("looping")))
    return name if isinstance(name, str) else ""  # other folders use the parameter for other things


@pytest.fixture(autouse=True)
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the number of processors and the memory that the streaming runner finds."""
    workers = workers_of(request.node)
    if workers is None:
        return
    monkeypatch.setattr(streaming, "processors", lambda: workers.number)
    if workers.tiny:
        settings = streaming._settings
        monkeypatch.setattr(streaming, "_settings", lambda *asked: replace(settings(*asked), **TINY))


@pytest.fixture(autouse=True)
def inlined_on_direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the direct runner inline functions from the first element on."""
    run = DirectRunner.run
    monkeypatch.setattr(
        DirectRunner, "run", lambda self, pipeline, options: run(self, pipeline, replaced(options, inline="always"))
    )


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """A test marked `refused` passes if the named runner refuses it."""
    marker = pyfuncitem.get_closest_marker("refused")
    if marker is None:
        return (yield)
    (name,) = marker.args
    with pytest.raises(UnsupportedError, match=f"the {name} runner does not run "):
        yield
    return True


def available(name: str) -> str:
    """The name, if that runner can run here; else the test is skipped."""
    try:
        lacks = find_runner(name).missing()
    except (ImportError, TidegateError) as error:
        lacks = [str(error)]
    if lacks:
        pytest.skip(f"the {name} runner can't be used here: {'; '.join(lacks)}")
    return name


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark_session")
    return available(request.param.partition("-")[0])


@pytest.fixture(scope="session", autouse=True)
def micro_batches() -> Iterator[None]:
    """Let pipelines name the runners of `MICRO_BATCHES`."""
    with pytest.MonkeyPatch.context() as patch:
        for name in MICRO_BATCHES:
            patch.setitem(BUILT_IN, name, f"tests.support.spark.micro_batches:{name}")
        yield


@pytest.fixture(scope="session")
def stream_runner(request: pytest.FixtureRequest) -> str:
    if request.param in MICRO_BATCHES:
        return str(request.param)
    return available(request.param.partition("-")[0])


@pytest.fixture(scope="session")
def bounded_only_runner(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark_session")
    return available(request.param)
