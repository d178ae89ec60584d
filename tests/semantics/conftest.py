"""The runners the contract is tested on. `runner` is each of them, `stream_runner` each that runs unbounded input.

Those that start no processes of another system are tested always; `TIDEGATE_TEST_RUNNERS=direct,spark` or, where the
plugin is loaded, `--tidegate-runner` choose others.
"""

from __future__ import annotations

import os

import pytest

from tidegate.sdk.errors import TidegateError
from tidegate.sdk.runner import BUILT_IN, find_runner

BOUNDED_ONLY = frozenset({"spark"})
ALWAYS = "direct,streaming"


def chosen(config: pytest.Config) -> list[str]:
    """The runners asked for, as far as there are such."""
    asked = config.getoption("--tidegate-runner", default=[]) or os.environ.get("TIDEGATE_TEST_RUNNERS", ALWAYS).split(
        ","
    )
    return [name for name in BUILT_IN if name in asked]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = chosen(metafunc.config)
    if "runner" in metafunc.fixturenames:
        metafunc.parametrize("runner", names, indirect=True, scope="session")
    if "stream_runner" in metafunc.fixturenames:
        metafunc.parametrize(
            "stream_runner", [n for n in names if n not in BOUNDED_ONLY], indirect=True, scope="session"
        )
    if "bounded_only_runner" in metafunc.fixturenames:
        metafunc.parametrize(
            "bounded_only_runner", [n for n in names if n in BOUNDED_ONLY], indirect=True, scope="session"
        )


def available(name: str) -> str:
    try:
        find_runner(name)
    except (ImportError, TidegateError) as error:
        pytest.skip(f"the {name} runner can't be used here: {error}")
    return name


@pytest.fixture(scope="session")
def runner(request: pytest.FixtureRequest) -> str:
    return available(request.param)


@pytest.fixture(scope="session")
def stream_runner(request: pytest.FixtureRequest) -> str:
    return available(request.param)


@pytest.fixture(scope="session")
def bounded_only_runner(request: pytest.FixtureRequest) -> str:
    return available(request.param)
