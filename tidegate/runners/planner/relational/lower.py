"""Lowers `Relate` nodes to the nodes that every runner executes: ParDo, Flatten, and combining steps.

Element-wise relations become one ParDo or two, and others a grouping between ParDos. The last node has the label and
the output of the `Relate`, and the ones before it labels inside that.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from tidegate.sdk.authoring.combine import CoGroupFn
from tidegate.sdk.authoring.dofn import Param, bind, bind_method
from tidegate.sdk.data.columns import BOOLEAN, Schema
from tidegate.sdk.portable.model import (
    MAIN,
    AssignWindows,
    Callback,
    Collection,
    CombinePerKey,
    Flatten,
    Form,
    KeyOf,
    Node,
    Output,
    ParDo,
    Pipeline,
    Relate,
    Reshuffle,
    SideInputRef,
)
from tidegate.sdk.relational.binding import split_aggregates
from tidegate.sdk.relational.expressions import Call, Column, Literal, Tree, mapped, text, walk
from tidegate.sdk.relational.python.aggregates import AggregateFn, of_plain_values
from tidegate.sdk.relational.python.row_function import RowCode, reads_window
from tidegate.sdk.relational.relations import EVERY, Aggregate, Compute, Join, Order, Rank, SortLimit
from tidegate.sdk.relational.signatures import is_comparable
from tidegate.sdk.relational.steps.groups import AggregateElements, group_row
from tidegate.sdk.relational.steps.interval_joins import LEFTS, PAST, RIGHTS, IntervalJoinFn
from tidegate.sdk.relational.steps.joins import JoinCode, joined_group, product
from tidegate.sdk.relational.steps.ranks import (
    FirstEntriesFn,
    FirstFn,
    NumberedRows,
    Ordered,
    entry_function,
    first_elements,
    numbered_rows,
)
from tidegate.sdk.relational.steps.rows import FromParts, computed, key_function, keyed, predicate, second
from tidegate.sdk.user_code.user_fn import Payload, UserFn
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy, is_global, together

_ELEMENT: Final = (Param("element"),)
_IN_WINDOW: Final = (Param("element"), Param("window"))
_CAN_LOOK_UP: Final = frozenset({"inner", "left", "semi", "anti"})
"""The joins that need not know which right elements have no partner."""


def lower(pipeline: Pipeline) -> Pipeline:
    """The pipeline without `Relate` nodes."""
    nodes: list[Node] = []
    collections = list(pipeline.collections)
    for node in pipeline.nodes:
        if isinstance(node, Relate):
            made = _Lowered(pipeline, node)
            made.add()
            nodes += made.nodes
            collections += made.collections
        else:
            nodes.append(node)
    return replace(pipeline, nodes=tuple(nodes), collections=tuple(collections))


@dataclass(slots=True)
class _Lowered:
    """The nodes that replace one `Relate`, and the collections between them."""

    pipeline: Pipeline
    node: Relate
    nodes: list[Node] = field(default_factory=list)
    collections: list[Collection] = field(default_factory=list)

    def add(self) -> None:
        match self.node.relation:
            case Compute() as compute:
                self._compute(compute)
            case Aggregate() as aggregate:
                self._aggregate(aggregate)
            case Rank(order=order, limit=limit, per=per, number=number):
                self._ordered(order, per, None if limit == EVERY else limit, 0, number)
            case SortLimit(order=order, limit=limit, offset=offset):
                self._ordered(order, (), None if limit is None else limit + offset, offset, None)
            case Join(within=None) as join:
                self._window_join(join)
            case Join() as join:
                self._interval_join(join)

    # -- kinds of relations

    def _compute(self, compute: Compute) -> None:
        (used,), (access,) = self.node.inputs, self.node.reads
        if compute.where is not None:
            name = None if compute.columns is None else "Where"
            code = RowCode((compute.where,), access, single=True, checked=not self._typed(0))
            fn = _made(text(compute.where), predicate, code)
            used = self._par_do(name, used, fn, "filter", [compute.where], keeps_key=True)
        if compute.columns is not None:
            trees = [each.tree for each in compute.columns]
            names = tuple(each.name for each in compute.columns)
            code = RowCode(tuple(trees), access, checked=not self._typed(0))
            fn = _made(", ".join(names), computed, code, names)
            self._par_do(None, used, fn, "map", trees)

    def _aggregate(self, aggregate: Aggregate) -> None:
        node = self.node
        (used,), (access,) = node.inputs, node.reads
        keys = tuple(each.tree for each in aggregate.keys)
        key_names = tuple(each.name for each in aggregate.keys)
        outputs, calls = split_aggregates([each.tree for each in aggregate.columns])
        checked = not self._typed(0)
        trees = tuple(call.arguments[0] for call in calls if call.arguments)
        bare = len(trees) == 1
        arguments = RowCode(trees, access, single=bare, checked=checked)
        shown = ", ".join(map(text, calls))
        late = node.late_tag
        builtin = of_plain_values(calls[0]) if len(calls) == 1 and keys and late is None else None
        name = f"{'AggregateFn' if builtin is None else type(builtin).__name__}({', '.join(map(_with_types, calls))})"
        counts = builtin is not None and not calls[0].arguments
        if counts:
            used = self._par_do("Key", used, _made("key", key_function, keys, access, checked), "map", keys)
            combiner = _sealed(name, builtin)
        elif late is None:
            fn = (
                _made("key and values", keyed, keys, access, trees, None, checked, bare)
                if keys
                else _made(shown, computed, arguments)
            )
            used = self._par_do("Key", used, fn, "map", [*keys, *arguments.trees])
            combiner = _sealed(name, AggregateFn(calls, bare) if builtin is None else builtin)
        else:
            if keys:
                used = self._par_do("Key", used, _made("key", keyed, keys, access, None, None, checked), "map", keys)
            combiner = _sealed(name, AggregateElements(calls, arguments))
        grouped = self._combine(
            "Combine", used, combiner, keys=_listed(keys), late=late, default=not keys, counts=counts
        )
        names = tuple(each.name for each in aggregate.columns)
        fn = _made(
            ", ".join((*key_names, *names)),
            group_row,
            keys,
            key_names,
            outputs,
            names,
            None if builtin is None else calls[0],
        )
        self._par_do(None, grouped, fn, "map", outputs)
        if late is not None and keys:
            base = {**self._base(None, (f"{grouped}:{late}",)), "label": f"{node.label}/Late", "composite": node.label}
            base["outputs"] = (Output(MAIN, node.output(late)),)
            self.nodes.append(ParDo(**base, fn=_sealed("second", second), form="map", params=_ELEMENT, emits="plain"))

    def _ordered(
        self, order: tuple[Order, ...], per: tuple[Tree, ...], limit: int | None, offset: int, number: str | None
    ) -> None:
        (used,), (access,) = self.node.inputs, self.node.reads
        schema = self.pipeline.collection(used).schema
        assert schema is not None
        if number is not None:
            ties = _ties((*order, *map(Order, per)), schema)
            self._numbered((*order, *ties), per, limit, number, schema)
            return
        whole = (*order, *_ties(order, schema))
        if per:
            used = self._par_do("Key", used, _made("key", keyed, per, access), "map", per)
        first = _sealed(f"FirstFn({_by(whole)}; limit {limit})", FirstFn(Ordered(whole, access, limit)))
        found = self._combine("First", used, first, keys=_listed(per))
        self._par_do(None, found, _made("elements", first_elements, bool(per), offset), "flat_map")

    def _numbered(
        self, order: tuple[Order, ...], per: tuple[Tree, ...], limit: int | None, number: str, schema: Schema
    ) -> None:
        (used,), (access,) = self.node.inputs, self.node.reads
        rows = NumberedRows(per, order, tuple(Column(each.name, each.type, each.nullable) for each in schema.fields))
        trees = (*per, *(each.tree for each in order), *rows.others)
        used = self._par_do("Entry", used, _made("entry", entry_function, rows, access), "map", trees)
        name = f"FirstEntriesFn({_by(order)}; limit {limit}; {_listed(rows.others) or 'no other columns'})"
        first = FirstEntriesFn(tuple(each.descending for each in order), rows.width, limit)
        found = self._combine("First", used, _sealed(name, first), keys=_listed(per))
        made = _made("numbered rows", numbered_rows, rows, number)
        self._par_do(None, found, made, "flat_map")

    def _window_join(self, join: Join) -> None:
        inputs = [self.pipeline.collection(used) for used in self.node.inputs]
        whole = all(each.bounded and each.windowing == GLOBAL_DEFAULT for each in inputs)
        constant = all(isinstance(key, Literal) for pair in join.keys for key in pair)
        if whole and constant and join.join in _CAN_LOOK_UP:  # in windows, a side input neither merges nor fires again
            self._product(join)
            return
        code, both, kept = self._sides(join)
        grouped = self._combine("Group", both, _sealed("CoGroupFn", CoGroupFn(2)), keys=kept, in_parts=False)
        self._par_do(None, grouped, _made(f"{join.join} join", joined_group, code), "flat_map", code.trees)

    def _product(self, join: Join) -> None:
        """A join whose keys are constants: each task has all right elements, and no left element moves."""
        code, sides = self._read_columns(join)
        (left, right), (access, other) = sides, self.node.reads
        values = RowCode(right, other, checked=not self._typed(1))
        rights = self._par_do("Right", self.node.inputs[1], _made("values", computed, values), "map", right)
        own = RowCode(left, access, checked=not self._typed(0))
        node = ParDo(
            **self._base(None, self.node.inputs[:1]),
            fn=_made(f"{join.join} join", product, code, own),
            form="flat_map",
            params=(*_ELEMENT, Param("side", ref="0")),
            side_inputs=(SideInputRef(rights, "list"),),
            emits="plain",
        )
        self.nodes.append(node)

    def _interval_join(self, join: Join) -> None:
        code, both, kept = self._sides(join)
        assert join.within is not None
        fn = IntervalJoinFn(code, *join.within)
        node = ParDo(
            **self._base(None, (both,)),
            fn=_sealed(f"{join.join} join", fn),
            form="process",
            params=bind(fn.process, (), {}).params,
            states=(LEFTS, RIGHTS),
            timers=(PAST,),
            state_of=f"; keys {kept}",
            callbacks=(Callback("passed", PAST.name, bind_method(fn.passed).params),),
        )
        self.nodes.append(node)

    def _sides(self, join: Join) -> tuple[JoinCode, str, str]:
        """The code of a join, the collection of the keyed values of both sides, and a description of these."""
        code, read = self._read_columns(join)
        kept = (join.join in ("left", "full", "anti"), join.join in ("right", "full"))
        marked = []
        for side, name in enumerate(("Left", "Right")):
            used, access = self.node.inputs[side], self.node.reads[side]
            keys = tuple(_of_one_side(pair[side]) for pair in join.keys)
            values = read[side]
            nullable = [key for key in keys if key.nullable]
            if nullable and not kept[side]:
                fits = _all_there(nullable)
                test = RowCode((fits,), access, single=True, checked=not self._typed(side))
                used = self._par_do(f"{name} not null", used, _made(text(fits), predicate, test), "filter", [fits])
            fn = _made("key and values", keyed, keys, access, values, side, not self._typed(side))
            marked.append(self._par_do(name, used, fn, "map", [*keys, *values]))
        self.nodes.append(Flatten(**self._base("Both", tuple(marked))))
        return code, self.nodes[-1].output(), _kept(join, read)

    def _read_columns(self, join: Join) -> tuple[JoinCode, tuple[tuple[Column, ...], ...]]:
        """The code of a join, and for each side the columns that it reads, as the side declares them."""
        read: list[dict[str, Column]] = [{}, {}]
        for tree in [each.tree for each in join.columns] + ([] if join.where is None else [join.where]):
            for each in walk(tree):
                if isinstance(each, Column):
                    read[each.input].setdefault(each.name, replace(each, nullable=True, input=0))
        columns = []
        for used, own in zip(self.node.inputs, read, strict=True):
            schema = self.pipeline.collection(used).schema
            assert schema is not None
            columns.append(tuple(_declared(column, schema) for column in own.values()))
        left, right = map(tuple, read)
        return JoinCode(join.join, join.columns, join.where, left, right, len(join.keys) > 1), tuple(columns)

    def _typed(self, number: int) -> bool:
        """Whether the columns of an input are known to hold values of their types: a relation has made them."""
        used = self.node.inputs[number]
        schema = self.pipeline.collection(used).schema

        def is_made(id: str) -> bool:
            made = self.pipeline.producer(id)
            if self.pipeline.collection(id).schema != schema:
                return False
            match made:
                case Relate(relation=Compute(columns=tuple()) | Aggregate() | Join()):
                    return id == made.output()
                case Relate() | AssignWindows() | Reshuffle() | Flatten():
                    return all(map(is_made, made.inputs))
                case _:
                    return False

        return is_made(used)

    # -- nodes

    def _par_do(
        self,
        name: str | None,
        used: str,
        fn: UserFn,
        form: Form,
        trees: Iterable[Tree] = (),
        *,
        keeps_key: bool = False,
    ) -> str:
        params = _IN_WINDOW if any(map(reads_window, trees)) else _ELEMENT
        base = self._base(name, (used,))
        self.nodes.append(ParDo(**base, fn=fn, form=form, params=params, keeps_key=keeps_key, emits="plain"))
        return self.nodes[-1].output()

    def _combine(
        self,
        name: str,
        used: str,
        fn: UserFn,
        *,
        keys: str,
        late: str | None = None,
        default: bool = False,
        in_parts: bool = True,
        counts: bool = False,
    ) -> str:
        """Combine pairs, or with `counts` count equal keys."""
        source = self.pipeline.collection(self.node.inputs[0])
        key: KeyOf = "element" if counts else "first" if keys else "none"
        node = CombinePerKey(
            **self._base(name, (used,)),
            fn=fn,
            name=f"{fn.name}; keys {keys}" if keys else fn.name,
            in_parts=in_parts,
            has_identity=True,
            key=key,
            default=default and source.bounded and is_global(source.windowing),
            late_tag=late,
        )
        if late is not None:
            own = self.pipeline.collection(self.node.output(late))
            gone = f"{node.output()}:{late}" if keys else own.id
            if keys:
                self.collections.append(replace(own, id=gone))
            node = replace(node, outputs=(*node.outputs, Output(late, gone)))
        self.nodes.append(node)
        return node.output()

    def _base(self, name: str | None, inputs: tuple[str, ...]) -> dict[str, Any]:
        """The fields that every node has. Without a name, those of the last node."""
        node = self.node
        common = {"where": node.where, "numbered": node.numbered, "hints": node.hints, "inputs": inputs}
        if name is None:
            return {**common, "label": node.label, "composite": node.composite, "outputs": node.outputs[:1]}
        label = f"{node.label}/{name}"
        self.collections.append(Collection(label, *self._like(name)))
        return {**common, "label": label, "composite": node.label, "outputs": (Output(MAIN, label),)}

    def _like(self, name: str) -> tuple[bool, WindowingStrategy]:
        """Whether an inner collection is bounded, and its windowing: that of the output behind a grouping."""
        own = self.pipeline.collection(self.node.output())
        sources = [self.pipeline.collection(used) for used in self.node.inputs]
        if name in ("Combine", "First", "Group"):
            return own.bounded, own.windowing
        return all(each.bounded for each in sources), together([each.windowing for each in sources])


# -- code


def _sealed(name: str, live: Any) -> UserFn:
    """An object as the code of a node. It is of Tidegate's own classes, so it needs no by-value pickling."""
    data = pickle.dumps(live, protocol=5)
    return UserFn(name, None, Payload(data, hashlib.sha256(data).hexdigest()))


