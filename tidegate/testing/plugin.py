"""The pytest plugin: the fixture `pipeline`, and `--tidegate-runner` to run the tests that use it on other runners.

Tidegate's pipelines are imported by the tests that use them, not when pytest starts.
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
            raise pytest.UsageError(f"--tidegate-runner: there is no runner {name!r}; there are: {', '.join(known)}")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = list(dict.fromkeys(metafunc.config.getoption("--tidegate-runner")))
    if chosen and RUNNER_FIXTURE in metafunc.fixturenames:
        metafunc.parametrize(RUNNER_FIXTURE, chosen, indirect=True, scope="session")


@pytest.fixture(scope="session")
def tidegate_runner(request: pytest.FixtureRequest) -> str:
    """The name of the runner this test is for; a `TestPipeline()` made in the test runs on that."""
    name: str = getattr(request, "param", "direct")
    reason = _why_unavailable(name)
    if reason is not None:
        pytest.skip(f"the {name} runner can't be used here: {reason}")
    return name


@pytest.fixture
def pipeline(tidegate_runner: str) -> TestPipeline:
    """A TestPipeline, run when the test ends if the test has not run it itself."""
    from tidegate.testing.test_pipeline import TestPipeline

    return TestPipeline(tidegate_runner, name="test")


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Run the test's pipeline after its body, as part of the test, so that a failure is the test's."""
    __tracebackhide__ = True
    runner: Any = pyfuncitem.funcargs.get(RUNNER_FIXTURE)
    own: Any = pyfuncitem.funcargs.get("pipeline")
    try:
        with _running_on(runner):
            result = yield
            if _runs_at_the_end(own):
                own.run()
    except BaseException as error:
        _forgotten()  # the test has failed already; its pipelines are no concern of the next one's
        if runner is not None:
            _skip_if_refused(runner, error)
        if not pyfuncitem.config.getoption("fulltrace", default=False):
            _trim(error, pyfuncitem, own)
        raise
    for at in _forgotten():
        pytest.fail(f"the assert_that at {at} was never checked: run its TestPipeline, best by `with`", pytrace=False)
    return result


def _skip_if_refused(runner: str, error: BaseException) -> None:
    """Skip a test that scripts a stream, where the runner that was chosen for it has none."""
    if "tidegate" not in sys.modules:
        return
    from tidegate.sdk.errors import UnsupportedError

    if isinstance(error, UnsupportedError) and f"the {runner} runner does not run TestStream" in str(error):
        pytest.skip(str(error).partition("\n")[0])


def _runs_at_the_end(own: Any) -> bool:
    """Whether the fixture `pipeline` is a TestPipeline that has steps and has not run."""
    if "tidegate.testing.test_pipeline" not in sys.modules:
        return False
    from tidegate.testing.test_pipeline import TestPipeline

    return isinstance(own, TestPipeline) and not own.finished and not own.is_empty


def _trim(error: BaseException, item: pytest.Function, own: Any) -> None:
    """Leave Tidegate's own frames out of an error that it raised. If the pipeline ran when the test's function had
    returned, no frame of that is left: then the line of an assertion stands for it."""
    if "tidegate" not in sys.modules:
        return
    from tidegate.sdk.errors import TidegateError
    from tidegate.sdk.user_code.frames import author_frames

    if not isinstance(error, TidegateError):
        return
    trace = shown = author_frames(error.__traceback__)
    while shown is not None and shown.tb_frame.f_code.co_filename != str(item.path):
        shown = shown.tb_next
    if shown is None and own is not None and own.assertions:
        trace = own.assertions[0].trace()
    if trace is not None:  # else what there is hides itself
        error.__traceback__ = trace


@contextmanager
def _running_on(runner: Any) -> Iterator[None]:
    """TestPipelines that name no runner run on this one."""
    if runner is None:
        yield
        return
    from tidegate.testing import test_pipeline

    before, test_pipeline.default_runner = test_pipeline.default_runner, runner
    try:
        yield
    finally:
        test_pipeline.default_runner = before


def _forgotten() -> list[Where]:
    """The places of assertions that no run has checked; each is reported once."""
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
