"""Text files written in two phases: parts in a work folder, moved to their final names by the commit.

`text_attempt.py` writes the parts. What their final names are is said here.

Every attempt writes its parts under `<folder>/.tidegate-<run>/<sink>/<attempt>/`. A part is whole in itself: header,
lines, footer, each compressed as a stream of its own, so that parts can be joined byte by byte, headers and footers in
between left out. The commit gives a part its final name by moving it; several parts of one shard are joined first.

While the commit of a bounded run is under way, a marker file lies in its work folder. It is the last thing to go: a
commit made again with the marker there goes on where the first one stopped; without marker and parts, it only checks
that all final files are there and as long as they were written.

With `addressed`, elements are `(address, value)` and the prefix is a template (`output_names.py`). No pattern could
tell the files of an earlier run from those of other sinks then, so the commit of a bounded run keeps a list of what it
has written (`.tidegate-files-…`), by which the next one removes what it does not replace.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.compression import Compression
from tidegate.io.files import Store
from tidegate.io.output_names import NameTemplate
from tidegate.io.text.attempt import Layout, Piece, TextAttempt, joined
from tidegate.io.text.source import check_encoding
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink, in_order
from tidegate.sdk.errors import BuildError, WriteError

DEFAULT_TEMPLATE: Final = "-SSSSS-of-NNNNN"

_MARKER: Final = "COMMITTING"
_RUN: Final = re.compile(r"[A-Za-z0-9_.-]+")
_TEMPLATE: Final = re.compile(r"S+|N+")
_BOMS: Final = {
    "utf-8-sig": ("utf-8", codecs.BOM_UTF8),
    "utf-16": ("utf-16-le", codecs.BOM_UTF16_LE),
    "utf-32": ("utf-32-le", codecs.BOM_UTF32_LE),
}


@dataclass(frozen=True, slots=True)
class TextSink(Sink[Any]):
    """Elements as lines of text files; see `WriteToText` for what the fields mean."""

    prefix: str
    suffix: str = ""
    num_shards: int = 0
    template: str = DEFAULT_TEMPLATE
    header: str | None = None
    footer: str | None = None
    compression: Compression = "auto"
    append_trailing_newlines: bool = True
    encoding: str = "utf-8"
    addressed: bool = False

    delivery = "exactly_once"

    @property
    def name(self) -> str:
        return f"text {self.prefix}{self.template}{self.suffix}"

    def check(self) -> None:
        if not self.prefix:
            raise BuildError("WriteToText: there is no path to write to")
        if type(self.num_shards) is not int or self.num_shards < 0:
            raise BuildError(
                f"WriteToText: num_shards is a whole number, 0 to leave it to the runner, not {self.num_shards!r}"
            )
        if self.num_shards != 1 and "S" not in self.template:
            raise BuildError(
                f"WriteToText: with shard_name_template={self.template!r} all shards would have the same name: "
                "it needs an S, the shard's number, or num_shards=1"
            )
        for what, text in (("shard_name_template", self.template), ("file_name_suffix", self.suffix)):
            if "/" in text:
                raise BuildError(f"WriteToText: {what}={text!r} may not have a '/': folders go into the prefix")
        check_encoding(self.encoding, "WriteToText")
        if self._compression() == "zip":
            raise BuildError("WriteToText: zip files are only read; write gzip, bz2, xz or zstd")
        _compression.check(self.compression, "WriteToText")
        _compression.check(self._compression(), "WriteToText")
        for what, line in (("header", self.header), ("footer", self.footer)):
            try:
                (line or "").encode(self.encoding)
            except UnicodeEncodeError as error:
                raise BuildError(f"WriteToText: the {what} can't be written as {self.encoding}: {error}") from error
        store, prefix = files.store_of(self.prefix)
        store.check_writable(self._folder(prefix))
        final = self._final(prefix, 0, 1)
        if not self.addressed and isinstance(store, files.Local) and os.path.isdir(final):
            raise BuildError(f"WriteToText: can't write the file {final}: it is a folder")

    def local_folders(self) -> Sequence[str]:
        store, prefix = files.store_of(self.prefix)
        return [self._folder(prefix)] if isinstance(store, files.Local) else []

    def writes(self) -> Hashable:
        """Which files: the shards' numbers stand as their letters, marked off from a name that has the same letters."""
        store, prefix = files.store_of(self.prefix)
        if isinstance(store, files.Local):
            prefix = files.join(os.path.realpath(files.folder_of(prefix)), prefix.rpartition("/")[2])
        numbered = _TEMPLATE.sub(lambda found: f"\0{found.group()}", self.template)
        return f"{store.url(prefix)}{numbered}{self.suffix}"

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        store, _ = files.store_of(self.prefix)
        layout = Layout(
            self.prefix,
            self.num_shards or 1,
            self._head(),
            self._foot(),
            self._compression(),
            self._codec()[0],
            "\n" if self.append_trailing_newlines else "",
            self.addressed,
        )
        return TextAttempt(layout, store, self._work(run), task)

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> list[str]:
        store, prefix = files.store_of(self.prefix)
        addition = "" if checkpoint is None else f"-{_checked(run)}-{checkpoint:05d}"
        final: dict[str, list[Piece]] = {}
        for own, shards in self._shards(prefix, in_order(committables), bounded=checkpoint is None):
            for shard, pieces in enumerate(shards):
                if pieces or checkpoint is None:
                    final[self._final(own + addition, shard, len(shards))] = pieces
        try:
            if checkpoint is None:
                self._commit_all(store, run, prefix, final)
            else:
                for path, pieces in final.items():
                    self._finalise(store, run, path, pieces)
                    for piece in pieces if len(pieces) > 1 else ():
                        store.remove(files.join(self._work(run), piece.path))
        except WriteError:
            raise
        except Exception as error:  # a remote file system raises what it likes
            raise WriteError(f"{self.prefix}: the output can't be committed: {files.describe(error)}") from error
        return [store.url(path) for path in final]

    def abort(self, run: str) -> None:
        store, _ = files.store_of(self.prefix)
        try:
            self._remove_work(store, run)
        except Exception as error:
            raise WriteError(f"{self.prefix}: can't remove unfinished output: {files.describe(error)}") from error

    def _commit_all(self, store: Store, run: str, prefix: str, final: dict[str, list[Piece]]) -> None:
        work = self._work(run)
        marker = files.join(work, _MARKER)
        parts = [files.join(work, piece.path) for pieces in final.values() for piece in pieces]
        if parts and store.find(marker) is None:
            there = [store.find(part) is not None for part in parts]
            if not any(there):
                # Done before, to the end: to move anything now could only harm a later run's output.
                for path, pieces in final.items():
                    self._check_committed(store, path, pieces)
                return
            if not all(there):
                lost = store.url(parts[there.index(False)])
                raise WriteError(f"output is lost: {lost} is gone. Was it removed while the pipeline ran?")
        store.finish(store.create(marker))
        for path, pieces in final.items():
            self._finalise(store, run, path, pieces)
        if self.addressed:
            self._remove_unlisted(store, run, prefix, final)
        else:
            for path in self._stale(store, prefix, final):
                store.remove(path)
        self._remove_work(store, run)

    def _finalise(self, store: Store, run: str, path: str, pieces: list[Piece]) -> None:
        """Gives a shard its final name; does nothing if it has it already."""
        parts = [files.join(self._work(run), piece.path) for piece in pieces]
        if any(store.find(part) is None for part in parts):
            self._check_committed(store, path, pieces)
            return
        source = parts[0] if len(parts) == 1 else self._join(store, run, path, pieces)
        store.move(source, path)

    def _join(self, store: Store, run: str, path: str, pieces: list[Piece]) -> str:
        """One file of several parts: the first one's header and the last one's footer stay. Of none: both alone."""
        joined = files.join(self._work(run), f"joined/{path.rpartition('/')[2]}")
        with store.create(joined) as target:
            if not pieces:
                target.write(self._empty())
            for i, piece in enumerate(pieces):
                start = piece.head if i else 0
                end = piece.size - (piece.foot if i < len(pieces) - 1 else 0)
                with store.open(files.join(self._work(run), piece.path)) as part:
                    part.seek(start)
                    _copy(part, target, end - start)
            store.finish(target)
        return joined

    def _check_committed(self, store: Store, path: str, pieces: list[Piece]) -> None:
        expected = joined(pieces) if pieces else len(self._empty())
        found = store.find(path)
        if found is None or found.size not in (None, expected):
            state = "is not there" if found is None else f"has {found.size} bytes, not {expected}"
            raise WriteError(
                f"output is lost: the parts of {store.url(path)} are gone, and the file itself {state}. "
                f"Was {store.url(self._work_root())}* removed while the pipeline ran?"
            )

    def _stale(self, store: Store, prefix: str, final: dict[str, list[Piece]]) -> list[str]:
        """Files that an earlier run with the same prefix, template and suffix left, and this one has not replaced."""
        folder, base = files.folder_of(prefix), prefix.rpartition("/")[2]
        numbered = "".join(
            f"[0-9]{{{len(part)},}}" if _TEMPLATE.fullmatch(part) else re.escape(part)
            for part in re.split("(S+|N+)", self.template)
        )
        own = re.compile(re.escape(base) + numbered + re.escape(self.suffix))
        kept = {path.rpartition("/")[2] for path in final}
        names = store.names(folder) or []
        return [files.join(folder, name) for name in names if own.fullmatch(name) and name not in kept]

    def _remove_unlisted(self, store: Store, run: str, prefix: str, final: dict[str, list[Piece]]) -> None:
        """Removes what an earlier run has written and this one has not replaced, and lists what is there now."""
        folder = self._folder(prefix)
        listing = files.join(folder, f"{files.WORK_PREFIX}files-{self._own_hash()}")
        for path in _listed(store, listing) - final.keys():
            store.remove(path)
        fresh = files.join(self._work(run), "listing")
        with store.create(fresh) as target:
            target.write("".join(f"{json.dumps(path)}\n" for path in final).encode())
            store.finish(target)
        store.move(fresh, listing)

    def _shards(
        self, prefix: str, committables: Sequence[Committable], *, bounded: bool
    ) -> Iterator[tuple[str, list[list[Piece]]]]:
        """Prefixes of files, and which pieces make up each shard's."""
        template = NameTemplate.of(prefix) if self.addressed else None
        by_address: dict[tuple[str, ...], list[tuple[int, Piece]]] = {} if self.addressed else {(): []}
        for committable in committables:
            piece = Piece(*committable.payload)
            by_address.setdefault(tuple(piece.address), []).append((committable.order[0], piece))
        for address, found in sorted(by_address.items()):
            own = template.filled(address) if template is not None else prefix
            if self.num_shards:
                yield own, [[piece for _, piece in found if piece.shard == shard] for shard in range(self.num_shards)]
            elif self.addressed:
                # A task that has many files open finishes some early: its pieces of one address are one file.
                tasks = sorted({task for task, _ in found})
                yield own, [[piece for task, piece in found if task == wanted] for wanted in tasks]
            else:
                yield own, [[piece] for _, piece in found] or ([[]] if bounded else [])

    def _final(self, prefix: str, shard: int, count: int) -> str:
        def number(found: re.Match[str]) -> str:
            letters = found.group()
            return str(shard if letters[0] == "S" else count).rjust(len(letters), "0")

        return prefix + _TEMPLATE.sub(number, self.template) + self.suffix

    def _folder(self, prefix: str) -> str:
        """The folder that the files are in or, if their prefixes differ, below."""
        return NameTemplate.of(prefix).fixed_folder if self.addressed else files.folder_of(prefix)

    def _work_root(self) -> str:
        _, prefix = files.store_of(self.prefix)
        return files.join(self._folder(prefix), files.WORK_PREFIX)

    def _work(self, run: str) -> str:
        """The work folder of this sink in a run: other sinks of the run may write into the same folder."""
        return f"{self._work_root()}{_checked(run)}/{self._own_hash()}"

    def _own_hash(self) -> str:
        import hashlib

        return hashlib.sha256(f"{self.prefix}\0{self.template}\0{self.suffix}".encode()).hexdigest()[:12]

    def _remove_work(self, store: Store, run: str) -> None:
        work = self._work(run)
        for name in store.names(work) or []:
            if name != _MARKER:
                store.remove_folder(files.join(work, name))
        store.remove(files.join(work, _MARKER))
        store.remove_empty_folder(work)
        store.remove_empty_folder(files.folder_of(work))

    def _compression(self) -> Compression:
        return _compression.of_path(self._final(self.prefix, 0, 1), self.compression)

    def _codec(self) -> tuple[str, bytes]:
        """The encoding of lines, and the mark at the start of a file."""
        name = codecs.lookup(self.encoding).name
        return _BOMS.get(name, (name, b""))

    def _head(self) -> bytes:
        encoding, mark = self._codec()
        return self._packed(mark + ("" if self.header is None else self.header + "\n").encode(encoding))

    def _foot(self) -> bytes:
        return self._packed(("" if self.footer is None else self.footer + "\n").encode(self._codec()[0]))

    def _empty(self) -> bytes:
        """A file without lines; a compressed one is valid all the same."""
        return self._head() + self._foot() or bytes(_compression.compressor(self._compression()).flush())

    def _packed(self, data: bytes) -> bytes:
        if not data:
            return b""
        stream = _compression.compressor(self._compression())
        return bytes(stream.compress(data) + stream.flush())


def _checked(run: str) -> str:
    if not _RUN.fullmatch(run):
        raise ValueError(f"a run's name has letters, digits, '-', '_' and '.', unlike {run!r}")
    return run


def _listed(store: Store, listing: str) -> set[str]:
    """The files that the last run with this listing wrote; none if there was no such run."""
    if store.find(listing) is None:
        return set()
    with store.open(listing) as file:
        text = file.read()
    try:
        return {str(json.loads(line)) for line in text.splitlines()}
    except ValueError:
        raise WriteError(
            f"{store.url(listing)} is not the list of files that a run wrote, so those can't be removed: "
            "remove it, and them, by hand"
        ) from None


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size > 0:
        data = source.read(min(1 << 20, size))
        if not data:
            raise WriteError(f"a part of the output is {size} bytes shorter than it was written")
        target.write(data)
        size -= len(data)
