"""The checks of sources: splits, readers and their positions, and input that can't be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from tidegate.sdk.connectors.sources import AsyncReader, Position, Source, Split
from tidegate.sdk.errors import BuildError, PositionLost, ReadError, error_text, shorten
from tidegate.sdk.time import MIN_MICROS
from tidegate.testing.conformance.reading import (
    Reading,
    SourceCase,
    drain,
    is_bounded,
    open_reader,
    read,
    read_all,
    splits_of,
    values_of,
)
from tidegate.testing.conformance.rules import NotApplicable, broken, copied
from tidegate.testing.matchers import difference

_PLENTY: Final = 1000
_POLLS: Final = 3


def reads_everything(case: SourceCase) -> None:
    """Reading all splits to their ends returns each element once, at most `limit` at a time."""
    for limit in (*case.limits, _PLENTY):
        source = case.source()
        case.compare(read_all(case, source, splits_of(case, source, 1), limit), f"read(limit={limit})")


def is_picklable(case: SourceCase) -> None:
    """A source can be pickled, before it is used and after, and its splits can, too."""
    source = case.source()
    copy = copied(case.calls, "the source", source)
    splits = splits_of(case, copy, 2)
    for split in splits:
        copied(case.calls, f"split {split.id!r}", split)
    read_all(case, source, splits_of(case, source, 2), _PLENTY)
    again = copied(case.calls, "the source after it was read", source)
    travelled = [copied(case.calls, f"split {split.id!r}", split) for split in splits]
    case.compare(read_all(case, again, travelled, _PLENTY), "a pickled copy, with splits of another copy")


def splits_cover_everything_once(case: SourceCase) -> None:
    """However many splits are desired, they are the same in each call, have different ids, and cover each element
    once."""
    for desired in case.desired:
        source = case.source()
        splits = splits_of(case, source, desired)
        ids = [split.id for split in splits]
        if len(set(ids)) < len(ids):
            twice = next(id for id in ids if ids.count(id) > 1)
            raise broken(
                f"with desired={desired}, {ids.count(twice)} splits have the id {twice!r}",
                "make the id of what a split covers, such as a path and an offset",
            )
        for other in (source, case.source()):
            again = [split.id for split in splits_of(case, other, desired)]
            if sorted(again) != sorted(ids):
                raise broken(
                    f"with desired={desired}, the ids were {shorten(ids)}, and then {shorten(again)}",
                    "compute ids from `desired` and the data alone, not from time, chance or counters",
                )
        limit = case.limits[0]
        case.compare(read_all(case, source, splits, limit), f"{len(splits)} splits of desired={desired}")


def resumes_at_every_position(case: SourceCase) -> None:
    """A new reader that starts at a position, after its journey through JSON, returns the elements behind it."""
    _skip_if_not_replayable(case)
    for desired in dict.fromkeys((1, max(case.desired))):
        source = case.source()
        splits = splits_of(case, source, desired)
        for at, limit in enumerate(case.limits):
            other = case.limits[(at + 1) % len(case.limits)]
            readings = drain(case, source, splits, limit=limit)
            for split in splits:
                for count, position in case.positions(readings[split.id].steps):
                    rest = drain(
                        case,
                        copied(case.calls, "the source", source),
                        [split],
                        limit=other,
                        starts={split.id: position},
                        wanted=len(readings[split.id].values) - count,
                    )[split.id]
                    _compare_rest(case, split, readings[split.id], count, position, rest.values)


def readers_are_independent(case: SourceCase) -> None:
    """Two readers of a split do not disturb each other, and one that was closed in the middle leaves nothing behind."""
    _skip_if_not_replayable(case)
    source = case.source()
    splits = splits_of(case, source, 1)
    whole = drain(case, source, splits, limit=1)
    for split in splits:
        reading = whole[split.id]
        first = open_reader(case, source, split)
        try:
            read(case, first, split, 1)
            second = drain(case, source, [split], limit=2, wanted=len(reading.values))[split.id]
            _compare_rest(case, split, reading, 0, None, second.values)
        finally:
            case.calls(f"close() of split {split.id!r}", first.close)
        third = drain(case, source, [split], limit=2, wanted=len(reading.values))[split.id]
        _compare_rest(case, split, reading, 0, None, third.values)


def splits_again(case: SourceCase) -> None:
    """`split_again` divides the rest of a split into splits with new ids, which together cover the rest once."""
    source = case.source()
    splits = splits_of(case, source, 1)
    readings = drain(case, source, splits, limit=case.limits[0])
    ids = {split.id for split in splits}
    divided = False
    for split in splits:
        reading = readings[split.id]
        for count, position in case.positions(reading.steps):
            for desired in (2, 3):
                what = f"split_again({split.id!r}, {shorten(position)}, {desired})"
                parts = case.calls(what, source.split_again, split, position, desired)
                if parts is None:
                    continue
                divided = True
                _check_parts(case, source, split, reading.values[count:], list(parts), what, ids)
    if not divided:
        raise NotApplicable("split_again returns None")


def _check_parts(
    case: SourceCase,
    source: Source[Any],
    split: Split,
    rest: list[Any],
    parts: list[Split],
    what: str,
    ids: set[str],
) -> None:
    new = [part.id for part in parts]
    if len(set(new)) < len(new) or ids & set(new):
        raise broken(
            f"{what} returned the ids {shorten(new)}, beside {shorten(sorted(ids))}",
            "give each part an id that no other split of the source has, for example with its first offset",
        )
    travelled = [copied(case.calls, f"split {part.id!r}", part) for part in parts]
    readings = drain(case, source, travelled, limit=2, wanted=len(rest))
    found = [value for reading in readings.values() for value in reading.values]
    problem = difference(rest, found) if not case.endless else None
    if problem is not None:
        raise broken(
            f"{what}: {problem}", "divide all that follows the position, and nothing before it, among the parts"
        )


def closes(case: SourceCase) -> None:
    """A reader and an enumerator can be closed at any time: unread, in the middle, at the end."""
    for reads in (0, 1, 2):
        source = case.source()
        enumerator = case.calls("enumerator(None)", source.enumerator, None)
        if enumerator is not None:
            case.calls("close() of the enumerator", enumerator.close)
        for split in splits_of(case, source, 2):
            reader = open_reader(case, source, split)
            for _ in range(reads):
                if read(case, reader, split, 1).end:
                    break
            case.calls(f"close() of split {split.id!r} after {reads} reads", reader.close)


def never_blocks(case: SourceCase) -> None:
    """A reader that has nothing returns an empty batch at once, and says how long to wait."""
    source = case.source()
    splits = splits_of(case, source, 1)
    if all(is_bounded(source, split) for split in splits):
        raise NotApplicable("the splits are bounded")
    readings = drain(case, source, splits, limit=_PLENTY)
    for split in splits:
        if readings[split.id].ended or case.endless:
            continue
        reader = open_reader(case, source, split, readings[split.id].steps[-1][1])
        try:
            for _ in range(_POLLS):
                batch = read(case, reader, split, 1)
                if not values_of(batch) and not batch.end and batch.wait <= 0:
                    raise broken(
                        f"an empty batch of split {split.id!r} has wait={batch.wait!r}",
                        "say in `wait` in how many seconds to read again; otherwise the runner spins",
                    )
        finally:
            case.calls(f"close() of split {split.id!r}", reader.close)


def watermark_never_goes_back(case: SourceCase) -> None:
    """A split's watermark does not decrease, and no element is earlier than a watermark before it."""
    source = case.source()
    splits = splits_of(case, source, 1)
    for limit in case.limits:
        for id, reading in drain(case, source, splits, limit=limit).items():
            last = MIN_MICROS
            for batch in reading.batches:
                stamps = getattr(batch.block, "timestamps", MIN_MICROS)
                earliest = stamps if isinstance(stamps, int) else min(stamps, default=last)
                if len(batch.block) and MIN_MICROS < earliest < last:
                    raise broken(
                        f"split {id!r} returned an element of {earliest} µs after the watermark {last}",
                        "let the watermark be at most the earliest timestamp that may follow",
                    )
                if batch.watermark is not None:
                    if batch.watermark < last:
                        raise broken(
                            f"the watermark of split {id!r} went from {last} back to {batch.watermark} µs",
                            "return the greatest watermark so far, or None if it has not changed",
                        )
                    last = batch.watermark


