"""Following folders: an enumerator that finds the files that appear, each once, also after a restart.

A file is identified by its path, its size, and its tag or, where the store has none, the time of its last change. The
state is the identities of the files that lie in the folders and were found; the identity of a file that is deleted is
forgotten, so the state stays as small as the folders are.
"""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidegate.io import files
from tidegate.io.file_source.listing import Found
from tidegate.sdk.connectors.sources import Discovery, Position, Split, SplitEnumerator
from tidegate.sdk.errors import BuildError, PositionLost
from tidegate.sdk.metrics import ENGINE, Metrics
from tidegate.sdk.time import SECOND, Duration, DurationLike

MIN_AGE: Final = 2.0
"""The default age in seconds at which a file of a file system is complete. Stores with tags show only whole files."""

FOLLOWED_SPLIT: Final = 64 << 20
"""The least size of the parts that a file is divided into: most are read as a whole."""


@dataclass(frozen=True, slots=True)
class Follow:
    """How folders are followed: seconds between two looks, and how old a file must be (None: the default)."""

    poll_interval: float = 1.0
    min_age: float | None = None

    @staticmethod
    def of(poll_interval: DurationLike, min_age: DurationLike | None, of: str) -> Follow:
        """BuildError, naming the transform `of`, for durations that are none."""
        interval = Duration.of(poll_interval).micros
        if interval <= 0:
            raise BuildError(f"{of}: poll_interval must be positive, but is {poll_interval!r}")
        age = None if min_age is None else Duration.of(min_age).micros
        if age is not None and age < 0:
            raise BuildError(f"{of}: min_age must not be negative, but is {min_age!r}")
        return Follow(interval / SECOND, None if age is None else age / SECOND)


@dataclass(slots=True)
class _Known:
    """A file that was returned: the pattern that found it, its version, and whether it was there at the last look."""

    pattern: str
    version: str
    present: bool = True


@dataclass(slots=True)
class _Candidate:
    """A file that may still be written: its version, and when it was first seen (ns)."""

    version: str
    since: int


class FollowedFiles(SplitEnumerator):
    """Returns the splits of each file that appears, those of the file that was changed first before the others.

    `splits_of` divides a file. A file is complete once its age is `min_age` and either two looks have found it the
    same or it is older than the time between two looks. Ages are measured by this machine's clock; where the store's
    clock is ahead, from when the file was first seen.

    - A file that changes after it was returned is not read again: it is logged and counted as `files_changed`.
    - A file that is deleted is counted as `files_deleted`. If a file of that name appears again, it is a new one.
    - If a pattern suddenly matches nothing, its files are remembered: a folder that isn't mounted looks empty.
    - A folder that can't be listed is logged, and looked at again.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        follow: Follow,
        splits_of: Callable[[Found], Iterable[Split]],
        state: Position = None,
        now: Callable[[], int] = time.time_ns,
    ) -> None:
        self._patterns = patterns
        self._follow = follow
        self._splits_of = splits_of
        self._now = now
        self._known: dict[str, _Known] = {}
        self._candidates: dict[str, _Candidate] = {}
        self._complete: deque[Found] = deque()
        """Files that the last look found complete and that have not been returned."""
        self._partial: tuple[str, int] | None = None
        """The file whose splits have not all been returned, and how many have."""
        self._logged: set[tuple[str, str]] = set()
        if state is not None:
            self._known = {url: _Known(*known) for url, known in state["files"].items()}
            self._partial = None if state["partial"] is None else tuple(state["partial"])

    def discover(self, limit: int) -> Discovery:
        """The splits of files that have become complete. Raises PositionLost if a file changes before all its splits
        have been returned."""
        if not self._complete:
            self._look()
        splits: list[Split] = []
        while self._complete and len(splits) < limit:
            splits += self._divide(self._complete[0], limit - len(splits))
            if self._partial is None:  # all of it has been returned
                self._complete.popleft()
        return Discovery(splits, wait=0.0 if self._complete else self._follow.poll_interval)

    def state(self) -> Position:
        """`files` are the files that were returned, by their URLs."""
        return {
            "files": {url: [known.pattern, known.version, known.present] for url, known in self._known.items()},
            "partial": None if self._partial is None else list(self._partial),
        }

    def close(self) -> None:
        """Nothing is open between two looks."""

    def _look(self) -> None:
        """List the folders; compare with what is known."""
        complete: list[Found] = []
        candidates: dict[str, _Candidate] = {}
        listed: set[str] = set()
        for pattern in self._patterns:
            found = self._listed(pattern)
            if found is None:  # the others stay as they are until it can be listed again
                listed |= {url for url, known in self._known.items() if known.pattern == pattern}
                continue
            if not found:
                for known in self._known.values():
                    known.present = known.present and known.pattern != pattern
                listed |= {url for url, known in self._known.items() if known.pattern == pattern}
            for file in found:
                if file.url in listed:  # another pattern matches it, too
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

    def _listed(self, pattern: str) -> list[Found] | None:
        """The files of a pattern; None if they can't be listed now."""
        try:
            store, _ = files.store_of(pattern)
            found = [Found(pattern, store.url(info.path), info) for info in files.match(pattern)]
        except Exception as error:  # file systems of fsspec raise errors of their own
            again = f"It is tried again every {self._follow.poll_interval:g} s"
            self._log_once("unlisted", pattern, f"{pattern} can't be listed: {files.describe(error)}. {again}")
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
            return False  # which is an error of its own
        self._log_once("changed", file.url, f"{file.url} has changed since it was read; it is not read again")
        Metrics.counter(ENGINE, "files_changed").inc()
        known.version = file.version
        return False

    def _candidate(self, file: Found) -> _Candidate:
        before = self._candidates.get(file.url)
        return (
            before if before is not None and before.version == file.version else _Candidate(file.version, self._now())
        )

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
        """The file some of whose splits have been returned, if it is still what it was."""
        known = self._known.get(url)
        if known is not None and known.present:
            info = files.match(url)
            if info and (found := Found(known.pattern, url, info[0])).version == known.version:
                return found
        raise self._changed(url)

    @staticmethod
    def _changed(url: str) -> PositionLost:
        return PositionLost(f"{url} was changed or deleted before all its parts had been read")

    def _divide(self, file: Found, limit: int) -> list[Split]:
        """The next splits of a file, which is known from then on."""
        done = 0 if self._partial is None else self._partial[1]
        try:
            splits = list(self._splits_of(file))
        except FileNotFoundError:
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


def check_followed(patterns: Sequence[str], of: str, allow_empty: bool) -> None:
    """Raise BuildError for a path that is no pattern, or whose folder is not there."""
    for pattern in patterns:
        if not files.is_pattern(pattern):
            raise BuildError(
                f"{of}: follow=True reads the files that appear in a folder, and {pattern!r} names one file. Write a "
                f"pattern, such as {files.join(pattern.rstrip('/'), '*')!r}; tg.io.TailFile follows a file that grows"
            )
        if not allow_empty and not files.has_folder(pattern):
            raise BuildError(
                f"{of}: {files.explain_no_match(pattern)}, so no file can appear that matches {pattern!r}. If it may "
                "be made later, set allow_empty=True"
            )


def _logger() -> Any:
    import logging

    return logging.getLogger("tidegate")
