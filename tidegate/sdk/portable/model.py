"""The portable pipeline: nodes, collections and the code they hold, as frozen dataclasses.

There are few kinds of node; everything else is a composite of them. Every fact a planner or a validator asks of
the author's code is a field, recorded when the node is made: nothing here is ever unpickled to be understood.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Final, Literal, TypeAlias, TypeVar

from tidegate.sdk import moved
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.authoring.side_inputs import View
from tidegate.sdk.authoring.state import StateSpec, TimerSpec
from tidegate.sdk.time import Duration
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.sealing import Sealer
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy

FORMAT_VERSION: Final = 1

MAIN: Final = "main"

Form: TypeAlias = Literal["process", "map", "flat_map", "filter", "map_tuple", "flat_map_tuple"]
"""How a ParDo calls its function: a DoFn's `process`, or a plain function in one of the library's forms."""

KeyOf: TypeAlias = Literal["first", "element", "none"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TypeRef:
    """An element type: its name for people, and itself for `--type_check=runtime` (None: anything)."""

    name: str = "Any"
    type: UserFn | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A PCollection as data. `id` is the label path of what made it, and `:tag` for a further output."""

    id: str
    bounded: bool = True
    windowing: WindowingStrategy = GLOBAL_DEFAULT
    element_type: TypeRef = TypeRef()


@dataclass(frozen=True, slots=True)
class Output:
    """One output of a node: its tag and the collection it fills."""

    tag: str
    collection: str


@dataclass(frozen=True, slots=True)
class SideInputRef:
    """A side input of a node: the collection, how it is seen, what a missing singleton is."""

    collection: str
    view: View
    default: UserFn | None = None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """`with_exception_handling`: which exceptions go to the output `tag` instead of failing the run.

    `partial` keeps what an element had emitted before it failed. `threshold` is the share of elements of a bundle
    that may fail before the run does.
    """

    tag: str = "bad"
    exc_class: UserFn | None = None
    partial: bool = False
    threshold: float = 1.0


@dataclass(frozen=True, slots=True)
class Callback:
    """A DoFn method that a timer, or a window's expiration, calls; `timer` is None for the latter."""

    method: str
    timer: str | None
    params: tuple[Param, ...] = ()


