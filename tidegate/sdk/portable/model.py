"""The portable pipeline: nodes, collections and references to the author's code, as frozen dataclasses.

There are few kinds of nodes; all other transforms are composites. Every property of the author's code that a planner or
a validator needs is a field, set when the node is created, so that they never have to unpickle the code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from tidegate.sdk import moved
from tidegate.sdk.authoring.dofn import Param
from tidegate.sdk.authoring.side_inputs import View
from tidegate.sdk.authoring.state import StateSpec, TimerSpec
from tidegate.sdk.data.columns import Access, Schema
from tidegate.sdk.portable.async_calls import AsyncCalls
from tidegate.sdk.portable.loop_variable import LoopVariable
from tidegate.sdk.portable.values import Values
from tidegate.sdk.relational.expressions import Tree
from tidegate.sdk.relational.relations import Relation
from tidegate.sdk.time import Duration
from tidegate.sdk.user_code.frames import Where
from tidegate.sdk.user_code.user_fn import UserFn
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy

FORMAT_VERSION: Final = 3
"""The version that is written. Version 1 had no bodies of functions; version 2 no schemas, relations and loops."""

OLDEST_VERSION: Final = 1
"""The oldest version that is read."""

MAIN: Final = "main"

Form: TypeAlias = Literal["process", "map", "flat_map", "filter", "map_tuple", "flat_map_tuple"]
"""How a ParDo calls its function: a DoFn's `process`, or a plain function in one of the library's forms."""

FLAT_FORMS: Final[frozenset[Form]] = frozenset({"process", "flat_map", "flat_map_tuple"})
"""The forms whose functions may return several results for an element."""

KeyOf: TypeAlias = Literal["first", "element", "none"]


@dataclass(frozen=True, slots=True)
class TypeRef:
    """An element type: its name for messages, and the type for `--type_check=runtime` (None: any)."""

    name: str = "Any"
    type: UserFn | None = None


@dataclass(frozen=True, slots=True)
class Collection:
    """A PCollection as data. `id` is the label path of its step, followed by `:tag` unless it is the main output.

    `schema` has the fields that the element type declares, if it does.
    """

    id: str
    bounded: bool = True
    windowing: WindowingStrategy = GLOBAL_DEFAULT
    element_type: TypeRef = TypeRef()
    schema: Schema | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True)
class Output:
    """An output of a node: its tag and its collection."""

    tag: str
    collection: str


@dataclass(frozen=True, slots=True)
class SideInputRef:
    """A side input of a node: the collection, its view, and the default of a singleton."""

    collection: str
    view: View
    default: UserFn | None = None


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """`with_exception_handling`: elements that raise `exc_class` go to the output `tag` instead of failing the run.

    With `partial`, results that an element emitted before it failed are not dropped. `threshold` is the fraction of a
    bundle's elements above which failures fail the run.
    """

    tag: str = "bad"
    exc_class: UserFn | None = None
    partial: bool = False
    threshold: float = 1.0


@dataclass(frozen=True, slots=True)
class Callback:
    """A DoFn method called by a timer, or when a window expires; `timer` is None for the latter."""

    method: str
    timer: str | None
    params: tuple[Param, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBase:
    """The fields of every node. `label` is the full path, `composite` the path of the composite it belongs to.

    `numbered`: an automatic part of the label has an ordinal, so the label may change when the script does.
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
    """Reads elements from the author's script."""

    values: Values
    kind: Literal["create"] = "create"


