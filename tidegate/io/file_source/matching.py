"""`MatchFiles`, `MatchAll` and `ReadMatches`: which files match patterns, and files as elements."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar, Unpack, cast

from tidegate.io import compression as _compression
from tidegate.io import files
from tidegate.io.compression import Compression
from tidegate.io.file_source.following import Follow, FollowedFiles, check_followed
from tidegate.io.file_source.listing import FileMetadata, Path, matching, paths_of
from tidegate.io.first_contact import check_readable
from tidegate.io.records.problems import BadRecord
from tidegate.io.storage_options import StorageOptions, has_secrets, options_of
from tidegate.sdk.authoring.dofn import DoFn
from tidegate.sdk.connectors.sources import Batch, Position, Reader, Source, Split, SplitEnumerator
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import BuildError, ReadError, shorten
from tidegate.sdk.pipeline import PCollection, Pipeline
from tidegate.sdk.primitives import FlatMap, Map, ParDo, Read, ReadOptions, Reshuffle
from tidegate.sdk.steps.transform import PTransform
from tidegate.sdk.time import DurationLike

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReadableFile(FileMetadata):
    """A file that can be read where the step runs. It is opened when it is read, not before."""

    compression: Compression = "auto"
    storage_options: StorageOptions | None = field(default=None, repr=False, hash=False)

    def open(self) -> BinaryIO:
        """The file's bytes, decompressed; to be closed by the caller."""
        store, path = files.store_of(self.path, self.storage_options)
        file = store.open(path)
        used = _compression.of_path(path, self.compression)
        if used in ("none", "zip"):
            return file
        return cast(BinaryIO, _Decompressed(_compression.decompressing(file, used), file))

    def read(self) -> bytes:
        """All bytes of the file, decompressed. Raises ReadError, naming the file, if it can't be read."""
        try:
            with self.open() as file:
                return file.read()
        except _compression.broken() as error:
            raise ReadError(f"{self.path}: can't be read: {files.describe(error)}") from error

    def read_utf8(self) -> str:
        """All text of the file. Raises ReadError if it isn't UTF-8."""
        try:
            return self.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise ReadError(f"{self.path}, byte {error.start}: not UTF-8; read() returns the bytes") from error


class _Decompressed(io.BufferedReader):
    """A stream of decompressed bytes that closes the compressed file, too."""

    def __init__(self, stream: BinaryIO, file: BinaryIO) -> None:
        super().__init__(cast(io.RawIOBase, stream))
        self._file = file

    def close(self) -> None:
        super().close()
        self._file.close()


class MatchFiles(PTransform[Pipeline, PCollection[FileMetadata]]):
    """The files that match a path, a pattern (`*`, `?`, `[…]`, `**`) or several of them, sorted by path.

    - `allow_empty`: a pattern without a file is no error.
    - `follow=True`: a stream of the files that appear, each once, also after a restart; `poll_interval` and `min_age`
      are those of `ReadFromText`.
    - `storage_options`: as in `ReadFromText`.

    Other keyword arguments are those of `tg.Read`. Raises BuildError when applied, if a path matches nothing.
    """

    def __init__(
        self,
        path: Path | Iterable[Path],
        *,
        allow_empty: bool = False,
        follow: bool = False,
        poll_interval: DurationLike = 1.0,
        min_age: DurationLike | None = None,
        storage_options: StorageOptions | None = None,
        name: str | None = None,
        **options: Unpack[ReadOptions],
    ) -> None:
        self.label = name
        followed = Follow.of(poll_interval, min_age, "MatchFiles") if follow else None
        paths = paths_of(path, "MatchFiles")
        source = MatchSource(paths, allow_empty, followed, options_of(storage_options, paths, "MatchFiles"))
        self.read: Read[FileMetadata] = Read(source, name="Read", **options)

    def expand(self, input: Pipeline) -> PCollection[FileMetadata]:
        return input | self.read


class MatchAll(PTransform[PCollection[Any], PCollection[FileMetadata]]):
    """The files that match each element, which is a path or a pattern, as `MatchFiles` finds them.

    A path that is an element can't refer to a secret: `${NAME}` in it stands for itself. Those in the URL of
    `MatchFiles` do, also where the files that it has found are read.

    - `allow_empty`: a pattern without a file is no error.
    - `storage_options`: as in `ReadFromText`.
    """

    def __init__(
        self,
        *,
        allow_empty: bool = False,
        storage_options: StorageOptions | None = None,
        name: str | None = None,
    ) -> None:
        self.allow_empty = allow_empty
        self.storage_options = options_of(storage_options, (), "MatchAll")
        self.label = name

    def expand(self, input: PCollection[Any]) -> PCollection[FileMetadata]:
        return input | FlatMap(_matching, self.allow_empty, self.storage_options, name="Match")