class Values:
    """The elements of a `Create`: the author's own while live, a pickle once the pipeline has left the process."""

    __slots__ = ("_live", "count", "data")

    def __init__(self, live: Any, count: int, data: bytes | None = None) -> None:
        self._live = live
        self.count = count
        self.data = data

    def load(self) -> Any:
        """The elements, a sequence."""
        if self._live is None and self.data is not None:
            self._live = moved.loads(self.data)
        return self._live

    def sealed(self, sealer: Sealer, name: str) -> Values:
        """The same with its pickle; raises PicklingError."""
        if self.data is not None:
            return self
        return Values(self._live, self.count, sealer.seal_values(self._live, name))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values):
            return NotImplemented
        if self.data is None or other.data is None:
            return self._live is other._live
        return self.data == other.data

    def __hash__(self) -> int:
        return hash(self.count)

    def __repr__(self) -> str:
        return f"Values({self.count})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.data is None:
            raise TypeError("the values of this Create are not sealed yet")
        return Values, (None, self.count, self.data)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """How JSON holds them: an id into the table of blobs, which travels as pydantic's context."""
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            lambda value, info: info.context.values_by_id(value),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda values, info: info.context.id_of_values(values), info_arg=True
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBase:
    """What every node carries. `label` is the whole path; `composite` the path of the composite it belongs to.

    `numbered`: some part of the automatic label carries an ordinal, so it may move when the script changes.
    """

    label: str
    where: Where
    composite: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ()
    numbered: bool = False
    hints: tuple[tuple[str, str], ...] = ()

    def output(self, tag: str | None = None) -> str:
        """The id of the collection on output `tag` (None: the main one, the first); KeyError if there is none."""
        for out in self.outputs:
            if tag is None or out.tag == tag:
                return out.collection
        raise KeyError(tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Create(NodeBase):
    """Elements from the author's script."""

    values: Values
    kind: Literal["create"] = "create"


@dataclass(frozen=True, slots=True)
class Stamping:
    """How a read stamps elements: by the author's function of the element, or with the time of their entry.

    The watermark of each split follows: the greatest timestamp so far less `out_of_orderness`, or the clock. A split
    that has given nothing for `idle_after` (processing time) holds back nobody.
    """

    timestamp: UserFn | None = None
    ingestion: bool = False
    out_of_orderness: Duration = Duration(0)
    idle_after: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(NodeBase):
    """Elements from a `Source` (sdk/connectors/sources.py)."""

    source: UserFn
    name: str
    bounded: bool
    stamping: Stamping | None = None
    kind: Literal["read"] = "read"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParDo(NodeBase):
    """The author's function, once per element.

    `emits` is "plain" when the function surely never gives a TimestampedValue, TaggedOutput or WindowedValue, so
    that the engine need not look. `keeps_key`: pairs in, pairs with the same key out.
    """

    fn: UserFn
    form: Form
    params: tuple[Param, ...]
    consts: UserFn | None = None
    side_inputs: tuple[SideInputRef, ...] = ()
    states: tuple[StateSpec, ...] = ()
    timers: tuple[TimerSpec, ...] = ()
    callbacks: tuple[Callback, ...] = ()
    dead_letters: DeadLetters | None = None
    bundle_hooks: bool = False
    keeps_key: bool = False
    emits: Literal["plain", "any"] = "any"
    kind: Literal["par_do"] = "par_do"

    @property
    def stateful(self) -> bool:
        """Whether it has state cells or timers."""
        return bool(self.states or self.timers or self.callbacks)

    @property
    def sees_window(self) -> bool:
        """Whether it is called once per element and window (SEMANTICS, Windows)."""
        if self.stateful or any(param.kind == "window" for param in self.params):
            return True
        return any(True for _ in self.side_inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignWindows(NodeBase):
    """`WindowInto`: new windows for each element."""

    windowing: WindowingStrategy
    kind: Literal["assign_windows"] = "assign_windows"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupByKey(NodeBase):
    """All values of a key and window together. `late_tag`: the output for elements too late to count."""

    late_tag: str | None = None
    kind: Literal["group_by_key"] = "group_by_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinePerKey(NodeBase):
    """A combiner's result per key and window.

    `key`: the first of each pair; the element itself (what it is combined with is the element, too); or none: one
    result over the whole collection. `in_parts` and `has_identity` are the combiner's own facts. `default`: emit the
    result of no input, too.
    """

    fn: UserFn
    name: str
    in_parts: bool
    has_identity: bool
    key: KeyOf = "first"
    default: bool = False
    params: tuple[Param, ...] = ()
    consts: UserFn | None = None
    side_inputs: tuple[SideInputRef, ...] = ()
    late_tag: str | None = None
    kind: Literal["combine_per_key"] = "combine_per_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten(NodeBase):
    """Several collections as one."""

    kind: Literal["flatten"] = "flatten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshuffle(NodeBase):
    """The same elements, redistributed; nothing fuses across it."""

    kind: Literal["reshuffle"] = "reshuffle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(NodeBase):
    """Elements into a `Sink` (sdk/connectors/sinks.py)."""

    sink: UserFn
    name: str
    delivery: Literal["exactly_once", "at_least_once"]
    shards: int = 0
    kind: Literal["write"] = "write"


@dataclass(frozen=True, slots=True)
class AddElements:
    """TestStream: elements with their timestamps (µs), on one output."""

    values: Values
    timestamps: tuple[int, ...]
    tag: str = MAIN
    kind: Literal["add_elements"] = "add_elements"


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """TestStream: the watermark of one output goes to `to` (µs)."""

    to: int
    tag: str = MAIN
    kind: Literal["advance_watermark"] = "advance_watermark"


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """TestStream: processing time moves by `by` (µs)."""

    by: int
    kind: Literal["advance_clock"] = "advance_clock"


@dataclass(frozen=True, slots=True)
class Idle:
    """TestStream: one output is idle until its next event."""

    tag: str = MAIN
    kind: Literal["idle"] = "idle"


TestEvent: TypeAlias = AddElements | AdvanceWatermark | AdvanceClock | Idle


@dataclass(frozen=True, slots=True, kw_only=True)
class TestStream(NodeBase):
    """A stream whose every event a test decides."""

    events: tuple[TestEvent, ...]
    kind: Literal["test_stream"] = "test_stream"


Node: TypeAlias = (
    Create | Read | ParDo | AssignWindows | GroupByKey | CombinePerKey | Flatten | Reshuffle | Write | TestStream
)


@dataclass(frozen=True, slots=True)
class Environment:
    """Where the pipeline was built, as far as its code depends on it."""

    python: str
    tidegate: str
    distributions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline. `nodes` stand in an order in which every input is made before it is used.

    `classes` are the by-value classes of elements: a worker installs them before it decodes anything. `coders`
    are the authors' coders for their own key types. `options` are the author's flags, and of the others those given.
    """

    nodes: tuple[Node, ...]
    collections: tuple[Collection, ...]
    environment: Environment
    classes: tuple[UserFn, ...] = ()
    coders: tuple[tuple[UserFn, UserFn], ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    name: str = "pipeline"
    version: int = FORMAT_VERSION
    _index: dict[str, Collection] = field(default_factory=dict, init=False, repr=False, compare=False, hash=False)
    _makers: dict[str, Node] = field(default_factory=dict, init=False, repr=False, compare=False, hash=False)
    _readers: dict[str, list[Node]] = field(default_factory=dict, init=False, repr=False, compare=False, hash=False)

    def collection(self, id: str) -> Collection:
        """The collection of that id; KeyError if there is none."""
        if not self._index:
            self._index.update({c.id: c for c in self.collections})
        return self._index[id]

    def producer(self, collection: str) -> Node:
        """The node that makes a collection."""
        if not self._makers:
            self._makers.update({out.collection: node for node in self.nodes for out in node.outputs})
        return self._makers[collection]

    def consumers(self, collection: str) -> Iterator[Node]:
        """The nodes that read a collection, side inputs aside."""
        if not self._readers:
            for node in self.nodes:
                for used in dict.fromkeys(node.inputs):
                    self._readers.setdefault(used, []).append(node)
        return iter(self._readers.get(collection, ()))


def side_inputs(node: Node) -> tuple[SideInputRef, ...]:
    """The node's side inputs."""
    match node:
        case ParDo() | CombinePerKey():
            return node.side_inputs
        case _:
            return ()


def map_code(value: T, change: Any) -> T:
    """`value` with every UserFn and Values inside it replaced by `change(it)`; parts without any are shared."""
    match value:
        case UserFn() | Values():
            return change(value)  # type: ignore[no-any-return]
        case tuple():
            changed = tuple(map_code(item, change) for item in value)
            same = all(a is b for a, b in zip(changed, value, strict=True))
            return value if same else changed  # type: ignore[return-value]
    if is_dataclass(value) and not isinstance(value, type):
        new = {}
        for f in fields(value):
            if f.init and f.compare:
                old = getattr(value, f.name)
                part = map_code(old, change)
                if part is not old:
                    new[f.name] = part
        if new:
            return replace(value, **new)
    return value


def code_of(value: Any) -> Iterator[UserFn | Values]:
    """Every UserFn and Values inside `value`, in a fixed order."""
    match value:
        case UserFn() | Values():
            yield value
        case tuple():
            for item in value:
                yield from code_of(item)
        case _ if is_dataclass(value) and not isinstance(value, type):
            for f in fields(value):
                if f.compare:
                    yield from code_of(getattr(value, f.name))
