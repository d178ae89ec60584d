"""The runners the contract is tested on: `runner` is each of them, `stream_runner` each that runs unbounded input.

A test that asks for a `stream_runner` is made for those that run bounded data only too: there it passes if the runner
refuses, by name and before it runs anything, what the test asks of it.

All are tested always. `TIDEGATE_TEST_RUNNERS=direct` or, where the plugin is loaded, `--tidegate-runner` choose.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from tidegate.sdk.errors import TidegateError, UnsupportedError
from tidegate.sdk.runner import BUILT_IN, find_runner

BOUNDED_ONLY = frozenset({"spark"})
ALWAYS = "direct,streaming,spark"


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
        metafunc.parametrize("runner", list(map(running, names)), indirect=True, scope="session")
    if "stream_runner" in metafunc.fixturenames:
        # Of a property one refusal would be found as an example that fails, and made smaller.
        refusing = [] if hasattr(metafunc.function, "hypothesis") else bounded_only
        refused = [pytest.param(name, marks=pytest.mark.refused(name)) for name in refusing]
        streams = [running(name) for name in names if name not in BOUNDED_ONLY]
        metafunc.parametrize("stream_runner", [*streams, *refused], indirect=True, scope="session")
    if "bounded_only_runner" in metafunc.fixturenames:
        metafunc.parametrize("bounded_only_runner", list(map(running, bounded_only)), indirect=True, scope="session")


def running(name: str) -> Any:
    """A runner as a parameter; what runs on Spark is run by one of xdist's workers."""
    return pytest.param(name, marks=[pytest.mark.xdist_group("spark")] if name == "spark" else [])


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
    return available(request.param)


@pytest.fixture(scope="session")
def stream_runner(request: pytest.FixtureRequest) -> str:
    return available(request.param)


@pytest.fixture(scope="session")
def bounded_only_runner(request: pytest.FixtureRequest) -> str:
    if request.param == "spark":
        request.getfixturevalue("spark_session")
    return available(request.param)