def bad_input_is_a_read_error(case: SourceCase) -> None:
    """Input that can't be read raises ReadError (or BuildError from `check`), which names the place; and the reader can
    be closed then."""
    if case.bad_source is None:
        raise NotApplicable("pass bad_source=, a function that makes a source of broken input")
    source = case.calls("bad_source()", case.bad_source)
    error = _failure_of(case, source)
    if error is None:
        raise broken(
            "all of the broken input was read without an error",
            "raise tg.ReadError for what can't be read, so that nothing is lost in silence",
        )
    if not isinstance(error, ReadError | BuildError):
        raise broken(
            f"{type(error).__name__}: {error_text(error)}",
            "raise tg.ReadError, from the original exception, with the place and what to do",
        ) from error
    if case.bad_place not in str(error):
        raise broken(
            f"the error does not mention {case.bad_place!r}: {error_text(error)}",
            "name the place (file and line, table and row, …) in the message",
        ) from error


def _failure_of(case: SourceCase, source: Source[Any]) -> Exception | None:
    """The first exception while a source is checked and read as a runner does."""
    _, error = case.calls.outcome("check()", source.check)
    if error is not None:
        return error
    splits: Sequence[Split] | None
    splits, error = case.calls.outcome("splits(1)", source.splits, 1)
    for split in splits or ():
        reader, error = case.calls.outcome(f"reader({split.id!r})", source.reader, split, None)
        if error is not None or reader is None:
            return error
        if isinstance(reader, AsyncReader):
            reader = open_reader(case, source, split)
        try:
            error = _failure_of_reading(case, split, reader.read)
        finally:
            case.calls("close() after an error" if error else "close()", reader.close)
        if error is not None:
            return error
    return error


