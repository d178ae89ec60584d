"""Errors across Spark: a worker's exception ends with one marked payload, from which the driver raises the author's."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidegate.runners.engine.errors.transport import packed, unpacked
from tidegate.sdk.errors import RunError, TidegateError

_MARK: Final = re.compile(r"tidegate-error:([A-Za-z0-9+/=]+):end")

_CALLED: Final = re.compile(r"^(An error occurred while calling \S+\s*: )?\(?org\.apache\.spark\.\w+(: |\) )")
_OTHER_RESULTS: Final = re.compile(r"indeterminate output|checksum mismatch", re.IGNORECASE)
_CANCELLED: Final = re.compile(r"SPARK_JOB_CANCELLED|\bOPERATION_CANCELED\b|\bJob \d+ (was )?cancelled\b")
NOT_DETERMINISTIC: Final = (
    "work of an executor that was lost has been done again, and gave other results than before, so some code of the "
    "pipeline is not deterministic (clocks, random numbers, what other machines answer). No output was committed. Run "
    "it again, or have the code give the same for the same elements"
)
"""Why a run has ended in which Spark, or a later action, found rows made anew to be other rows."""

_OF_TRACE: Final = re.compile(r"\s*(at |\.\.\. \d+ more)")


class WorkerFailure(Exception):
    """What a worker raises: its text carries the error."""


def marked(error: BaseException) -> WorkerFailure:
    """The exception to leave a worker with."""
    return WorkerFailure(f"{error}\ntidegate-error:{base64.b64encode(packed(error)).decode()}:end")


def unmarked(text: str) -> TidegateError | None:
    """The author's error inside what Spark says, the last one marked; None if there is none."""
    found = _MARK.findall(text)
    return unpacked(base64.b64decode(found[-1])) if found else None


class Cancelled(Exception):
    """Somebody has cancelled the job: by its group, by a tag, or on Spark's pages."""


@contextmanager
def raised_by(what: str = "Spark could not finish the run") -> Iterator[None]:
    """What Spark raises inside, as the author's own error where a worker has marked one, else as a RunError that says
    `what` went wrong; Cancelled where somebody has ended its jobs."""
    try:
        yield
    except (TidegateError, Cancelled):
        raise
    except Exception as error:
        if _interrupted(error):  # which left a connection to Java in the middle of an answer
            raise KeyboardInterrupt from error
        text = text_of(error)
        found = unmarked(text)
        if found is None:
            if _CANCELLED.search(text):
                raise Cancelled(gist(text)) from error
            why = f"{NOT_DETERMINISTIC}.\nSpark says: " if _OTHER_RESULTS.search(text) else ""
            raise RunError(f"{what}: {why}{gist(text)}") from error
        raise found from found.__cause__


def _interrupted(error: BaseException) -> bool:
    """Whether it came while an interrupt was handled."""
    before = error.__context__
    while before is not None and not isinstance(before, KeyboardInterrupt):
        before = before.__context__
    return before is not None


def text_of(error: Exception) -> str:
    """What Spark says, by way of a Java that may have gone."""
    try:
        text = str(error)  # which asks Java
    except Exception:
        text = ""
    if isinstance(error, ConnectionError) or not text or "Answer from Java side is empty" in text:
        return "its Java process has ended; memory may be what it lacked (--spark_conf spark.driver.memory=4g)"
    return text


def gist(text: str) -> str:
    """What Spark says, without the JVM's trace."""
    told = text.partition("JVM stacktrace:")[0].partition("Driver stacktrace:")[0]
    told = _CALLED.sub("", told)
    lines = [line for line in told.splitlines() if line.strip() and not _OF_TRACE.match(line)]
    return "\n".join(lines if len(lines) <= 24 else [*lines[:4], "…", *lines[-20:]])
