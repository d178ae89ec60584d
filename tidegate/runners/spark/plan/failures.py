"""Errors that cross Spark: a worker appends the pickled error to its exception's text, and the driver raises it.

>>> from tidegate.sdk.errors import RunError
>>> error_in(f"Job aborted due to stage failure: {worker_failure(RunError('no such file'))}\\n\\tat java.lang.Thread")
RunError('no such file')
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from tidegate.runners.engine.errors.transport import packed, unpacked
from tidegate.sdk.errors import RunError, TidegateError

_PAYLOAD: Final = re.compile(r"tidegate-error:([A-Za-z0-9+/=]+):end")

_JAVA_PREFIX: Final = re.compile(r"^(An error occurred while calling \S+\s*: )?\(?org\.apache\.spark\.\w+(: |\) )")
_NONDETERMINISTIC: Final = re.compile(r"indeterminate output|checksum mismatch", re.IGNORECASE)
_JOB_CANCELLED: Final = re.compile(r"SPARK_JOB_CANCELLED|\bOPERATION_CANCELED\b|\bJob \d+ (was )?cancelled\b")
NOT_DETERMINISTIC: Final = (
    "tasks of a lost executor were run again and gave different results, so some code of the pipeline is not "
    "deterministic (clocks, random numbers, responses of other services). No output was committed. Run the pipeline "
    "again, or make the code return the same results for the same elements"
)
"""The message of a run in which Spark, or a later action, found that recomputed rows differ from the first ones."""

_ROWS_LOST: Final = re.compile(r"CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND|Checkpoint block rdd_\d+_\d+ not found")
"""Spark's message if an executor was lost that had a local checkpoint."""

_RESULTS_TOO_LARGE: Final = re.compile(r"bigger than spark\.driver\.maxResultSize")
TOO_LARGE_FOR_DRIVER: Final = (
    "the tasks send more to the driver than Spark allows: the elements of side inputs and, if workers are on other "
    "machines, the files that sinks stage. Allow more, and give the driver the memory for it: "
    "--spark_conf spark.driver.maxResultSize=4g --spark_conf spark.driver.memory=8g"
)
"""The message of a run whose results exceed the limit of Spark's driver."""

_TRACE_LINE: Final = re.compile(r"\s*(at |\.\.\. \d+ more)")


class WorkerFailure(Exception):
    """The exception that a worker raises; its text contains the pickled error."""


def worker_failure(error: BaseException) -> WorkerFailure:
    """Wrap an error for the way from a worker to the driver."""
    return WorkerFailure(f"{error}\ntidegate-error:{base64.b64encode(packed(error)).decode()}:end")


def error_in(text: str) -> TidegateError | None:
    """The worker's error inside Spark's message, the last if there are several; None if there is none."""
    found = _PAYLOAD.findall(text)
    return unpacked(base64.b64decode(found[-1])) if found else None


class RowsLost(RunError):
    """What a round of a loop had left was lost with the executor that had it."""


class JobCancelled(Exception):
    """A Spark job of the run was cancelled: by its group, by a tag, or in Spark's UI."""


@contextmanager
def translated_errors(summary: str = "Spark could not finish the run") -> Iterator[None]:
    """Translate Spark's exceptions: into the worker's own error if the text contains one, into JobCancelled if the job
    was cancelled, else into a RunError that begins with `summary`."""
    try:
        yield
    except (TidegateError, JobCancelled):
        raise
    except Exception as error:
        if interrupted(error):  # Ctrl-C cut off an answer from Java, which makes py4j raise its own error
            raise KeyboardInterrupt from error
        text = message_of(error)
        found = error_in(text)
        if found is None:
            if _JOB_CANCELLED.search(text):
                raise JobCancelled(without_trace(text)) from error
            kind = RowsLost if _ROWS_LOST.search(text) else RunError
            raise kind(f"{summary}: {_explanation(text)}{without_trace(text)}") from error
        raise found from found.__cause__


def _explanation(text: str) -> str:
    """The reason for a failure that Spark's own message does not give; "" if there is none."""
    for pattern, reason in ((_NONDETERMINISTIC, NOT_DETERMINISTIC), (_RESULTS_TOO_LARGE, TOO_LARGE_FOR_DRIVER)):
        if pattern.search(text):
            return f"{reason}.\nSpark says: "
    return ""


def interrupted(error: BaseException) -> bool:
    """True if the error was raised while a KeyboardInterrupt was being handled."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__context__
    return before is not None


def message_of(error: Exception) -> str:
    """The message of one of Spark's exceptions. Reading it may fail because the JVM has died."""
    from py4j.protocol import Py4JNetworkError

    try:
        text = str(error)  # py4j fetches the text from the JVM
    except Exception:
        text = ""
    if isinstance(error, (ConnectionError, Py4JNetworkError)) or not text or "Answer from Java side is empty" in text:
        return f"its Java process {_ending_of_java()}"
    return text


def _ending_of_java() -> str:
    """How the JVM of this process has ended, and what to do about it."""
    try:
        code = _exit_code_of_java()
    except Exception:  # this process has not started one, or it is ending
        code = None
    match code:
        case 143:  # of a JVM that has handled SIGTERM
            return "was ended by SIGTERM; send that to this process alone, which then ends the run itself"
        case -9 | 137:
            return (
                "was killed by SIGKILL, perhaps by a system that is out of memory; to let Spark have less: "
                "--spark_conf spark.driver.memory=1g"
            )
        case _:
            return "has ended; it may have run out of memory (--spark_conf spark.driver.memory=4g)"


def _exit_code_of_java() -> int | None:
    from pyspark import SparkContext

    process: Any = SparkContext._gateway.proc  # type: ignore[union-attr]
    code: int = process.wait(_PATIENCE)
    return code


_PATIENCE: Final = 5.0
"""Seconds in which a JVM that no longer answers has ended."""


def without_trace(text: str) -> str:
    """Spark's message without the JVM's stack trace.

    >>> without_trace("executor lost\\n\\tat org.apache.spark.Task\\nDriver stacktrace:\\n\\tat java.lang.Thread")
    'executor lost'
    """
    message = text.partition("JVM stacktrace:")[0].partition("Driver stacktrace:")[0]
    message = _JAVA_PREFIX.sub("", message)
    lines = [line for line in message.splitlines() if line.strip() and not _TRACE_LINE.match(line)]
    return "\n".join(lines if len(lines) <= 24 else [*lines[:4], "…", *lines[-20:]])