def _failure_of_reading(case: SourceCase, split: Split, read_batch: Callable[[int], Any]) -> Exception | None:
    quiet = 0
    while quiet < 10 * _POLLS:
        batch, error = case.calls.outcome(f"read of split {split.id!r}", read_batch, _PLENTY)
        if error is not None or batch is None or batch.end:
            return error
        quiet = 0 if len(batch.block) else quiet + 1
    return None


def reads_what_is_added(case: SourceCase) -> None:
    """Data that is added while the source is read arrives, once."""
    if case.add is None:
        raise NotApplicable("pass add=, a function that adds data and returns its elements")
    source = case.source()
    enumerator = case.calls("enumerator(None)", source.enumerator, None)
    if enumerator is not None:
        raise NotApplicable("the check discovers_what_is_added does it: the source has an enumerator")
    splits = splits_of(case, source, 1)
    before = drain(case, source, splits, limit=2)
    added = list(case.calls("add()", case.add))
    starts = {id: reading.steps[-1][1] for id, reading in before.items()}
    after = drain(case, source, splits, limit=2, starts=starts, wanted=len(added))
    problem = difference(added, [value for reading in after.values() for value in reading.values])
    if problem is not None:
        raise broken(
            f"after {len(added)} elements were added: {problem}",
            "let a reader that has returned an empty batch look again at each read",
        )


def lost_position_is_refused(case: SourceCase) -> None:
    """A position whose data no longer exists raises PositionLost, or another ReadError; it is never skipped."""
    if case.lose is None:
        raise NotApplicable("pass lose=, a function that removes data which has been read")
    source = case.source()
    splits = splits_of(case, source, 1)
    split = splits[0]
    reading = drain(case, source, splits, limit=1)[split.id]
    position = reading.steps[len(reading.steps) // 2][1]
    case.calls("lose()", case.lose)
    reader, error = case.calls.outcome("reader", source.reader, split, position)
    if error is None and reader is not None:
        adapted = open_reader(case, source, split, position)
        error = _failure_of_reading(case, split, adapted.read)
        case.calls.outcome("close()", adapted.close)
    if not isinstance(error, ReadError):
        raise broken(
            f"resuming at {shorten(position)} after the data was lost "
            + ("raised nothing" if error is None else f"raised {type(error).__name__}: {error_text(error)}"),
            f"raise tg.io.{PositionLost.__name__}: the elements between would be lost in silence",
        ) from error


def _compare_rest(
    case: SourceCase, split: Split, whole: Reading, count: int, position: Position, found: list[Any]
) -> None:
    rest = whole.values[count:]
    if (found[: len(rest)] if case.endless else found) != rest:
        raise broken(
            f"a reader of split {split.id!r} at {shorten(position)}, after {count} elements, returned "
            f"{shorten(found)}, not {shorten(rest)}",
            "let `position` describe what directly follows the last element returned, in an order that doesn't change",
        )


def _skip_if_not_replayable(case: SourceCase) -> None:
    if not case.source().replayable:
        raise NotApplicable("replayable = False: elements can't be read a second time")
