"""Following folders: an enumerator that returns each file that appears once, also after a restart.

A file is identified by its path, its size, and its tag or, if the store has no tags, the time of its last change. The
state holds the identities of the files that have been returned. Those of deleted files are removed from it, so the
state grows with the number of files in the folders, not with the number of files there have been.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypedDict

from tidegate.io import files
from tidegate.io.file_source.listing import Found, explain_no_match, has_folder, is_folder, matching
from tidegate.io.file_source.opened import FileChanged
from tidegate.io.storage_options import StorageOptions
from tidegate.sdk.connectors.sources import Discovery, Position, Split, SplitEnumerator
from tidegate.sdk.errors import BuildError, PositionLost, ReadError
from tidegate.sdk.metrics import ENGINE, Metrics
from tidegate.sdk.secrets.redaction import redacted
from tidegate.sdk.time import SECOND, Duration, DurationLike

MIN_AGE: Final = 2.0
"""The default age, in seconds, at which a file counts as complete. Object stores show only complete files."""

FOLLOWED_SPLIT: Final = 64 << 20
"""The minimum size, in bytes, of the parts that a followed file is divided into: most files are read as a whole."""


@dataclass(frozen=True, slots=True)
class Follow:
    """How folders are followed: the seconds between two looks, and the age in seconds at which a file counts as
    complete (None: the default)."""

    poll_interval: float = 1.0
    min_age: float | None = None

    @staticmethod
    def of(poll_interval: DurationLike, min_age: DurationLike | None, of: str) -> Follow:
        """Raises BuildError, naming the transform `of`, for durations that make no sense."""
        interval = Duration.of(poll_interval).micros
        if interval <= 0:
            raise BuildError(f"{of}: poll_interval must be positive, but is {poll_interval!r}")
        age = None if min_age is None else Duration.of(min_age).micros
        if age is not None and age < 0:
            raise BuildError(f"{of}: min_age must not be negative, but is {min_age!r}")
        return Follow(interval / SECOND, None if age is None else age / SECOND)


class FollowOptions(TypedDict, total=False):
    """The keyword arguments of the transforms that can follow folders; `ReadFromParquet` explains them."""

    follow: bool
    poll_interval: DurationLike
    min_age: DurationLike | None


def follow_of(options: FollowOptions, of: str) -> Follow | None:
    """How folders are followed, as the arguments of the transform `of` say, none of which is missing; None if they are
    not. Raises BuildError for durations that make no sense."""
    return Follow.of(options["poll_interval"], options["min_age"], of) if options["follow"] else None


@dataclass(slots=True)
class _Known:
    """A file that has been returned: the pattern that it matched, its version, and whether the last look found it."""

    pattern: str
    version: str
    present: bool = True


@dataclass(slots=True)
class _Candidate:
    """A file that may still be written: its version, and when it was first seen (ns since 1970)."""

    version: str
    since: int


class FollowedFiles(SplitEnumerator):
    """Returns the splits of each file that appears, in the order in which the files were last changed.

    `splits_of` divides a file. A file is complete once its age is `min_age` and either two looks have found the same
    version or it is older than the time between two looks. Ages are measured by this machine's clock; if the store's
    clock is ahead, the age counts from when the file was first seen.

    - A file that changes after it was returned is not read again: the change is logged and counted as `files_changed`.
    - A file that is deleted is counted as `files_deleted`. A file that appears under its name later is a new one.
    - If a pattern suddenly matches nothing, its files are remembered: a folder that isn't mounted looks empty.
    - If a folder can't be listed, this is logged, and the next look tries again.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        follow: Follow,
        splits_of: Callable[[Found], Iterable[Split]],
        state: Position = None,
        now: Callable[[], int] = time.time_ns,
        options: StorageOptions | None = None,
    ) -> None:
        self._patterns = patterns
        self._follow = follow
        self._splits_of = splits_of
        self._now = now
        self._options = options
        self._known: dict[str, _Known] = {}
        self._candidates: dict[str, _Candidate] = {}
        self._complete: deque[Found] = deque()
        """The files that the last look found complete and that have not been returned yet."""
        self._partial: tuple[str, int] | None = None
        """The file that has been returned in part, and the number of its splits that have been."""
        self._logged: set[tuple[str, str]] = set()
        self._former = set(patterns) if state is not None else set()
        """The patterns whose files may have the names of an older checkpoint."""
        if state is not None:
            self._known = {url: _Known(*known) for url, known in state["files"].items()}
            self._partial = None if state["partial"] is None else tuple(state["partial"])

    def discover(self, limit: int) -> Discovery:
        """The splits of files that have become complete.

        Raises PositionLost if a file changes before all its splits have been returned; ReadError, naming the file, if
        it can't be divided.
        """
        if not self._complete:
            self._look()
        splits: list[Split] = []
        while self._complete and len(splits) < limit:
            splits += self._divide(self._complete[0], limit - len(splits))
            if self._partial is None:  # all its splits have been returned
                self._complete.popleft()
        return Discovery(splits, wait=0.0 if self._complete else self._follow.poll_interval)

    def state(self) -> Position:
        """`files` are the files that have been returned, by their URLs; `partial` the one returned in part."""
        return {
            "files": {url: [known.pattern, known.version, known.present] for url, known in self._known.items()},
            "partial": None if self._partial is None else list(self._partial),
        }

    def close(self) -> None:
        """Does nothing: no file is open between two looks."""

    def _look(self) -> None:
        """List the folders, and compare the result with the known files."""
        complete: list[Found] = []
        candidates: dict[str, _Candidate] = {}
        listed: set[str] = set()
        for pattern in self._patterns:
            found = self._listed(pattern)
            if found is not None and pattern in self._former:
                self._rename_former(pattern)
            if found is None:  # its files stay known until the folder can be listed again
                listed |= {url for url, known in self._known.items() if known.pattern == pattern}
                continue
            if not found:
                for known in self._known.values():
                    known.present = known.present and known.pattern != pattern
                listed |= {url for url, known in self._known.items() if known.pattern == pattern}
            for file in found:
                if file.url in listed:  # an earlier pattern matches it, too
                    continue
                listed.add(file.url)
                if self._is_new(file):
                    candidate = self._candidate(file)
                    candidates[file.url] = candidate
                    if self._is_complete(file, candidate):
                        complete.append(file)
        self._forget(self._known.keys() - listed)
        self._candidates = candidates
        complete.sort(key=lambda file: (file.info.modified or 0, file.url))
        if self._partial is not None:
            complete.insert(0, self._resumed(self._partial[0]))
        self._complete.extend(complete)

    def _rename_former(self, pattern: str) -> None:
        """Give the known files of a pattern, which an older checkpoint may name without their host, today's names."""
        self._former.discard(pattern)
        store, _ = files.store_of(pattern, self._options)
        former, now = store.former_url("/"), store.url("/")
        if former == now:
            return
        names = {
            url: f"{now}{url.removeprefix(former)}" if known.pattern == pattern and url.startswith(former) else url
            for url, known in self._known.items()
        }
        self._known = {names[url]: known for url, known in self._known.items()}
        if self._partial is not None:
            self._partial = names.get(self._partial[0], self._partial[0]), self._partial[1]

    def _listed(self, pattern: str) -> list[Found] | None:
        """The files of a pattern; None if its folder can't be listed now."""
        try:
            found = matching([pattern], True, ReadError, self._options)
        except Exception as error:  # file systems of fsspec raise errors of their own
            again = f"It is listed again every {self._follow.poll_interval:g} s"
            reason = str(error) if isinstance(error, ReadError) else f"{pattern}: {files.describe(error)}"
            self._log_once("unlisted", pattern, redacted(f"can't list {reason}. {again}"))
            return None
        self._logged.discard(("unlisted", pattern))
        return found

    def _is_new(self, file: Found) -> bool:
        known = self._known.get(file.url)
        if known is None:
            return True
        if known.version == file.version:
            known.present = True
            return False
        if not known.present:
            del self._known[file.url]
            return True
        if self._partial is not None and self._partial[0] == file.url:
            return False  # `_resumed` or `_divide` raises the error
        self._log_once("changed", file.url, f"{file.url} has changed since it was read; it is not read again")
        Metrics.counter(ENGINE, "files_changed").inc()
        known.version = file.version
        return False

    def _candidate(self, file: Found) -> _Candidate:
        before = self._candidates.get(file.url)
        if before is not None and before.version == file.version:
            return before
        return _Candidate(file.version, self._now())

    def _is_complete(self, file: Found, candidate: _Candidate) -> bool:
        now = self._now()
        modified = candidate.since if file.info.modified is None else file.info.modified
        age = (now - min(modified, candidate.since)) / 1e9
        is_object = file.info.content_tag is not None
        min_age = self._follow.min_age
        if age < (min_age if min_age is not None else 0.0 if is_object else MIN_AGE):
            return False
        seen_before = self._candidates.get(file.url) is candidate
        return is_object or seen_before or age >= self._follow.poll_interval

    def _forget(self, urls: Iterable[str]) -> None:
        for url in urls:
            del self._known[url]
            self._logged.discard(("changed", url))
            Metrics.counter(ENGINE, "files_deleted").inc()

    def _resumed(self, url: str) -> Found:
        """The file that has been returned in part, if it has not changed since."""
        known = self._known.get(url)
        if known is not None and known.present:
            found = next(iter(matching([url], True, ReadError, self._options)), None)
            if found is not None and found.version == known.version:
                return found._replace(pattern=known.pattern)
        raise self._changed(url)

    @staticmethod
    def _changed(url: str) -> PositionLost:
        return PositionLost(f"{url} was changed or deleted before all its parts had been read")

    def _divide(self, file: Found, limit: int) -> list[Split]:
        """The next splits of a file; none if it has changed since it was listed, and the next look will find it."""
        done = 0 if self._partial is None else self._partial[1]
        try:
            splits = list(self._splits_of(file))
        except FileChanged:
            if done:
                raise self._changed(file.url) from None
            return []
        found = [
            dataclasses.replace(split, id=f"{split.id}@{file.version}", bounded=True)
            for split in splits[done : done + limit]
        ]
        done += len(found)
        self._partial = (file.url, done) if done < len(splits) else None
        self._known[file.url] = _Known(file.pattern, file.version)
        return found

    def _log_once(self, what: str, of: str, text: str) -> None:
        if (what, of) not in self._logged:
            self._logged.add((what, of))
            _logger().warning("%s", text)


def check_followed(patterns: Sequence[str], of: str, allow_empty: bool, options: StorageOptions | None = None) -> None:
    """Raise BuildError, naming the transform `of`, for a path that is no pattern, or whose folder doesn't exist."""
    for pattern in patterns:
        if not files.is_pattern(pattern, options):
            names = "is the folder itself" if is_folder(pattern, options) else "names one file"
            raise BuildError(
                f"{of}: follow=True reads the files that appear in a folder, and {pattern!r} {names}. Write a "
                f"pattern, such as {files.join(pattern, '*')!r}; tg.io.TailFile follows a file that grows"
            )
        if not allow_empty and not has_folder(pattern, options):
            raise BuildError(
                f"{of}: {explain_no_match(pattern, options)}, so no file can appear that matches {pattern!r}. "
                "If the folder may be created later, set allow_empty=True"
            )


def _logger() -> Any:
    import logging

    return logging.getLogger("tidegate")