class ReadMatches(PTransform[PCollection[Any], PCollection[ReadableFile]]):
    """A `ReadableFile` for each element, which is a `FileMetadata` or a path.

    The files are distributed over the workers, so that several are read at once.

    - `compression`: as in `ReadFromText`; zip archives are not decompressed.
    - `storage_options`: as in `ReadFromText`. The files carry them along, so secrets can only be references such as
      `"${NAME}"`.
    """

    def __init__(
        self,
        *,
        compression: Compression = "auto",
        storage_options: StorageOptions | None = None,
        name: str | None = None,
    ) -> None:
        _compression.check(compression, "ReadMatches")
        self.compression: Compression = compression
        self.storage_options = options_of(storage_options, (), "ReadMatches")
        if has_secrets(self.storage_options):
            raise BuildError(
                "ReadMatches: the storage_options become part of the elements, so a secret among them would be stored "
                "with these. Use a reference instead, such as '${NAME}' to an environment variable"
            )
        self.label = name

    def expand(self, input: PCollection[Any]) -> PCollection[ReadableFile]:
        return input | Reshuffle() | Map(_readable, self.compression, self.storage_options, name="Open")


class ReadAll(PTransform[PCollection[Any], PCollection[Any]]):
    """The elements of the files that each input element names; `source_of` returns the source of a file.

    An input element is a path, a pattern or a `FileMetadata`. With `with_filename`, an output element is `(file,
    element)`, except for dead letters, which name their file themselves.
    """

    def __init__(
        self,
        source_of: Callable[[FileMetadata], Source[Any]],
        element_type: Any,
        *,
        with_filename: bool = False,
        allow_empty: bool,
        storage_options: StorageOptions | None,
        name: str | None = None,
    ) -> None:
        self.source_of = source_of
        self.element_type = element_type
        self.with_filename = with_filename
        self.allow_empty = allow_empty
        self.storage_options = storage_options
        self.label = name

    def expand(self, input: PCollection[Any]) -> PCollection[Any]:
        matched = input | MatchAll(allow_empty=self.allow_empty, storage_options=self.storage_options, name="Match")
        read = ParDo(_ReadWhole(self.source_of, self.with_filename), name="Read").with_output_types(self.element_type)
        result: PCollection[Any] = matched | Reshuffle() | read
        return result


class _ReadWhole(DoFn):
    """Reads all splits of the source of a file."""

    def __init__(self, source_of: Callable[[FileMetadata], Source[Any]], with_filename: bool) -> None:
        self.source_of = source_of
        self.with_filename = with_filename

    def process(self, file: FileMetadata) -> Iterator[Any]:
        source = self.source_of(file)
        for split in source.splits(1):
            reader = source.reader(split)
            assert isinstance(reader, Reader)
            try:
                ended = False
                while not ended:
                    batch = reader.read(4096)
                    if self.with_filename:
                        path = file.path
                        yield from (each if type(each) is BadRecord else (path, each) for each in batch.block.values)
                    else:
                        yield from batch.block.values
                    ended = batch.end
            finally:
                reader.close()


@dataclass(frozen=True)
class MatchSource(Source[FileMetadata]):
    """A split for each file that matches."""

    patterns: tuple[str, ...]
    allow_empty: bool = False
    follow: Follow | None = None
    storage_options: StorageOptions | None = None

    @property
    def bounded(self) -> bool:  # type: ignore[override]
        return self.follow is None

    @property
    def name(self) -> str:
        return f"files {', '.join(self.patterns)}"

    @property
    def element_type(self) -> type[FileMetadata]:
        return FileMetadata

    def check(self) -> None:
        if not check_readable(self.patterns, self.storage_options):
            return
        if self.follow is not None:
            check_followed(self.patterns, "MatchFiles", self.allow_empty, self.storage_options)
        else:
            matching(self.patterns, self.allow_empty, BuildError, self.storage_options)

    def splits(self, desired: int) -> list[Split]:
        files_found = matching(self.patterns, self.allow_empty, ReadError, self.storage_options)
        found = [file.metadata for file in files_found]
        size = max(1, -(-len(found) // desired))
        return [Split(found[at].path, None, found[at : at + size]) for at in range(0, len(found), size)]

    def enumerator(self, state: Position = None) -> SplitEnumerator | None:
        if self.follow is None:
            return None
        return FollowedFiles(
            self.patterns,
            self.follow,
            lambda file: [Split(file.url, None, [file.metadata])],
            state,
            options=self.storage_options,
        )

    def reader(self, split: Split, position: Position = None) -> Reader[FileMetadata]:
        return _MatchReader(split.payload, position or 0)


class _MatchReader(Reader[FileMetadata]):
    def __init__(self, found: Sequence[FileMetadata], next: int) -> None:
        self._found = found
        self._next = next

    def read(self, limit: int) -> Batch:
        values = self._found[self._next : self._next + limit]
        self._next += len(values)
        return Batch(Block.of(values), end=self._next >= len(self._found))

    def position(self) -> Position:
        return self._next


def _matching(element: Any, allow_empty: bool, options: StorageOptions | None) -> list[FileMetadata]:
    match element:
        case FileMetadata():
            return [element]
        case str() | os.PathLike():
            path = files.literal(os.fspath(element))
            return [file.metadata for file in matching((path,), allow_empty, ReadError, options)]
        case _:
            raise TypeError(f"the name of a file is a str, not {shorten(element, 60)}")


def _readable(element: Any, compression: Compression, options: StorageOptions | None) -> ReadableFile:
    match element:
        case FileMetadata():
            return ReadableFile(element.path, element.size, element.modified, element.tag, compression, options)
        case str() | os.PathLike():
            return _readable(_matching(element, False, options)[0], compression, options)
        case _:
            raise TypeError(f"ReadMatches takes the files of MatchFiles, or paths, not {shorten(element, 60)}")
