"""Errors on Spark: the author's own error without the JVM's trace, and errors raised before Spark starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tidegate as tg
from tidegate.runners.spark import SparkRunner
from tidegate.runners.spark.plan import failures
from tidegate.runners.spark.plan.failures import error_in, translated_errors, worker_failure
from tidegate.sdk.connectors.sources import SimpleSource, Split
from tidegate.sdk.errors import KeyEncodingError, OptionsError, RunError, UnsupportedError, UserCodeError
from tidegate.testing import TestStream


def divide(x: int) -> float:
    return 1 / (x - 50)


def test_an_error_in_author_code_names_step_line_and_element(flags: list[str]) -> None:
    p = tg.Pipeline(options=flags)
    _ = p | tg.Create(range(100)) | "boom" >> tg.Map(divide)
    with pytest.raises(UserCodeError) as caught:
        p.run()
    error = caught.value
    assert (error.step, error.element) == ("boom", "50")
    assert error.where.startswith(__file__)
    assert "java" not in str(error).lower()
    assert "tidegate-error" not in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    (note,) = error.__cause__.__notes__
    assert "in divide\n    return 1 / (x - 50)" in note
    assert str(Path(tg.__file__).parent) + os.sep not in note


def test_an_error_after_a_shuffle_is_that_of_the_author_code(flags: list[str]) -> None:
    p = tg.Pipeline(options=flags)
    grouped = p | tg.Create(range(100)) | tg.Map(lambda x: (x % 3, x)) | tg.GroupByKey()
    _ = grouped | "boom" >> tg.MapTuple(lambda key, values: [][key])
    with pytest.raises(UserCodeError, match="IndexError") as caught:
        p.run()
    assert caught.value.step == "boom"


def test_an_element_that_is_not_a_pair_is_shown_in_the_error(flags: list[str]) -> None:
    p = tg.Pipeline(options=flags)
    _ = p | tg.Create([1, 2, 3]) | tg.Map(lambda x: x) | "group" >> tg.GroupByKey() | tg.Map(print)
    with pytest.raises(RunError, match=r"takes pairs \(key, value\), but got [123]\..*\n  in step 'group'"):
        p.run()


def test_a_key_without_an_encoding_is_refused(flags: list[str]) -> None:
    p = tg.Pipeline(options=flags)
    _ = p | tg.Create([1.0]) | tg.Map(lambda x: (x - float("nan"), 1)) | "group" >> tg.GroupByKey() | tg.Map(print)
    with pytest.raises(KeyEncodingError, match=r"NaN.*\n  in step 'group'"):
        p.run()


def test_the_error_of_an_element_that_cannot_be_pickled_names_the_step_that_emitted_it(flags: list[str]) -> None:
    p = tg.Pipeline(options=flags)
    elements = p | tg.Create(range(3)) | "open" >> tg.Map(lambda x: (x, open("/dev/null")))  # noqa: SIM115
    _ = elements | tg.GroupByKey() | tg.Map(print)
    with pytest.raises(tg.PicklingError, match=r"can't be sent between steps.*\n  in step 'open'"):
        p.run()


class Broken(SimpleSource[int]):
    def splits(self, desired: int) -> list[Split]:
        raise OSError("the disk is gone")

    def generate(self, split: Split, position: Any) -> Any:
        yield from ()


def test_an_error_while_listing_splits_names_the_step(flags: list[str]) -> None:
    p = tg.Pipeline(options=flags)
    _ = p | "look" >> tg.Read(Broken()) | tg.Map(print)
    with pytest.raises(UserCodeError, match="the disk is gone") as caught:
        p.run()
    assert caught.value.step == "look"


def test_features_of_unbounded_pipelines_are_refused_by_name() -> None:
    p = tg.Pipeline(SparkRunner())
    _ = p | "script" >> TestStream().add_elements([1]) | tg.Map(print)
    with pytest.raises(UnsupportedError, match=r"the spark runner does not run TestStream\n  in step 'script'"):
        p.run()
    p = tg.Pipeline(options=["--runner", "spark", "--mode", "streaming"])
    _ = p | tg.Create([1]) | tg.Map(print)
    with pytest.raises(UnsupportedError, match="--mode streaming"):
        p.run()


def test_the_last_error_in_a_message_of_spark_is_raised() -> None:
    first, last = worker_failure(ValueError("first")), worker_failure(KeyEncodingError("last"))
    found = error_in(f"Job aborted\n{first}\nCaused by:\n{last}\n at java.lang.Thread")
    assert type(found) is KeyEncodingError
    assert str(found) == "last"


def test_an_error_of_spark_itself_is_reported_without_the_jvms_trace() -> None:
    with pytest.raises(RunError) as caught, translated_errors():
        raise RuntimeError("executor lost\n\tat org.apache.Spark\nDriver stacktrace:\n\tat java.lang.Thread")
    assert str(caught.value) == "Spark could not finish the run: executor lost"


def test_an_error_that_cannot_be_pickled_is_reported_as_text() -> None:
    class Local(Exception):
        pass

    found = error_in(str(worker_failure(Local("inside"))))
    assert str(found) == "Local: inside"


def test_an_error_of_a_class_unknown_to_the_driver_is_reported_as_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere(Exception):
        pass

    monkeypatch.setitem(globals(), "Elsewhere", Elsewhere)
    Elsewhere.__qualname__ = "Elsewhere"
    try:
        raise UserCodeError("Elsewhere: gone\n  in step 'x'", step="x", where="a.py:1", element="7") from Elsewhere(
            "gone"
        )
    except UserCodeError as error:
        text = str(worker_failure(error))
    monkeypatch.delitem(globals(), "Elsewhere")
    found = error_in(text)
    assert isinstance(found, UserCodeError)
    assert (found.step, found.element) == ("x", "7")
    assert str(found.__cause__) == "Elsewhere: gone"


def test_recomputed_rows_that_differ_are_attributed_to_nondeterministic_code() -> None:
    message = (
        "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to "
    )
    message += "stage failure: A shuffle map stage with indeterminate output was failed and retried."
    with pytest.raises(RunError) as caught, translated_errors():
        raise RuntimeError(message)
    first, second = str(caught.value).split("\n")
    assert "some code of the pipeline is not deterministic (clocks, random numbers" in first
    assert second.startswith("Spark says: Job aborted due to stage failure: A shuffle map stage with")


def test_results_that_are_too_large_for_the_driver_are_explained() -> None:
    said = "org.apache.spark.SparkException: Job aborted due to stage failure: Total size of serialized results of 3 "
    said += "tasks (1210.3 MiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)"
    with pytest.raises(RunError) as caught, translated_errors():
        raise RuntimeError(said)
    first, second = str(caught.value).split("\n")
    assert first.startswith("Spark could not finish the run: the tasks send more to the driver than Spark allows: ")
    assert "the files that sinks stage" in first
    assert second.startswith("Spark says: Job aborted due to stage failure: Total size of serialized results")


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("exit 1", r"its Java process has ended; it may have run out of memory \(.*spark\.driver\.memory=4g"),
        ("exit 143", "its Java process was ended by SIGTERM; send that to this process alone, which then ends the run"),
        ("kill -9 $$", r"its Java process was killed by SIGKILL, .* out of memory; .* spark\.driver\.memory=1g"),
        ("sleep 600", r"its Java process has ended; it may have run out of memory"),
        (None, r"its Java process has ended; it may have run out of memory"),
    ],
)
def test_a_jvm_that_has_died_is_reported_with_a_remedy(
    command: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from py4j.protocol import Py4JNetworkError
    from pyspark import SparkContext

    class Py4JJavaError(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError

    process = None if command is None else subprocess.Popen(["bash", "-c", command])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    monkeypatch.setattr(failures, "_PATIENCE", 0.2 if command == "sleep 600" else 60.0)

    for error in (
        Py4JJavaError(),
        ConnectionRefusedError(111, "refused"),
        RuntimeError("Answer from Java side is empty"),
        Py4JNetworkError("Error while sending or receiving"),
    ):
        with pytest.raises(RunError, match=message), translated_errors():
            raise error
    if process is not None:
        process.kill()
        process.wait()


def test_a_setting_without_a_value_is_refused() -> None:
    from tidegate.runners.spark.driver.session import conf_pairs
    from tidegate.runners.spark.plan.options import SparkOptions

    with pytest.raises(OptionsError, match=r"--spark_conf takes name=value, not 'spark\.x'"):
        list(conf_pairs(SparkOptions(spark_conf=["spark.x"])))


def test_an_error_raised_while_an_interrupt_is_handled_becomes_the_interrupt() -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ConnectionError("Answer from Java side is empty")

    with pytest.raises(KeyboardInterrupt), translated_errors():
        interrupted()