def _made(name: str, make: Any, *parts: Any) -> UserFn:
    """The function that `make` returns for these parts, as the code of a node."""
    return _sealed(name, FromParts(make, *parts))


# -- names of combiners: what they combine belongs to them, since state of other values would be misread


def _with_types(call: Call) -> str:
    """An aggregate with the types of its arguments: `sum(price double)`."""
    return f"{call.operation}({', '.join(f'{text(each)} {each.type}' for each in call.arguments)})"


def _listed(trees: Iterable[Tree]) -> str:
    """Expressions with their types: `user string, day date`."""
    return ", ".join(f"{text(each)} {each.type}" for each in trees)


def _kept(join: Join, read: Sequence[Iterable[Column]]) -> str:
    """The keys of a join, and the columns of both sides that its state has."""
    keys = " & ".join(f"{text(left)} = {text(right)} {left.type}" for left, right in join.keys)
    left, right = (_listed(columns) or "no columns" for columns in read)
    return f"{keys}; left {left}; right {right}"


def _by(order: Iterable[Order]) -> str:
    """An order with the types of its values: `price double descending, item string not null`."""
    return ", ".join(
        f"{text(each.tree)} {each.tree.type}"
        + ("" if each.tree.nullable else " not null")
        + (" descending" if each.descending else "")
        + (" nulls first" if each.nulls_first else "")
        for each in order
    )


