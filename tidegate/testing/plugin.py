"""The pytest plugin: the fixture `pipeline`, and `--tidegate-runner` to run the tests that use it on other runners.

It imports the rest of Tidegate only when a test needs it, so that other tests start as fast as without the plugin.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tidegate.sdk.user_code.frames import Where
    from tidegate.testing.test_pipeline import TestPipeline

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
    from tidegate.sdk.options.registry import runner_names

    known = runner_names()
    for name in chosen:
        if name not in known:
            raise pytest.UsageError(
                f"--tidegate-runner: there is no runner {name!r}; the runners are {', '.join(known)}"
            )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = list(dict.fromkeys(metafunc.config.getoption("--tidegate-runner")))
    if chosen and RUNNER_FIXTURE in metafunc.fixturenames:
        metafunc.parametrize(RUNNER_FIXTURE, chosen, indirect=True, scope="session")


@pytest.fixture(scope="session")
def tidegate_runner(request: pytest.FixtureRequest) -> str:
    """The name of the runner for this test; a `TestPipeline()` made in the test runs on it."""
    name: str = getattr(request, "param", "direct")
    reason = _why_unavailable(name)
    if reason is not None:
        pytest.skip(f"the {name} runner can't be used here: {reason}")
    return name


@pytest.fixture
def pipeline(tidegate_runner: str) -> TestPipeline:
    """A TestPipeline, which is run at the end of the test if the test has not run it."""
    from tidegate.testing.test_pipeline import TestPipeline

    return TestPipeline(tidegate_runner, name="test")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Run the test's pipeline after its body, as part of the test, so that a failure of the pipeline fails the test."""
    __tracebackhide__ = True
    runner: Any = pyfuncitem.funcargs.get(RUNNER_FIXTURE)
    pipeline: Any = pyfuncitem.funcargs.get("pipeline")
    try:
        with _running_on(runner):
            result = yield
            if _runs_at_the_end(pipeline):
                pipeline.run()
    except BaseException as error:
        _unchecked_assertions()  # so that they don't fail the next test: this one has already failed
        if runner is not None:
            _skip_if_refused(runner, error)
        if not pyfuncitem.config.getoption("fulltrace", default=False):
            _trim(error, pyfuncitem, pipeline)
        raise
    for at in _unchecked_assertions():
        pytest.fail(f"the assert_that at {at} was never checked: run its TestPipeline, best by `with`", pytrace=False)
    return result


def _skip_if_refused(runner: str, error: BaseException) -> None:
    """Skip a test that uses a TestStream if the runner chosen for it doesn't run those."""
    if "tidegate" not in sys.modules:
        return
    from tidegate.sdk.errors import UnsupportedError

    if isinstance(error, UnsupportedError) and f"the {runner} runner does not run TestStream" in str(error):
        pytest.skip(str(error).partition("\n")[0])


def _runs_at_the_end(pipeline: Any) -> bool:
    """True if the fixture `pipeline` is a TestPipeline that has steps and has not run."""
    if "tidegate.testing.test_pipeline" not in sys.modules:
        return False
    from tidegate.testing.test_pipeline import TestPipeline

    return isinstance(pipeline, TestPipeline) and not pipeline.finished and not pipeline.is_empty


def _trim(error: BaseException, item: pytest.Function, pipeline: Any) -> None:
    """Remove Tidegate's frames from the traceback of an error that it raised.

    If the pipeline ran after the test's function had returned, the traceback has no frame of the test: it then points
    to the line of an assertion.
    """
    if "tidegate" not in sys.modules:
        return
    from tidegate.sdk.errors import TidegateError
    from tidegate.sdk.user_code.frames import author_frames

    if not isinstance(error, TidegateError):
        return
    trace = test_frame = author_frames(error.__traceback__)
    while test_frame is not None and test_frame.tb_frame.f_code.co_filename != str(item.path):
        test_frame = test_frame.tb_next
    if test_frame is None and pipeline is not None and pipeline.assertions:
        trace = pipeline.assertions[0].trace()
    if trace is not None:  # else only frames marked with __tracebackhide__ are left
        error.__traceback__ = trace


@contextmanager
def _running_on(runner: Any) -> Iterator[None]:
    """Make `runner` the runner of TestPipelines that name none."""
    if runner is None:
        yield
        return
    from tidegate.testing import test_pipeline

    before, test_pipeline.default_runner = test_pipeline.default_runner, runner
    try:
        yield
    finally:
        test_pipeline.default_runner = before


def _unchecked_assertions() -> list[Where]:
    """The places of assertions that no run has checked; each is returned once."""
    if "tidegate.testing.test_pipeline" not in sys.modules:
        return []
    from tidegate.testing.test_pipeline import unchecked

    pipelines = unchecked()
    for pipeline in pipelines:
        pipeline.finished = True
    return [pipeline.assertions[0].where for pipeline in pipelines]


def _why_unavailable(name: str) -> str | None:
    from tidegate.sdk.errors import TidegateError
    from tidegate.sdk.runner import find_runner

    try:
        missing = find_runner(name).missing()
    except (ImportError, TidegateError) as error:
        return str(error)
    return "; ".join(missing) or None
