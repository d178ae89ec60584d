"""Side inputs on Spark: the driver groups their elements, and broadcasts the result to the workers.

The driver receives the elements of a side collection with the results of an earlier action, or has them from a
`Create`. It groups them by window with the engine's views, as every runner does. Small contents are sent in the
closure, others as a file. Large maps are files that workers read through mmap instead of loading them. A worker opens a
file once, and keeps it open for its later tasks.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, Final, TypeAlias

from tidegate.runners.engine.errors.attribution import located, rethrow
from tidegate.runners.engine.operator import Context
from tidegate.runners.engine.side_inputs.view import SideView, side_views
from tidegate.runners.plan import Edge, Plan, Step, side_id
from tidegate.runners.spark.plan.artifacts import CLOSURE_BYTES, Artifact, Artifacts, artifact_path, read_payload
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
"""A larger map is memory-mapped instead of loaded."""

_MAX_OPEN: Final = 16
"""The number of side inputs that a worker keeps open."""
_ROW_ELEMENTS: Final = 16_384
_ROW_BYTES: Final = 4 << 20

ViewContents: TypeAlias = tuple[dict[Any, list[Any]], dict[Any, Any]]
"""The contents of a side input by window: lists of values, or complete arguments."""


class SideInputBroadcaster:
    """Groups the side inputs of a run on the driver, and broadcasts them."""

    def __init__(self, plan: Plan, artifacts: Artifacts, context: Context) -> None:
        self._plan = plan
        self._artifacts = artifacts
        self._context = context
        self._blocks: dict[str, list[Block]] = {}
        self._room = CLOSURE_BYTES

    def put(self, collection: str, blocks: list[Block]) -> None:
        """Take the elements of a side collection, in their final order."""
        self._blocks[collection] = blocks

    def blocks(self, edge: Edge) -> Iterable[Block]:
        """The elements that have been put of what an edge carries."""
        return self._blocks.get(edge.collection, ())

    def edges_of(self, steps: Iterable[Step]) -> dict[str, list[Edge]]:
        """The edges into each side input of these steps, by `side_id`."""
        labels = {node.label for step in steps for node in step.nodes}
        found: dict[str, dict[tuple[str, str | None], Edge]] = {}
        for edge in self._plan.edges:
            if edge.side is not None and edge.node in labels:
                found.setdefault(side_id(edge.node, edge.side), {})[edge.collection, edge.turn] = edge
        return {id: list(edges.values()) for id, edges in found.items()}

    def views_of(
        self,
        steps: Sequence[Step],
        blocks_of: Callable[[Edge], Iterable[Block]] | None = None,
        *,
        only: Container[str] | None = None,
    ) -> dict[str, BroadcastView]:
        """The contents of the side inputs of these steps, or `only` of some, by `side_id`. `blocks_of` gives what an
        edge carries, if that is not what has been put.

        Raises the errors of the author's triggers and window assigners.
        """
        broadcast: dict[str, BroadcastView] = {}
        views: dict[str, SideView] = {}
        edges = self.edges_of(steps)
        with collecting(self._context.metrics):
            for step in steps:
                for node in step.nodes:
                    if side_inputs(node):
                        for view in side_views(node, self._plan.pipeline, self._context):  # type: ignore[arg-type]
                            if only is None or view.id in only:
                                views.setdefault(view.id, view)
            encoded = []
            for id, view in views.items():
                for edge in edges[id]:
                    for block in (blocks_of or self.blocks)(edge):
                        view.process(block)
                view.on_watermark(MAX_MICROS)
                encoded.append((id, view, encode_columns((list(view.shown), list(view.shown.values())))))
        for id, view, data in sorted(encoded, key=lambda entry: len(entry[2])):
            broadcast[id] = self._broadcast(view, data)
        return broadcast

    def _broadcast(self, view: SideView, data: bytes) -> BroadcastView:
        if len(data) <= self._room:
            self._room -= len(data)
            return BroadcastView("values", view.ref.view, data)
        if len(data) > INDEXED_BYTES and view.ref.view in ("dict", "multimap"):
            maps = self._map_file(view)
            if maps is not None:
                return maps
        return BroadcastView("values", view.ref.view, self._artifacts.publish_bytes(data))

    def _map_file(self, view: SideView) -> BroadcastView | None:
        """A file with a map for each window. None if a key has no encoding or occurs twice in a dict: only elements
        that read the side input may fail because of that, so the values are sent instead."""
        path = self._artifacts.new_file()
        try:
            with path.open("wb") as file:
                regions = tuple((window, write_map(file, view.argument(window))) for window in view.shown)
        except (KeyEncodingError, RunError):
            path.unlink()
            return None
        return BroadcastView("maps", view.ref.view, self._artifacts.publish(path), regions)


# -- in a worker


class SideInputWriter:
    """Sends the elements of a side collection from a task to the driver."""

    def __init__(self, collection: str, producer: Step, src: int, send: Callable[[str, Any], None]) -> None:
        self._collection = collection
        self._producer = producer
        self._src = src
        self._send = send
        self._blocks: list[Block] = []
        self._elements = 0
        self._row_elements = _ROW_ELEMENTS // 64
        self._seq = 0

    def write(self, block: Block) -> None:
        """Add a block, and send the buffered ones if there are enough elements."""
        self._blocks.append(block)
        self._elements += len(block)
        if self._elements >= self._row_elements:
            self.close()

    def close(self) -> None:
        """Send the buffered elements."""
        if not self._elements:
            return
        try:
            data = encode_blocks(self._blocks)
        except PicklingError as error:
            rethrow(located(error, self._producer.label, self._producer.tail.where))
        self._row_elements = min(_ROW_ELEMENTS, _ROW_BYTES * self._elements // len(data))
        self._blocks, self._elements = [], 0
        self._send("side", (self._collection, self._src, self._seq, data))
        self._seq += 1


_opened: Final[OrderedDict[tuple[Any, ...], ViewContents]] = OrderedDict()


def open_view(side: BroadcastView) -> ViewContents:
    """The contents of a side input. A worker opens each file once, and keeps the most recently used ones open."""
    if isinstance(side.data, bytes):
        return _values(side.data), {}
    key = (os.getpid(), side.data, side.form, side.view)
    contents = _opened.get(key)
    if contents is None:
        contents = _opened[key] = _read(side, side.data)
        while len(_opened) > _MAX_OPEN:
            _opened.popitem(last=False)
    _opened.move_to_end(key)
    values, arguments = contents
    # Singletons of the same value may have different defaults, so their arguments are not cached.
    return (values, {}) if side.view == "singleton" else (values, arguments)


def _read(side: BroadcastView, artifact: Artifact) -> ViewContents:
    if side.form == "values":
        return _values(read_payload(artifact)), {}
    file = MapFile(artifact_path(artifact))
    return {}, {window: IndexedMap(file, region) for window, region in side.regions}


def _values(data: bytes) -> dict[Any, list[Any]]:
    windows, values = decode_columns(data)
    return dict(zip(windows, values, strict=True))