@dataclass(frozen=True, slots=True)
class Stamping:
    """How a read assigns timestamps: by a function of the element, or the processing time at which it was read.

    The watermark of each split is the greatest timestamp so far minus `out_of_orderness`, or the clock. A split that
    has yielded nothing for `idle_after` (processing time) is idle, and does not hold back the watermark.
    """

    timestamp: UserFn | None = None
    ingestion: bool = False
    out_of_orderness: Duration = Duration(0)
    idle_after: Duration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Read(NodeBase):
    """Reads elements from a `Source` (sdk/connectors/sources.py), whose `forks_safely` it records.

    `rate_limit`: elements per second of all tasks. `discovers`: the source may have an enumerator. `divides`: it may
    divide the rest of a split. `takes_columns`, `takes_conditions`: the source can leave out fields of elements, and
    elements. A planner pass sets the `columns` that are read (None: all), and `conditions` without which no element is.
    """

    source: UserFn
    name: str
    bounded: bool
    stamping: Stamping | None = None
    kind: Literal["read"] = "read"
    forks_safely: bool = True
    replayable: bool = True
    rate_limit: float | None = None
    discovers: bool = False
    divides: bool = False
    takes_columns: bool = False
    takes_conditions: bool = False
    columns: tuple[str, ...] | None = None
    conditions: tuple[Tree, ...] = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    @property
    def delivery_note(self) -> str:
        """What the author of a pipeline has to know about a source that is not replayable."""
        return f"reads {self.name} at most once: after a failure, what it had read but not processed is lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParDo(NodeBase):
    """Calls the author's function for each element.

    `emits` is "plain" if the function provably never emits a TimestampedValue, TaggedOutput or WindowedValue, so that
    the engine need not check. `keeps_key`: input and output are pairs with the same key. `calls`: the function is not
    called by the loop over a block, but beside the stream. `stamps_by`: it passes elements on with the value of this
    field as their timestamp, reads no other one, and may fail only if that is NULL. `state_of` describes what the state
    of a relational step is made of, beside the types of its cells. `pure`: the function has no side effects.
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
    calls: AsyncCalls | None = None
    stamps_by: str | None = None
    state_of: str = ""
    pure: bool = False

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    @property
    def stateful(self) -> bool:
        """Whether it has state cells or timers."""
        return bool(self.states or self.timers or self.callbacks)

    @property
    def sees_window(self) -> bool:
        """Whether the function is called once per element and window (SEMANTICS, Windows)."""
        return self.stateful or bool(self.side_inputs) or any(param.kind == "window" for param in self.params)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignWindows(NodeBase):
    """`WindowInto`: assigns windows to each element."""

    windowing: WindowingStrategy
    kind: Literal["assign_windows"] = "assign_windows"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupByKey(NodeBase):
    """Groups values by key and window. `late_tag`: the output for elements that were dropped as late."""

    late_tag: str | None = None
    kind: Literal["group_by_key"] = "group_by_key"


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinePerKey(NodeBase):
    """Combines values by key and window.

    `key` is the first item of each pair; the element, which is also the value; or none, for one result per window.
    `in_parts` and `has_identity` are the combiner's attributes. `default`: emit the result for no input, too.
    `cogroups`: it is a CoGroupByKey, whose inputs are pairs of a key and a pair of a collection's number and a value.
    Nobody looks at its groups without a value of each collection that it `needs`.
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
    cogroups: bool = False
    needs: tuple[int, ...] = ()

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relate(NodeBase):
    """Computes a relation of its inputs, without any code of the author's.

    `reads` says of each input how the fields of its elements are read. `late_tag`: the output for elements that were
    dropped as late by an `Aggregate`.
    """

    relation: Relation
    reads: tuple[Access, ...]
    late_tag: str | None = None
    kind: Literal["relate"] = "relate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatten(NodeBase):
    """Merges several collections into one."""

    kind: Literal["flatten"] = "flatten"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reshuffle(NodeBase):
    """Redistributes elements over the workers; prevents fusion."""

    kind: Literal["reshuffle"] = "reshuffle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write(NodeBase):
    """Writes elements to a `Sink` (sdk/connectors/sinks.py), whose `commit_by` and `forks_safely` it records."""

    sink: UserFn
    name: str
    delivery: Literal["exactly_once", "at_least_once"]
    shards: int = 0
    kind: Literal["write"] = "write"
    commit_by: Literal["job", "task"] = "job"
    forks_safely: bool = True

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True)
class AddElements:
    """TestStream: elements with their timestamps (µs), on one output."""

    values: Values
    timestamps: tuple[int, ...]
    tag: str = MAIN
    kind: Literal["add_elements"] = "add_elements"


