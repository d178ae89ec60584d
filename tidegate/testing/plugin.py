"""The pytest plugin: the fixture `pipeline`, and `--tidegate-runner` to run the tests that use it on other runners.

Tidegate's pipelines are imported by the tests that use them, not when pytest starts.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidegate.testing.asserting import TestPipeline

RUNNER_FIXTURE = "tidegate_runner"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("tidegate").addoption(
        "--tidegate-runner",
        action="append",
        metavar="NAME",
        default=[],
        help="run tests that use the fixture `pipeline` (or `tidegate_runner`) on this runner; repeatable",
    )


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("--tidegate-runner")
    if not chosen:
        return
    from tidegate.sdk.runner import runner_names

    known = runner_names()
    for name in chosen:
        if name not in known:
            raise pytest.UsageError(f"--tidegate-runner: there is no runner {name!r}; there are: {', '.join(known)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = list(dict.fromkeys(metafunc.config.getoption("--tidegate-runner")))
    if chosen and RUNNER_FIXTURE in metafunc.fixturenames:
        metafunc.parametrize(RUNNER_FIXTURE, chosen, indirect=True)


@pytest.fixture
def tidegate_runner(request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of the runner this test is for; a `TestPipeline()` made in it runs on that."""
    from tidegate.testing import asserting

    name: str = getattr(request, "param", "direct")
    reason = _why_unavailable(name)
    if reason is not None:
        pytest.skip(f"the {name} runner can't be used here: {reason}")
    before, asserting.default_runner = asserting.default_runner, name
    yield name
    asserting.default_runner = before


@pytest.fixture
def pipeline(tidegate_runner: str) -> TestPipeline:
    """A TestPipeline, run when the test ends if the test has not run it itself."""
    from tidegate.testing.asserting import TestPipeline

    return TestPipeline(tidegate_runner, name="test")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """When the test's own code is through, its pipeline runs as part of the test, so a failure is the test's."""
    result = yield
    if "tidegate.testing.asserting" not in sys.modules:
        return result
    from tidegate.testing.asserting import TestPipeline, unchecked

    own = pyfuncitem.funcargs.get("pipeline")
    if isinstance(own, TestPipeline) and not own.finished and not own.is_empty:
        own.run()
    for forgotten in unchecked():
        forgotten.finished = True
        where = forgotten.assertions[0].where
        pytest.fail(
            f"the assert_that at {where} was never checked: run its TestPipeline, best by `with`", pytrace=False
        )
    return result


def _why_unavailable(name: str) -> str | None:
    from tidegate.sdk.errors import TidegateError
    from tidegate.sdk.runner import find_runner

    try:
        find_runner(name)
    except (ImportError, TidegateError) as error:
        return str(error)
    return None
