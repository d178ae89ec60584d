"""The files of one sink: their final names, its work folder, and which files an earlier run has left."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from tidegate.io import files
from tidegate.io.files import Store
from tidegate.io.output_names import Address, NameTemplate
from tidegate.io.storage_options import StorageOptions

MARKER: Final = "COMMITTING"
"""The name of the file in the work folder that exists while a bounded run is being committed."""

_RUN: Final = re.compile(r"[A-Za-z0-9_.-]+")
_NUMBERS: Final = re.compile(r"S+|N+")


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """The names of a sink's files: prefix, shard template and suffix, in the store that the prefix names.

    >>> output = OutputFiles.of("out/part", "-SSSSS-of-NNNNN", ".txt", addressed=False)
    >>> output.final("out/part", 1, 3)
    'out/part-00001-of-00003.txt'
    """

    store: Store
    prefix: str
    template: str
    suffix: str
    addressed: bool
    given_prefix: str
    """The prefix as the author wrote it, with its protocol."""

    @staticmethod
    def of(
        prefix: str, template: str, suffix: str, *, addressed: bool, options: StorageOptions | None = None
    ) -> OutputFiles:
        """The files of a prefix, as authors write it. `options` are those of the prefix's file system."""
        store, path = files.store_of(prefix, options)
        return OutputFiles(store, path, template, suffix, addressed, prefix)

    @property
    def folder(self) -> str:
        """The folder that the files are in or, if their prefixes differ, below."""
        return NameTemplate.of(self.prefix).fixed_folder if self.addressed else files.folder_of(self.prefix)

    @property
    def identity(self) -> str:
        """A text that is equal for sinks whose files have equal names. Placeholders for numbers are marked, so that
        they differ from a name with the same letters."""
        prefix = self.prefix
        if isinstance(self.store, files.Local):
            prefix = files.join(os.path.realpath(files.folder_of(prefix)), prefix.rpartition("/")[2])
        numbered = _NUMBERS.sub(lambda found: f"\0{found.group()}", self.template)
        return f"{self.store.url(prefix)}{numbered}{self.suffix}"

    @property
    def work_root(self) -> str:
        """What the work folders of all runs begin with."""
        return files.join(self.folder, files.WORK_PREFIX)

    @property
    def listing(self) -> str:
        """The file that lists what the last run wrote."""
        return files.join(self.folder, f"{files.WORK_PREFIX}files-{self._hash()}")

    def work(self, run: str) -> str:
        """The work folder of this sink in a run. Other sinks of the run may write into the same folder."""
        return f"{self.work_root}{checked_run(run)}/{self._hash()}"

    def final(self, prefix: str, shard: int, count: int) -> str:
        """The name of one of `count` shards of a prefix."""
        return prefix + _numbered(self.template, shard, count) + self.suffix

    def prefix_of(self, address: Address) -> str:
        """The prefix of an address's files."""
        return NameTemplate.of(self.prefix).filled(address) if self.addressed else self.prefix

    def stale(self, written: Collection[str]) -> Iterator[str]:
        """The files that an earlier run with the same prefix, template and suffix left, and that this run, which wrote
        `written`, has not replaced."""
        folder, base = files.folder_of(self.prefix), self.prefix.rpartition("/")[2]
        numbered = "".join(
            f"[0-9]{{{len(part)},}}" if _NUMBERS.fullmatch(part) else re.escape(part)
            for part in re.split("(S+|N+)", self.template)
        )
        pattern = re.compile(re.escape(base) + numbered + re.escape(self.suffix))
        replaced = {path.rpartition("/")[2] for path in written}
        for name in self.store.names(folder) or []:
            if pattern.fullmatch(name) and name not in replaced:
                yield files.join(folder, name)

    def remove_work(self, run: str) -> None:
        """Remove the work folder of a run; its marker is the last file to go."""
        work = self.work(run)
        for name in self.store.names(work) or []:
            if name != MARKER:
                self.store.remove_folder(files.join(work, name))
        self.store.remove(files.join(work, MARKER))
        self.store.remove_empty_folder(work)
        self.store.remove_empty_folder(files.folder_of(work))

    def _hash(self) -> str:
        import hashlib

        return hashlib.sha256(f"{self.given_prefix}\0{self.template}\0{self.suffix}".encode()).hexdigest()[:12]


def longest_ending(template: str, suffix: str) -> int:
    """At most how many bytes the names of files have after the prefix: for the run and the checkpoint of a stream, for
    the numbers of shards, and for the suffix.

    >>> longest_ending("-SSSSS-of-NNNNN", ".txt")
    43
    """
    return _RUN_AND_CHECKPOINT + len(os.fsencode(_numbered(template, 99_999, 99_999) + suffix))


_RUN_AND_CHECKPOINT: Final = 24
"""The size of `-<run>-<checkpoint>`: runs have names of 12 characters, and those that resume a number besides."""


def _numbered(template: str, shard: int, count: int) -> str:
    """The shard template with the numbers in it."""

    def number(found: re.Match[str]) -> str:
        letters = found.group()
        return str(shard if letters[0] == "S" else count).rjust(len(letters), "0")

    return _NUMBERS.sub(number, template)


def checked_run(run: str) -> str:
    """The name of a run. ValueError for one that could lead out of the output's folder."""
    if not _RUN.fullmatch(run):
        raise ValueError(f"a run's name has letters, digits, '-', '_' and '.', unlike {run!r}")
    return run
