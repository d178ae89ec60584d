"""The runners the contract is tested on: `runner` is each of them, `stream_runner` each that runs unbounded input.

The streaming runner is tested with 2 workers always, and with 1 and 3 on a sample of the tests, the same each time;
`--streaming-workers all` runs every test on all three.

A test that asks for a `stream_runner` is made for those that run bounded data only too: there it passes if the runner
refuses, by name and before it runs anything, what the test asks of it.

All are tested always. `TIDEGATE_TEST_RUNNERS=direct` or, where the plugin is loaded, `--tidegate-runner` choose.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator, Iterable
from typing import Any, Final

import pytest

from tidegate.sdk.errors import TidegateError, UnsupportedError
from tidegate.sdk.runner import BUILT_IN, find_runner

BOUNDED_ONLY = frozenset({"spark"})
ALWAYS = "direct,streaming,spark"
WORKERS: Final = {"streaming": 2, "streaming-1": 1, "streaming-3": 3}
"""How many workers run what is tested on the streaming runner under each of these names."""
SAMPLE: Final = 12
"""One in so many tests is of the sample."""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "refused(runner): the test passes if this runner refuses what it asks for")


def chosen(config: pytest.Config) -> list[str]:
    """The runners asked for, as far as there are such."""
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
        # Of a property one refusal would be found as an example that fails, and made smaller.
        refusing = [] if hasattr(metafunc.function, "hypothesis") else bounded_only
        refused = [pytest.param(name, marks=pytest.mark.refused(name)) for name in refusing]
        streams = running(name for name in names if name not in BOUNDED_ONLY)
        metafunc.parametrize("stream_runner", [*streams, *refused], indirect=True, scope="session")
    if "bounded_only_runner" in metafunc.fixturenames:
        metafunc.parametrize("bounded_only_runner", running(bounded_only), indirect=True, scope="session")


def running(names: Iterable[str]) -> list[Any]:
    """Runners as parameters; what runs on Spark is run by one of xdist's workers."""
    every = [each for name in names for each in (WORKERS if name == "streaming" else [name])]
    return [pytest.param(name, marks=[pytest.mark.xdist_group("spark")] if name == "spark" else []) for name in every]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of other numbers of workers than 2, leave the sample: as it goes by the tests' names, it is always the same."""
    if config.getoption("--streaming-workers") == "all":
        return
    left_out = [item for item in items if workers_of(item) in (1, 3) and zlib.crc32(item.nodeid.encode()) % SAMPLE]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        dropped = set(left_out)
        items[:] = [item for item in items if item not in dropped]


def workers_of(item: pytest.Item) -> int | None:
    """How many workers the streaming runner has in a test of this folder; None where it is another runner's."""
    parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    name = parameters.get("runner", parameters.get("stream_runner"))
    return WORKERS.get(name) if isinstance(name, str) else None  # elsewhere the word has other meanings


@pytest.fixture(autouse=True)
def workers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The streaming runner finds as many processors as it is to have workers."""
    number = workers_of(request.node)
    if number is not None:
        monkeypatch.setattr("tidegate.runners.streaming.runner.processors", lambda: number)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """A test that is `refused` passes if the runner named refuses it."""
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


@pytest.fixture(scope="session")
def stream_runner(request: pytest.FixtureRequest) -> str:
    return available(request.param.partition("-")[0])


@pytest.fixture(scope="session")
def bounded_only_runner(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark_session")
    return available(request.param)
