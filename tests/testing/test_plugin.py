"""The pytest plugin, as its users see it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pytest_subprocess import INSTALLED, ROOT, run_pytest

HEAD = "import tidegate as tg\nfrom tidegate.testing import *\n"


def test_a_pipeline_that_the_test_has_run_is_not_run_again(tmp_path: Path) -> None:
    test = HEAD + (
        "seen = []\n"
        "def test_it(pipeline):\n"
        "    assert_that(pipeline | tg.Create([1]), lambda values: seen.append(values))\n"
        "    pipeline.run()\n"
        "def test_once():\n"
        "    assert seen == [[1]]\n"
    )
    code, printed = run_pytest(tmp_path, test)
    assert code == 0, printed


def test_a_pipeline_whose_run_was_expected_to_fail_is_not_run_again(tmp_path: Path) -> None:
    test = HEAD + (
        "import pytest\n"
        "def test_it(pipeline):\n"
        "    assert_that(pipeline | tg.Create([0]) | tg.Map(lambda n: 1 // n), is_empty())\n"
        "    with pytest.raises(tg.UserCodeError):\n"
        "        pipeline.run()\n"
    )
    code, printed = run_pytest(tmp_path, test)
    assert code == 0, printed


def test_a_pipeline_without_steps_is_left_alone(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, "def test_it(pipeline):\n    pass\n")
    assert code == 0, printed


def test_a_failing_test_is_not_failed_again_by_its_pipeline(tmp_path: Path) -> None:
    test = HEAD + (
        "def test_it(pipeline):\n"
        "    assert_that(pipeline | tg.Create([1]), is_empty())\n"
        "    assert 'mine' == 'the first failure'\n"
    )
    code, printed = run_pytest(tmp_path, test)
    assert code == 1
    assert "the first failure" in printed
    assert "fails the assertion" not in printed


def test_an_assertion_that_was_never_checked_fails_its_test(tmp_path: Path) -> None:
    test = HEAD + (
        "def test_forgotten():\n"
        "    pipeline = TestPipeline()\n"
        "    assert_that(pipeline | tg.Create([1]), equal_to([1]))\n"
        "def test_other():\n"
        "    pass\n"
    )
    code, printed = run_pytest(tmp_path, test)
    assert code == 1
    assert "test_mine.py:5 was never checked: run its TestPipeline" in printed
    assert "1 failed, 1 passed" in printed


def test_an_unchecked_assertion_of_a_failing_test_does_not_fail_the_next_test(tmp_path: Path) -> None:
    test = HEAD + (
        "kept = []\n"
        "def test_fails():\n"
        "    kept.append(TestPipeline())\n"
        "    assert_that(kept[0] | tg.Create([1]), equal_to([1]))\n"
        "    assert 1 == 2\n"
        "def test_other():\n"
        "    pass\n"
    )
    code, printed = run_pytest(tmp_path, test)
    assert code == 1
    assert "1 failed, 1 passed" in printed


RUNNERS = HEAD + (
    "def test_fixture(pipeline):\n"
    "    assert_that(pipeline | tg.Create([1]), equal_to([1]))\n"
    "def test_own(tidegate_runner):\n"
    "    with TestPipeline() as pipeline:\n"
    "        assert_that(pipeline | tg.Create([1]), equal_to([1]))\n"
    "def test_no_pipeline():\n"
    "    pass\n"
)


def test_tests_that_use_the_fixtures_run_on_each_requested_runner(tmp_path: Path) -> None:
    flags = ["--tidegate-runner", "direct", "--tidegate-runner=direct", "-vv"]
    code, printed = run_pytest(tmp_path, RUNNERS, *flags)
    assert code == 0, printed
    assert "test_fixture[direct] PASSED" in printed
    assert "test_own[direct] PASSED" in printed
    assert "test_no_pipeline PASSED" in printed
    code, printed = run_pytest(tmp_path, RUNNERS, "-vv")
    assert "test_fixture PASSED" in printed


def test_an_unknown_runner_is_a_usage_error(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, RUNNERS, "--tidegate-runner=flink")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "--tidegate-runner: there is no runner 'flink'; the runners are direct" in printed


def test_a_runner_whose_package_is_missing_is_skipped_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tidegate.sdk.options import registry\nregistry.BUILT_IN['far'] = 'a_package_that_is_missing:Runner'\n"
    )
    code, printed = run_pytest(tmp_path, RUNNERS, "--tidegate-runner=far", "--tidegate-runner=direct", "-rs")
    assert code == 0, printed
    assert "3 passed, 2 skipped" in printed
    assert "the far runner can't be used here: No module named 'a_package_that_is_missing'" in printed


def test_a_runner_with_missing_requirements_is_skipped_and_they_are_named(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tidegate.sdk.options import registry\n"
        "from tidegate.runners.direct import DirectRunner\n"
        "class Far(DirectRunner):\n"
        "    @classmethod\n"
        "    def missing(cls):\n"
        "        return ['Java 17', 'a license']\n"
        "registry.BUILT_IN['far'] = 'conftest:Far'\n"
    )
    code, printed = run_pytest(tmp_path, RUNNERS, "--tidegate-runner=far", "-rs")
    assert code == 0, printed
    assert "the far runner can't be used here: Java 17; a license" in printed


def test_test_pipelines_work_without_the_plugin(tmp_path: Path) -> None:
    test = HEAD + (
        "def test_it():\n"
        "    with TestPipeline() as pipeline:\n"
        "        assert_that(pipeline | tg.Create([1]), equal_to([1]))\n"
    )
    code, printed = run_pytest(tmp_path, test, plugin=False)
    assert code == 0, printed


def test_the_plugin_raises_no_warnings(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, RUNNERS, "-W", "error")
    assert code == 0, printed


def test_tests_run_in_several_processes(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, RUNNERS, "-n", "2", "--tidegate-runner=direct")
    assert code == 0, printed
    assert "3 passed" in printed


def test_the_plugin_imports_no_heavy_modules_before_it_is_used() -> None:
    script = (
        "import sys, tidegate.testing.plugin\n"
        "heavy = {'pydantic', 'hypothesis', 'cloudpickle', 'tidegate.runners', 'tidegate.testing.harness'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.skipif(not INSTALLED, reason="the package is not installed, only on the path")
def test_an_installed_package_registers_its_plugin(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, RUNNERS, "--fixtures")
    assert code == 0
    assert "tidegate_runner" in printed


RAISING = HEAD + "def bad(x):\n    return 1 // x\n"


@pytest.mark.parametrize(
    "body",
    [
        "def test_it(pipeline):\n    assert_that(pipeline | tg.Create([0]) | tg.Map(bad), is_empty())\n",
        "def test_it(pipeline):\n    _ = pipeline | tg.Create([0]) | tg.Map(bad)\n",
        "def test_it(pipeline):\n    _ = pipeline | tg.Create([0]) | tg.Map(bad)\n    pipeline.run()\n",
        "def test_it():\n    with TestPipeline() as p:\n        _ = p | tg.Create([0]) | tg.Map(bad)\n",
        "def test_it(pipeline):\n    _ = pipeline | tg.Create([0]) | tg.Map(3)\n",
    ],
    ids=["asserted", "not asserted", "run", "with", "while it is built"],
)
def test_a_failure_shows_only_the_frames_of_the_author(tmp_path: Path, body: str) -> None:
    code, printed = run_pytest(tmp_path, RAISING + body)
    assert code == 1
    assert "tidegate/" not in printed.replace(str(tmp_path), "")
    if "takes a function, not 3" not in printed:
        assert "test_mine.py:4: ZeroDivisionError" in printed
        assert "in step 'Map(bad)', applied at" in printed


def test_all_frames_are_shown_on_request(tmp_path: Path) -> None:
    test = RAISING + "def test_it(pipeline):\n    _ = pipeline | tg.Create([0]) | tg.Map(bad)\n"
    code, printed = run_pytest(tmp_path, test, "--full-trace")
    assert code == 1
    assert "plugin.py" in printed


SCRIPTED = HEAD + (
    "def test_stream(pipeline):\n"
    "    assert_that(pipeline | TestStream().add_elements([1]), equal_to([1]))\n"
    "def test_refused(pipeline):\n"
    "    pipeline | tg.Create([0]) | tg.Feedback(lambda x: tg.Round(x | tg.Filter(bool), out=x))\n"
)


def test_a_test_stream_is_skipped_on_a_runner_without_support_and_other_refusals_fail(tmp_path: Path) -> None:
    code, printed = run_pytest(tmp_path, SCRIPTED, "--tidegate-runner", "spark", "-rs")
    if "the spark runner can't be used here" in printed:
        pytest.skip("Spark can't be used here")
    assert code == 1
    assert "1 failed, 1 skipped" in printed
    assert "SKIPPED [1] " in printed
    assert "the spark runner does not run TestStream" in printed
