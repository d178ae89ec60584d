"""The commit of files: parts in the work folder get their final names.

A part gets its final name by a move. If several parts make up one file, they are joined first: byte by byte without the
headers and footers in between, or by the format.

While the commit of a bounded run is under way, a marker file lies in its work folder, and is removed last. A commit
that finds the marker continues where an earlier one stopped. A commit that finds neither marker nor parts had been
completed before, and only checks that all final files exist and are as long as they were written.

The commit of a bounded run replaces the files of an earlier run. Without addresses those are found by their names. If
elements have addresses, no pattern could tell the sink's files from those of other sinks, so each commit leaves a list
of the files it wrote (`.tidegate-files-…`), by which the next one removes what it does not replace.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import BinaryIO, TypeAlias

from tidegate.io import files
from tidegate.io.file_sink.attempt import Piece
from tidegate.io.file_sink.format import FileFormat
from tidegate.io.file_sink.output_files import MARKER, OutputFiles, checked_run
from tidegate.io.files import Store
from tidegate.sdk.connectors.sinks import Committable, in_order
from tidegate.sdk.errors import WriteError

FinalFiles: TypeAlias = dict[str, list[Piece]]
"""The parts of each final file, in order."""


class FileCommit:
    """The commit of one run's committables; `shards` is 0 if every task has files of its own."""

    def __init__(self, output: OutputFiles, format: FileFormat, shards: int, run: str) -> None:
        self._output = output
        self._store = output.store
        self._format = format
        self._shards = shards
        self._run = run
        self._work = output.work(run)

    def commit(self, committables: Sequence[Committable], checkpoint: int | None) -> list[str]:
        """Make the files visible; returns their names as authors write them."""
        final = self._final_files(committables, checkpoint)
        if checkpoint is None:
            self._replace_earlier_run(final)
        else:
            for path, pieces in final.items():
                self._finalize(path, pieces)
                for piece in pieces if len(pieces) > 1 else ():
                    self._store.remove(self._part(piece))
        return [self._store.url(path) for path in final]

    def _final_files(self, committables: Sequence[Committable], checkpoint: int | None) -> FinalFiles:
        addition = "" if checkpoint is None else f"-{checked_run(self._run)}-{checkpoint:05d}"
        # By prefixes and not by addresses, two of which may give the same one.
        by_prefix: dict[str, list[tuple[int, Piece]]] = {}
        prefix_of = cache(self._output.prefix_of)
        if not self._output.addressed:
            by_prefix[prefix_of(()) + addition] = []
        for committable in in_order(committables):
            piece = Piece(*committable.payload)
            prefix = prefix_of(tuple(piece.address)) + addition
            by_prefix.setdefault(prefix, []).append((committable.order[0], piece))
        final: FinalFiles = {}
        for prefix, found in sorted(by_prefix.items()):
            shards = self._divided(found)
            if not shards and checkpoint is None:
                shards = [[]]
            for shard, pieces in enumerate(shards):
                if pieces or checkpoint is None:
                    final[self._output.final(prefix, shard, len(shards))] = pieces
        return final

    def _divided(self, found: Sequence[tuple[int, Piece]]) -> list[list[Piece]]:
        """The pieces of a prefix, with their tasks, divided into those of each file."""
        if self._shards:
            return [[piece for _, piece in found if piece.shard == shard] for shard in range(self._shards)]
        if self._output.addressed and self._format.appends:
            # A task that has many files open may finish some early; the pieces it then writes continue the same file.
            by_file: dict[tuple[int, int, tuple[str, ...]], list[Piece]] = {}
            for task, piece in found:
                by_file.setdefault((task, piece.file, tuple(piece.address)), []).append(piece)
            return list(by_file.values())
        return [[piece] for _, piece in found]

    def _replace_earlier_run(self, final: FinalFiles) -> None:
        store = self._store
        marker = files.join(self._work, MARKER)
        parts = [self._part(piece) for pieces in final.values() for piece in pieces]
        if parts and store.find(marker) is None:
            exist = [store.find(part) is not None for part in parts]
            if not any(exist):
                # An earlier call was complete. Moving anything now could only harm the output of a later run.
                for path, pieces in final.items():
                    self._check_committed(path, pieces)
                return
            if not all(exist):
                lost = store.url(parts[exist.index(False)])
                raise WriteError(f"output is lost: {lost} is gone. Was it removed while the pipeline ran?")
        store.finish(store.create(marker))
        for path, pieces in final.items():
            self._finalize(path, pieces)
        if self._output.addressed:
            self._remove_unlisted(final)
        else:
            for path in list(self._output.stale(final)):
                store.remove(path)
        self._output.remove_work(self._run)

    def _finalize(self, path: str, pieces: list[Piece]) -> None:
        """Give a file its final name; does nothing if it has it already."""
        parts = [self._part(piece) for piece in pieces]
        if any(self._store.find(part) is None for part in parts):
            self._check_committed(path, pieces)
            return
        whole = parts[0] if len(parts) == 1 else self._joined(path, pieces)
        try:
            self._store.move(whole, path)
        except OSError as error:
            raise WriteError(
                f"{self._store.url(path)}: the output can't get this name: {files.describe(error)}{_advice(error)}"
            ) from error

    def _joined(self, path: str, pieces: list[Piece]) -> str:
        """One file made of several parts, or of none."""
        joined = files.join(self._work, f"joined/{path.rpartition('/')[2]}")
        with self._store.create(joined) as target:
            if not pieces:
                target.write(self._format.empty())
            elif self._format.appends:
                self._join_bytes(pieces, target)
            else:
                parts = [partial(self._store.open, self._part(piece)) for piece in pieces]
                self._format.join(parts, target, self._output.given_prefix)
            self._store.finish(target)
        return joined

    def _join_bytes(self, pieces: Sequence[Piece], target: BinaryIO) -> None:
        """Write the first piece's header, all elements, and the last piece's footer."""
        first_head = b""
        for i, piece in enumerate(pieces):
            end = piece.size - (piece.foot if i < len(pieces) - 1 else 0)
            with self._store.open(self._part(piece)) as part:
                head = part.read(piece.head)
                if i == 0:
                    first_head = head
                    target.write(head)
                elif head != first_head:
                    raise WriteError(
                        f"{self._output.given_prefix}: two tasks wrote different headers, so their output can't be "
                        "one file: give the columns with schema=, or leave out num_shards"
                    )
                _copy(part, target, end - piece.head)

    def _check_committed(self, path: str, pieces: list[Piece]) -> None:
        expected = self._expected_size(pieces)
        found = self._store.find(path)
        if found is None or (expected is not None and found.size not in (None, expected)):
            state = "does not exist" if found is None else f"has {found.size} bytes, not {expected}"
            raise WriteError(
                f"output is lost: the parts of {self._store.url(path)} are gone, and the file itself {state}. "
                f"Was {self._store.url(self._output.work_root)}* removed while the pipeline ran?"
            )

    def _expected_size(self, pieces: list[Piece]) -> int | None:
        """The size of a file made of these pieces; None if only joining them tells."""
        match pieces:
            case []:
                return len(self._format.empty())
            case [piece]:
                return piece.size
        return joined_size(pieces) if self._format.appends else None

    def _remove_unlisted(self, final: FinalFiles) -> None:
        """Remove the files that an earlier run wrote and this one has not replaced, and list those of this run."""
        listing = self._output.listing
        for path in sorted(_listed(self._store, listing) - final.keys()):
            self._store.remove(path)
        fresh = files.join(self._work, "listing")
        with self._store.create(fresh) as target:
            target.write("".join(f"{json.dumps(path)}\n" for path in final).encode())
            self._store.finish(target)
        self._store.move(fresh, listing)

    def _part(self, piece: Piece) -> str:
        return files.join(self._work, piece.path)


def _advice(error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError | IsADirectoryError):
        return ". A path is that of a file or of a folder: two destinations, or those of another run, use it as both"
    return ""


def joined_size(pieces: Iterable[Piece]) -> int:
    """The size of the file that these pieces are joined to: all elements, the first header, the last footer."""
    found = list(pieces)
    dropped = sum(piece.head for piece in found[1:]) + sum(piece.foot for piece in found[:-1])
    return sum(piece.size for piece in found) - dropped


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
