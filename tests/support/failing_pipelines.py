"""Runs pipelines that must fail, and returns the errors that their authors see."""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg

HERE = str(Path(__file__).parents[1])


def run_to_failure(
    build: Callable[[tg.Pipeline], Any], runner: tg.Runner | None = None, **options: Any
) -> tg.TidegateError:
    """Build and run a pipeline, and return the error, one of Tidegate's own."""
    pipeline = tg.Pipeline(runner, options or None)
    with pytest.raises(tg.TidegateError) as raised:  # noqa: PT012 - either may fail, building or running
        build(pipeline)
        pipeline.run()
    return raised.value


def error_message(build: Callable[[tg.Pipeline], Any], runner: tg.Runner | None = None, **options: Any) -> str:
    """The type and the full message of the error, without the line at which a step was applied, which is checked."""
    error = run_to_failure(build, runner, **options)
    return f"{type(error).__name__}: {_without_line(str(error))}"


def _without_line(message: str) -> str:
    found = re.search(r"\n  (?:in step '(.*)', )?applied at (.*):(\d+)", message)
    if found is None:
        return message
    label, file, line = found.groups()
    assert file.startswith(HERE), file
    applied = linecache.getline(file, int(line))
    assert label is None or label.rpartition("/")[2].partition("(")[0] in applied, (
        f"{label!r} is not applied in {applied!r}"
    )
    return message[: found.start(2)] + "HERE" + message[found.end(3) :]