@dataclass(frozen=True, slots=True)
class AdvanceWatermark:
    """TestStream: the watermark of one output advances to `to` (µs)."""

    to: int
    tag: str = MAIN
    kind: Literal["advance_watermark"] = "advance_watermark"


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """TestStream: processing time advances by `by` (µs)."""

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
    """A stream whose events are scripted by a test."""

    events: tuple[TestEvent, ...]
    kind: Literal["test_stream"] = "test_stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Iterate(NodeBase):
    """Applies a body to loop variables, round after round. What each round leaves, the next one finds.

    `inputs` are the starts of the variables, then the other collections that the body reads, which are the same in all
    rounds. `outputs` are the variables after the last round, then what all rounds together have put in each collection
    of `gives`. The loop is over after `rounds` rounds; after one in which a collection of `again` is empty; or after
    one in which `until` is not. `strict`: it fails if it is over for the first of these reasons alone. `body` and
    `collections` are the nodes of the body and the collections that exist in it alone. `merge` is the combiner of the
    solution's values, without which a new one takes the place of the old; `changed` says whether two values differ.
    """

    variables: tuple[LoopVariable, ...]
    body: tuple[Node, ...]
    collections: tuple[Collection, ...]
    rounds: int
    again: tuple[str, ...] = ()
    until: str | None = None
    gives: tuple[str, ...] = ()
    strict: bool = False
    kind: Literal["iterate"] = "iterate"
    merge: UserFn | None = None
    changed: UserFn | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)

    @property
    def results(self) -> Iterator[str]:
        """The collections of the body that are read outside it: by the next round, the decision, or later steps."""
        yield from (variable.after for variable in self.variables)
        yield from self.again
        if self.until is not None:
            yield self.until
        yield from self.gives

    @property
    def has_condition(self) -> bool:
        """Whether it may be over before its last round."""
        return bool(self.again) or self.until is not None or any(variable.drives for variable in self.variables)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lookup(NodeBase):
    """Looks pairs up in the solution of the loop in whose body it is: `(key, (value, the solution's value or None))`.

    `inputs` are the pairs, and the loop variable that is the solution.
    """

    kind: Literal["lookup"] = "lookup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback(NodeBase):
    """Applies a body to a collection and, element by element, to what the body feeds back.

    `inputs` are the collection, then the others that the body reads. `before` is the first of them with what is fed
    back, and exists in the body alone; `after` is what the body feeds back. `outputs` are the collections `gives` of
    the body, and, with `max_hops`, what has gone round so many times and does not come round again. Input waits while
    more than `max_backlog` bytes are fed back.
    """

    before: str
    after: str
    body: tuple[Node, ...]
    collections: tuple[Collection, ...]
    gives: tuple[str, ...]
    max_backlog: int
    max_hops: int | None = None
    kind: Literal["feedback"] = "feedback"


Node: TypeAlias = (
    Create | Read | ParDo | AssignWindows | GroupByKey | CombinePerKey | Relate | Flatten | Reshuffle | Write
    | TestStream | Iterate | Lookup | Feedback
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Environment:
    """The versions with which the pipeline was built, and on which its code depends."""

    python: str
    tidegate: str
    distributions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline. `nodes` are in topological order: each collection is produced before it is read.

    `classes` are the by-value classes of elements, which a worker installs before it decodes anything. `coders` are the
    coders registered by the author. `options` are the author's own flags, and the others that were given.
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
        """The collection with that id; KeyError if there is none."""
        if not self._index:
            self._index.update({c.id: c for c in self.collections})
        return self._index[id]

    def producer(self, collection: str) -> Node:
        """The node that produces a collection."""
        if not self._makers:
            self._makers.update({out.collection: node for node in self.nodes for out in node.outputs})
        return self._makers[collection]

    def consumers(self, collection: str) -> Iterator[Node]:
        """The nodes that read a collection as their main input."""
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
