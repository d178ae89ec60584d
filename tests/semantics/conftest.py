"""The runners the contract is tested on. `runner` is each of them, `stream_runner` each that runs unbounded input.

`--tidegate-runner`, where the plugin is loaded, narrows the choice.
"""

from __future__ import annotations

import pytest

from tidegate.sdk.errors import TidegateError
from tidegate.sdk.runner import BUILT_IN, find_runner

BOUNDED_ONLY = frozenset({"spark"})


def chosen(config: pytest.Config) -> list[str]:
    """The runners asked for; all built-in ones if none are."""
    asked = config.getoption("--tidegate-runner", default=[]) or []
    return [name for name in BUILT_IN if not asked or name in asked]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = chosen(metafunc.config)
    if "runner" in metafunc.fixturenames:
        metafunc.parametrize("runner", names, indirect=True)
    if "stream_runner" in metafunc.fixturenames:
        metafunc.parametrize("stream_runner", [n for n in names if n not in BOUNDED_ONLY], indirect=True)
    if "bounded_only_runner" in metafunc.fixturenames:
        metafunc.parametrize("bounded_only_runner", [n for n in names if n in BOUNDED_ONLY], indirect=True)


def available(name: str) -> str:
    try:
        find_runner(name)
    except (ImportError, TidegateError) as error:
        pytest.skip(f"the {name} runner can't be used here: {error}")
    return name


@pytest.fixture
def runner(request: pytest.FixtureRequest) -> str:
    return available(request.param)


@pytest.fixture
def stream_runner(request: pytest.FixtureRequest) -> str:
    return available(request.param)


@pytest.fixture
def bounded_only_runner(request: pytest.FixtureRequest) -> str:
    return available(request.param)
