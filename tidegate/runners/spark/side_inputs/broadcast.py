"""Side inputs on Spark: the driver groups them once, and workers open what it made.

The elements of a side collection come to the driver with the results of an earlier action, or from a `Create` without
one. There they are grouped by the rules of every runner; what each window shows goes to the workers in the closure if
all of it is small, else as a file. Large maps are files that are looked into, not loaded. A worker opens a file once
and keeps it for all its tasks.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.side_inputs.view import SideView, side_id, side_views
from tidegate.runners.plan import Plan, Step
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts, content_of, path_of
from tidegate.runners.spark.plan.task_spec import BroadcastView
from tidegate.runners.spark.shuffle.row_codec import encode_blocks
from tidegate.runners.spark.side_inputs.mmap_map import IndexedMap, MapFile, write_map
from tidegate.sdk.data.block import Block
from tidegate.sdk.data.coders import decode_columns, encode_columns
from tidegate.sdk.errors import KeyEncodingError, PicklingError, RunError
from tidegate.sdk.metrics import collecting
from tidegate.sdk.portable.model import side_inputs
from tidegate.sdk.time import MAX_MICROS

INDEXED_BYTES: Final = 8 << 20
"""A map that takes more is looked into where it lies."""

_KEPT: Final = 16
"""How many side inputs a worker keeps open."""
_ROW_ELEMENTS: Final = 16_384
_ROW_BYTES: Final = 4 << 20

Contents: TypeAlias = tuple[dict[Any, list[Any]], dict[Any, Any]]
"""What each window shows, as values, and as finished arguments."""


class SideInputBroadcaster:
    """The side inputs of a run, on the driver: blocks come in, what workers open goes out."""

    def __init__(self, plan: Plan, artifacts: Artifacts, context: Context) -> None:
        self._plan = plan
        self._artifacts = artifacts
        self._context = context
        self._blocks: dict[str, list[Block]] = {}
        self._room = CLOSURE_BYTES

    def add(self, collection: str, blocks: Iterable[Block]) -> None:
        """Elements of a side collection, in the order in which they count."""
        self._blocks.setdefault(collection, []).extend(blocks)

    def views_of(self, steps: Iterable[Step]) -> dict[str, BroadcastView]:
        """What the side inputs of these steps show, by `side_id`.

        Raises what the author's triggers and window assigners raise.
        """
        made: dict[str, BroadcastView] = {}
        views: dict[str, SideView] = {}
        parts: dict[str, dict[str, None]] = {}
        for edge in self._plan.edges:
            if edge.side is not None:
                parts.setdefault(side_id(edge.node, edge.side), {})[edge.collection] = None
        with collecting(self._context.metrics):
            for step in steps:
                for node in step.nodes:
                    if side_inputs(node):
                        for view in side_views(node, self._plan.pipeline, self._context):  # type: ignore[arg-type]
                            views.setdefault(view.id, view)
            packed = []
            for id, view in views.items():
                for part in parts[id]:
                    for block in self._blocks.get(part, ()):
                        view.process(block)
                view.on_watermark(MAX_MICROS)
                packed.append((id, view, encode_columns((list(view.shown), list(view.shown.values())))))
        for id, view, data in sorted(packed, key=lambda each: len(each[2])):
            made[id] = self._sent(view, data)
        return made

    def _sent(self, view: SideView, data: bytes) -> BroadcastView:
        if len(data) <= self._room:
            self._room -= len(data)
            return BroadcastView("values", view.ref.view, data)
        if len(data) > INDEXED_BYTES and view.ref.view in ("dict", "multimap"):
            found = self._indexed(view)
            if found is not None:
                return found
        return BroadcastView("values", view.ref.view, self._artifacts.give_bytes(data))

    def _indexed(self, view: SideView) -> BroadcastView | None:
        """A file of a map for each window; None if that can't be: a key without an encoding, or one that stands twice,
        of which an element that looks must hear, and no other."""
        path = self._artifacts.new()
        try:
            with path.open("wb") as file:
                regions = tuple((window, write_map(file, view.argument(window))) for window in view.shown)
        except (KeyEncodingError, RunError):
            path.unlink()
            return None
        return BroadcastView("maps", view.ref.view, self._artifacts.give(path), regions)


# -- in a worker


class SideInputWriter:
    """What one task gives of a side collection: it goes to the driver."""

    def __init__(self, collection: str, maker: Step, src: int, send: Callable[[str, Any], None]) -> None:
        self._collection = collection
        self._maker = maker
        self._src = src
        self._send = send
        self._blocks: list[Block] = []
        self._elements = 0
        self._most = _ROW_ELEMENTS // 64
        self._seq = 0

    def write(self, block: Block) -> None:
        """Some elements."""
        self._blocks.append(block)
        self._elements += len(block)
        if self._elements >= self._most:
            self.close()

    def close(self) -> None:
        """Send what is there."""
        if not self._elements:
            return
        try:
            data = encode_blocks(self._blocks)
        except PicklingError as error:
            rethrow(located(error, self._maker.label, self._maker.tail.where))
        self._most = min(_ROW_ELEMENTS, _ROW_BYTES * self._elements // len(data))
        self._blocks, self._elements = [], 0
        self._send("side", (self._collection, self._src, self._seq, data))
        self._seq += 1


_open: Final[OrderedDict[tuple[Any, ...], Contents]] = OrderedDict()


def open_view(side: BroadcastView) -> Contents:
    """What a side input shows. Files are opened once in a worker's life, and those used last are kept."""
    if isinstance(side.data, bytes):
        return _values(side.data), {}
    key = (os.getpid(), side.data, side.form, side.view)
    found = _open.get(key)
    if found is None:
        found = _open[key] = _read(side, side.data)
        while len(_open) > _KEPT:
            _open.popitem(last=False)
    _open.move_to_end(key)
    values, arguments = found
    # Singletons differ by what a missing one is, so each task makes its own of the one value.
    return (values, {}) if side.view == "singleton" else (values, arguments)


def _read(side: BroadcastView, artifact: Artifact) -> Contents:
    if side.form == "values":
        return _values(content_of(artifact)), {}
    file = MapFile(path_of(artifact))
    return {}, {window: IndexedMap(file, region) for window, region in side.regions}


def _values(data: bytes) -> dict[Any, list[Any]]:
    windows, values = decode_columns(data)
    return dict(zip(windows, values, strict=True))
