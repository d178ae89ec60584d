"""Running only the steps upstream of one collection, to fetch its elements.

No sink is upstream of a collection, so such a run writes nothing but the recorded elements, to a temporary directory.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from tidegate.sdk.data.values import WindowedValue
from tidegate.sdk.errors import BuildError, RunError
from tidegate.sdk.interactive.recorder import ENOUGH, Record, record, recorded, recording_directory
from tidegate.sdk.options.script import running
from tidegate.sdk.pipeline import PCollection
from tidegate.sdk.runner import Enough, Runner
from tidegate.sdk.time import Duration, DurationLike, Timestamp
from tidegate.sdk.user_code.validation import positive_count

LIMIT: Final = 1_000_000
"""The default limit of `collect`."""

_POLL: Final = 0.05
"""Seconds between two checks whether a run has recorded enough elements."""


def collect(
    pcoll: PCollection[Any],
    *,
    limit: int | None,
    include_window_info: bool,
    runner: str | Runner | None,
    run_for: DurationLike | None,
) -> list[Any]:
    """All elements of a collection. RunError if there are more than `limit`."""
    if limit is not None:
        positive_count("collect", "limit", limit)
    if not pcoll.is_bounded and run_for is None and pcoll.pipeline.options.run_for is None:
        raise BuildError(
            f"PCollection({pcoll.id!r}) is unbounded, so it is never complete: "
            "write collect(run_for=10) for the elements that arrive within 10 seconds, or head(n)"
        )
    most = None if limit is None else limit + 1
    found = records(pcoll, most, per_window=include_window_info, runner=runner, run_for=run_for)
    if most is not None and len(found) == most:
        raise RunError(
            f"PCollection({pcoll.id!r}) has more than {limit:,} elements, the limit of what collect() loads into "
            "memory: use head(n), write the collection to a file, or use collect(limit=...), where None means no limit"
        )
    return _values(found, include_window_info)


def head(
    pcoll: PCollection[Any],
    n: int,
    *,
    include_window_info: bool,
    runner: str | Runner | None,
    run_for: DurationLike | None,
) -> list[Any]:
    """The first `n` elements that the run emits."""
    positive_count("head", "n", n)
    return _values(
        records(pcoll, n, per_window=include_window_info, runner=runner, run_for=run_for), include_window_info
    )


def records(
    pcoll: PCollection[Any],
    most: int | None,
    *,
    per_window: bool = True,
    runner: str | Runner | None = None,
    run_for: DurationLike | None = None,
) -> list[Record]:
    """Run the steps upstream of a collection and return its first elements, at most `most`."""
    part = pcoll.pipeline.leading_to(pcoll, runner, None if run_for is None else Duration.of(run_for))
    directory = recording_directory(part.pipeline)
    record(part, directory, per_window=per_window, limit=most)
    enough = None if most is None else Enough((directory / ENOUGH).exists, most)
    with running():
        result = part.pipeline.run_until(enough)
        while enough is not None and not result.state.ended:
            if enough.asked():
                result.stop()
                break
            result.wait_until_finish(_POLL)
        result.wait_until_finish()
    return list(islice(recorded(directory), most))


def _values(records: list[Record], include_window_info: bool) -> list[Any]:
    if not include_window_info:
        return [value for value, _, _, _ in records]
    return [WindowedValue(value, Timestamp(micros=micros), (window,), pane) for value, micros, window, pane in records]
