"""`ReadFromDelta`: the rows of a Delta table."""

from __future__ import annotations

import datetime
import os
from typing import TypeAlias, Unpack

from tidegate.io.delta.following import FollowTable
from tidegate.io.delta.location import Location
from tidegate.io.delta.source import DeltaSource
from tidegate.io.file_source.source import MIN_SPLIT_SIZE
from tidegate.io.formats.options import SourceOptions, selection_for
from tidegate.io.formats.reading import ReadRecords
from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.time import DurationLike, Timestamp, TimestampLike

Path: TypeAlias = str | os.PathLike[str]


class ReadFromDelta(ReadRecords):
    """The rows of a Delta table, at one version or from one version on.

        pipeline | tg.ReadFromDelta("s3://bucket/visits", columns=["url", "at"], where=[("day", ">=", day)])

    `table` is the path of a local folder, or a URL of S3, Google Cloud Storage or Azure.

    - `version`, or `as_of` (an aware datetime or a `tg.Timestamp`): the version of this number, or the one that was
      the latest at an instant. Without them, it is the version that is the latest when the run starts.
    - `columns`, `where`, `as_`, `schema`, `timezone`, `bad_records`, and the arguments of `tg.Read` for event time: as
      for `ReadFromParquet`. `where` skips files by their partitions and by the statistics in the table's log, row
      groups by their own, and then single rows.
    - `follow=True`: then looks for new versions every `poll_interval`, and reads the data files that each adds, each
      once, also after a restart on the streaming runner. A version that removes or rewrites rows fails the run, unless
      `skip_change_commits=True` skips such versions as a whole. The elements are unbounded.
    - `schema_evolution`: what happens if a followed version adds a column, and all columns are read: `"refuse"` fails,
      `"union"` reads it from then on.
    - `storage_options`: options of the client, such as `{"AWS_ENDPOINT_URL": …}`. Secrets are references (`"${NAME}"`)
      or `SecretStr`s. The usual environment variables of the store are read, too.
    - `min_split_size`: data files of twice this size (in bytes) may be divided, so that several workers read them.

    Raises BuildError when applied, if there is no such table or version, if it lacks a column, or has a feature that
    this package can't read; when running, ReadError, and PositionLost for what a VACUUM has removed.
    """

    def __init__(
        self,
        table: Path,
        *,
        version: int | None = None,
        as_of: TimestampLike | None = None,
        follow: bool = False,
        poll_interval: DurationLike = 1.0,
        skip_change_commits: bool = False,
        name: str | None = None,
        **options: Unpack[SourceOptions],
    ) -> None:
        of = "ReadFromDelta"
        if version is not None and as_of is not None:
            raise BuildError(f"{of}: version= and as_of= both say which version to read: leave one of them out")
        if version is not None and (type(version) is not int or version < 0):
            raise BuildError(f"{of}: version is a whole number from 0 on, not {version!r}")
        if skip_change_commits and not follow:
            raise BuildError(f"{of}: skip_change_commits= is about the versions that follow=True reads")
        selection = selection_for(of, options)
        source = DeltaSource(
            Location.of(table, options.get("storage_options"), of),
            selection,
            of,
            version,
            None if as_of is None else _instant(as_of, of),
            FollowTable.of(poll_interval, skip_change_commits, of) if follow else None,
            options.get("min_split_size", MIN_SPLIT_SIZE),
        )
        super().__init__(source, selection, options, name)


def _instant(as_of: TimestampLike, of: str) -> datetime.datetime:
    try:
        return Timestamp.of(as_of).to_utc_datetime()
    except (TypeError, ValueError, OverflowError) as error:
        raise BuildError(f"{of}: as_of is an aware datetime or a tg.Timestamp, not {shorten(as_of)}: {error}") from None