# -- trees


def _ties(order: Iterable[Order], schema: Schema) -> Iterable[Order]:
    """The order by all columns that the given one leaves open.

    Elements of a group have the same keys, which stay in the order of whole elements nonetheless: saved state has
    values for them.
    """
    given = {each.tree.name for each in order if isinstance(each.tree, Column)}
    for each in schema.fields:
        if each.name not in given and is_comparable(each.type):
            yield Order(Column(each.name, each.type, each.nullable))


def _declared(column: Column, schema: Schema) -> Column:
    """A column as its own side declares it, where it is not missing."""
    declared = schema.field(column.name)
    return column if declared is None else replace(column, nullable=declared.nullable)


def _of_one_side(tree: Tree) -> Tree:
    """A tree over one side of a join, as one over the only input of a step."""
    return mapped(tree, lambda each: replace(each, input=0) if isinstance(each, Column) and each.input else None)


def _all_there(trees: list[Tree]) -> Tree:
    """The condition that no value is NULL."""
    tests: list[Tree] = [
        Call("not", (Call("is_null", (tree,), BOOLEAN, nullable=False),), BOOLEAN, nullable=False) for tree in trees
    ]
    found = tests[0]
    for test in tests[1:]:
        found = Call("and", (found, test), BOOLEAN, nullable=False)
    return found
