"""Element types: which types clash, which values match, how types are named, and how type variables are bound."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Hashable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Sized,
)
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import (  # noqa: UP035
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    ParamSpec,
    Protocol,
    Tuple,
    TypedDict,
    TypeVar,
    Union,
)

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypeAliasType

from tidegate.sdk.typehints.compatibility import bind, clash, element_of_iterable, kv_of, matches
from tidegate.sdk.typehints.hints import substitute, type_name, union

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")
Whole = TypeVar("Whole", bound=int)
Text = TypeVar("Text", str, bytes)
UserId = NewType("UserId", int)


class Color(Enum):
    RED = 1
    BLUE = 2


class Animal:
    pass


class Dog(Animal):
    pass


@dataclass(frozen=True)
class Event:
    user: str
    amount: float = 0.0
    tags: list[str] = field(default_factory=list)


class Point(NamedTuple):
    x: int
    name: str


class Person(TypedDict):
    name: str
    age: NotRequired[int]


class Contact(TypedDict):
    name: str
    email: str


@dataclass
class Box(Generic[T]):
    content: T


class Crate(Box[list[V]], Generic[V]):
    pass


class Words(list[str]):
    pass


class Table(dict[str, V], Generic[V]):
    pass


class Named(Protocol):
    name: str

    def greet(self) -> str: ...


class Greeter:
    def __init__(self) -> None:
        self.name = "g"

    def greet(self) -> str:
        return "hi"


Json = TypeAliasType("Json", "dict[str, Json] | list[Json] | str | int | None")
Tree = TypeAliasType("Tree", "list[Tree] | dict[str, Tree]")

CLASHES = [
    (str, int),
    (float, int),
    (str, float),
    (Decimal, float),
    (None, int),
    (str, bytes),
    (Animal, Event),
    (int | None, str | None),
    (int | str, bytes | Event),
    (tuple[str, int], tuple[str, str]),
    (tuple[str, int], tuple[str, int, int]),
    (tuple[int, ...], tuple[str, str]),
    (tuple[int, ...], tuple[str, ...]),
    (tuple[int, int], Sequence[str]),
    (list[int], list[str]),
    (list[int], Iterable[str]),
    (list[int], tuple[int, ...]),
    (Iterable[int], list[str]),
    (Generator[int, None, None], Iterator[str]),
    (str, Iterable[int]),
    (bytes, Iterable[str]),
    (int, Iterable[Any]),
    (int, Sized),
    (list[int], Hashable),
    (dict[str, int], Mapping[int, int]),
    (dict[str, int], dict[str, str]),
    (dict[str, int], Iterable[int]),
    (Counter[str], Mapping[str, str]),
    (dict[str, int], list[str]),
    (Literal["a"], int),
    (Literal["a"], Literal["b"]),
    (str, Literal[1, 2]),
    (Literal[Color.RED], int),
    (type[int], type[str]),
    (Callable[[int], str], Callable[[int], int]),
    (int, Callable[..., Any]),
    (Person, int),
    (Person, dict[str, int]),
    (Person, dict[int, str]),
    (dict[str, int], Person),
    (Person, Contact),
    (Point, tuple[str, str]),
    (Point, tuple[int, str, int]),
    (tuple[str, str], Point),
    (Box[int], Box[str]),
    (Crate[int], Box[list[str]]),
    (Crate[int], Box[int]),
    (Words, list[int]),
    (Table[int], dict[str, str]),
    (Words, Iterable[int]),
    (Event, Named),
    (int, Named),
    (UserId, str),
    (Annotated[int, "m"], str),
    (str, Whole),
    (int, Text),
    (Json, bytes),
    (tuple[str, tuple[int, list[str]]], tuple[str, tuple[int, list[bytes]]]),
    (np.float64, int),
]

AGREEMENTS = [
    (Any, int),
    (int, Any),
    (list[Any], list[int]),
    (tuple[str, Any], tuple[str, int]),
    (list, list[int]),
    (tuple, tuple[int, int]),
    (int, float),
    (bool, int),
    (int, complex),
    (np.int64, int),
    (np.float32, float),
    (object, int),
    (int, object),
    (Animal, Dog),
    (Dog, Animal),
    (int | None, int),
    (int, int | None),
    (None, int | None),
    (int | None, None),
    (int | str, str | bytes),
    (Optional[int], int | None),  # noqa: UP045
    (tuple[str, int], tuple[str, float]),
    (tuple[int, ...], tuple[int, int]),
    (tuple[int, int], tuple[int, ...]),
    (tuple[()], tuple[int, ...]),
    (list[int], Sequence[int]),
    (list[int], Iterable[float]),
    (Iterable[int], list[int]),
    (Iterable[int], Sized),
    (dict[str, int], Mapping[str, int]),
    (defaultdict[str, int], dict[str, int]),
    (OrderedDict[str, int], Mapping[str, int]),
    (Counter[str], dict[str, int]),
    (dict[str, int], Iterable[str]),
    (str, Iterable[str]),
    (str, Sequence[str]),
    (bytes, Sequence[int]),
    (Literal["a"], str),
    (str, Literal["a"]),
    (Literal[1, "a"], Literal["a", "b"]),
    (Literal[None, "a"], None | Literal["a"]),
    (Literal[1], float),
    (type[int], type[Any]),
    (type[bool], type[int]),
    (type, type[int]),
    (type[Event], Callable[..., Any]),
    (Callable[[int], str], Callable[[str], str]),
    (Person, dict[str, Any]),
    (Person, Mapping[str, object]),
    (Person, dict),
    (dict[str, str], Person),
    (Contact, Person),
    (Point, tuple[int, str]),
    (tuple[int, str], Point),
    (Point, tuple),
    (Box[int], Box),
    (Box[int], Box[float]),
    (Crate[int], Box[list[int]]),
    (Words, Iterable[str]),
    (Table[int], Mapping[str, int]),
    (dict[str], dict[int, int]),  # type: ignore[type-arg]
    (Greeter, Named),
    (Named, Greeter),
    (Event, Hashable),
    (UserId, int),
    (int, UserId),
    (bool, Whole),
    (str, Text),
    (T, int),
    (list["Missing"], list[int]),  # type: ignore[name-defined]  # noqa: F821
    ("Missing", int),
    (5, int),
    (Json, str),
    (Json, dict[str, int]),
    (Json, Json),
    (Tuple[int, str], tuple[int, str]),  # noqa: UP006
    (Union[int, str], str),  # noqa: UP007
    (Iterable[T], list[int]),
]


@pytest.mark.parametrize(("one", "other"), CLASHES, ids=lambda h: type_name(h))
def test_types_without_a_common_value_clash(one: Any, other: Any) -> None:
    assert clash(one, other) is not None


@pytest.mark.parametrize(("one", "other"), AGREEMENTS, ids=lambda h: type_name(h))
def test_types_with_a_common_value_agree(one: Any, other: Any) -> None:
    assert clash(one, other) is None


def test_a_class_that_derives_from_any_agrees_with_everything() -> None:
    class Mystery(Any):  # type: ignore[misc]
        pass

    assert clash(Mystery, int) is None
    assert clash(int, Mystery) is None


def test_the_reason_for_a_clash_names_both_types() -> None:
    assert clash(str, int) == "str given where int is wanted"
    assert clash(int | None, str) == "int | None given where str is wanted"


def test_the_reason_for_a_clash_says_where_the_types_differ() -> None:
    assert clash(tuple[str, int], tuple[str, str]) == (
        "tuple[str, int] given where tuple[str, str] is wanted (item 1: int is not str)"
    )
    assert str(clash(tuple[str, int], tuple[str])).endswith("(2 items, not 1)")
    assert str(clash(dict[str, list[int]], dict[str, list[str]])).endswith("(values: elements: int is not str)")
    assert str(clash(Person, Contact)).endswith("(no key 'email')")
    assert str(clash(Event, Named)).endswith("(Event has no method 'greet')")
    assert str(clash(Box[int], Box[str])).endswith("(Box[…]: int is not str)")


def test_two_classes_of_the_same_name_are_named_with_their_modules() -> None:
    twin = type("Event", (), {"__module__": "elsewhere"})
    assert clash(twin, Event) == f"elsewhere.Event given where {__name__}.Event is wanted"


def test_deeply_nested_types_are_decided_quickly_and_leniently() -> None:
    left: Any = int
    right: Any = str
    for _ in range(30):
        left, right = list[left], list[right]
    assert clash(left, right) is None
    assert clash(Json, Tree) is None


# Elements, pairs, unions.


@pytest.mark.parametrize(
    ("hint", "element"),
    [
        (list[int], int),
        (Iterator[int], int),
        (Generator[int, str, bytes], int),
        (tuple[int, ...], int),
        (tuple[int, str], int | str),
        (set[Event], Event),
        (deque[int], int),
        (dict[str, int], str),
        (ItemsView[str, int], tuple[str, int]),
        (Counter[str], str),
        (str, str),
        (bytes, int),
        (range, int),
        (Literal["ab", "c"], str),
        (None | Iterable[int], int),
        (list[int] | set[str], int | str),
        (list[int] | list[Any], Any),
        (Point, int | str),
        (Person, str),
        (Words, str),
        (Annotated[list[int], "m"], int),
        (list, Any),
        (tuple, Any),
        (tuple[()], Any),
        (None, Any),
        (int, Any),
        (Any, Any),
        ("Missing", Any),
        (Event, Any),
        (Box[int], Any),
    ],
    ids=lambda h: type_name(h),
)
def test_the_elements_of_an_iterable_have_a_type(hint: Any, element: Any) -> None:
    assert element_of_iterable(hint) == element


@pytest.mark.parametrize(
    ("hint", "pair"),
    [
        (tuple[str, int], (str, int)),
        (tuple[str, list[int]] | None, (str, list[int])),
        (tuple[str, int] | tuple[int, int], (str | int, int)),
        (tuple[int, ...], (int, int)),
        (Point, (int, str)),
        (UserId, (Any, Any)),
        (tuple, (Any, Any)),
        (Any, (Any, Any)),
        (object, (Any, Any)),
        (int, (Any, Any)),
        (tuple[int, int, int], (Any, Any)),
    ],
    ids=lambda h: type_name(h) if not isinstance(h, tuple) else "",
)
def test_pairs_have_a_key_and_a_value_type(hint: Any, pair: Any) -> None:
    assert kv_of(hint) == pair


def test_a_type_that_is_no_pair_clashes_with_a_pair() -> None:
    assert clash(int, tuple[Any, Any]) == "int given where tuple[Any, Any] is wanted"
    assert clash(str, tuple[Any, Any]) is not None
    assert clash(tuple[int, int, int], tuple[Any, Any]) is not None
    assert clash(object, tuple[Any, Any]) is None


def test_a_union_is_flattened_and_any_absorbs_it() -> None:
    assert union([int, str | int, None]) == int | str | None
    assert union([int]) is int
    assert union([int, Any]) is Any
    assert union([int | Any, str]) is Any
    assert union([]) is Any
    assert union(h for h in (int, "Missing")) is Any
    assert union([Annotated[int, []], str]) in (Any, int | str)  # metadata that can't be hashed


# Type variables.


@pytest.mark.parametrize(
    ("pattern", "actual", "bindings"),
    [
        (T, int, {T: int}),
        (tuple[K, V], tuple[str, list[int]], {K: str, V: list[int]}),
        (tuple[K, list[V]], tuple[str, list[int]], {K: str, V: int}),
        (tuple[T, T], tuple[str, int], {T: str | int}),
        (tuple[T, ...], tuple[str, int], {T: str | int}),
        (Iterable[T], list[int], {T: int}),
        (Iterable[T], list[int] | None, {T: int}),
        (Iterable[T], str, {T: str}),
        (Iterable[T], Words, {T: str}),
        (list[T], Iterable[int], {T: int}),
        (Mapping[K, V], Counter[str], {K: str, V: int}),
        (Mapping[K, V], Table[int], {K: str, V: int}),
        (dict[K, V], Person, {K: str, V: str | int}),
        (T | None, int | None, {T: int}),
        (list[T] | T, list[int] | str, {T: int | str}),
        (Box[T], Crate[int], {T: list[int]}),
        (Callable[[int], T], Callable[[int], str], {T: str}),
        (type[T], type[int], {T: int}),
        (Annotated[list[T], "m"], list[int], {T: int}),
        (Annotated[T, "m"], int, {T: int}),
        (tuple[T, T], tuple[int, Any], {T: Any}),
        (tuple[K, V], Any, {K: Any, V: Any}),
        (tuple[K, V], int, {}),
        (list[T], int, {}),
        (int, int, {}),
        (T, UserId, {T: UserId}),
        (Iterable[T], Literal["ab"], {T: str}),
    ],
    ids=lambda h: "" if isinstance(h, dict) else type_name(h),
)
def test_type_variables_are_bound_to_the_types_they_match(pattern: Any, actual: Any, bindings: Any) -> None:
    assert bind(pattern, actual) == bindings


@pytest.mark.parametrize(
    ("hint", "result"),
    [
        (T, int),
        (K, Any),
        (int, int),
        (tuple[T, K], tuple[int, Any]),
        (tuple[str, Iterable[T]], tuple[str, Iterable[int]]),
        (T | None, int | None),
        (dict[T, list[T]], dict[int, list[int]]),
        (Callable[[T], K], Callable[[int], Any]),
        (Callable[P, T], Callable[..., int]),
        (Box[T], Box[int]),
        (Box, Box),
        (type[T], type[int]),
        (Annotated[T, "m"], Annotated[int, "m"]),
        (None, None),
        ("Missing", "Missing"),
    ],
    ids=lambda h: type_name(h),
)
def test_substitution_replaces_variables_and_nothing_else(hint: Any, result: Any) -> None:
    assert substitute(hint, {T: int}) == result


def test_the_types_of_a_grouping_can_be_written_as_patterns() -> None:
    bindings = bind(tuple[K, V], tuple[str, Event])
    assert substitute(tuple[K, Iterable[V]], bindings) == tuple[str, Iterable[Event]]


# Names.


@pytest.mark.parametrize(
    ("hint", "name"),
    [
        (int, "int"),
        (None, "None"),
        (Any, "Any"),
        (Event, "Event"),
        (tuple[str, int], "tuple[str, int]"),
        (Tuple[str, int], "tuple[str, int]"),  # noqa: UP006
        (tuple[int, ...], "tuple[int, ...]"),
        (tuple[()], "tuple[()]"),
        (Optional[int], "int | None"),  # noqa: UP045
        (None | int, "int | None"),
        (Union[int, str], "int | str"),  # noqa: UP007
        (Literal["a", 1, Color.RED], "Literal['a', 1, Color.RED]"),
        (Callable[[int, str], bool], "Callable[[int, str], bool]"),
        (Callable[..., Any], "Callable[..., Any]"),
        (Iterable[tuple[str, Event | None]], "Iterable[tuple[str, Event | None]]"),
        (UserId, "UserId"),
        (T, "T"),
        (Annotated[int, "m"], "int"),
        (Box[int], "Box[int]"),
        (Json, "Json"),
        (type[int], "type[int]"),
        ("Missing", "Missing"),
        (list["Missing"], "list[Missing]"),  # type: ignore[name-defined]  # noqa: F821
        (5, "5"),
    ],
)
def test_a_type_is_named_as_an_author_would_write_it(hint: Any, name: str) -> None:
    assert type_name(hint) == name


def test_a_local_class_is_named_without_its_function() -> None:
    class Local:
        class Inner:
            pass

    assert type_name(list[Local.Inner]) == "list[Local.Inner]"


# Values.


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("a", int),
        (1.5, int),
        (None, int),
        (("a", "b"), tuple[str, int]),
        (("a",), tuple[str, int]),
        (["a"], tuple[str, ...]),
        ((1, "a"), tuple[int, ...]),
        ([1, "a"], list[int]),
        ({"a": "b"}, dict[str, int]),
        ({1: 1}, dict[str, int]),
        ("a", list[str]),
        ({"a": 1}, Iterable[int]),
        ([[1], ["a"]], list[list[int]]),
        ("c", Literal["a", "b"]),
        (True, Literal[1]),
        (Event(None), Event),  # type: ignore[arg-type]
        (Event("a", tags=[1]), list[Event] | Event),  # type: ignore[list-item]
        (Box("a"), Box[int]),
        (Point("a", "b"), Point),  # type: ignore[arg-type]
        (Table({"a": "b"}), Table[int]),
        ({"name": 1}, Person),
        ({}, Person),
        ({"name": "a", "age": "b"}, Person),
        (str, type[int]),
        (1, type),
        (1, Callable[..., Any]),
        (object(), Named),
        ("a", UserId),
        ("a", Whole),
        ({"a": [1.5]}, Json),
        (np.float64(1.5), int),
    ],
    ids=lambda part: repr(part).partition(" at 0x")[0],
)
def test_a_value_of_another_type_does_not_match(value: object, hint: Any) -> None:
    assert not matches(value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, Any),
        (1, float),
        (True, int),
        (np.int64(1), int),
        (np.float32(1), float),
        (Greeter(), Named),
        (bool, type[int]),
        (int, type[Any]),
        ({"name": "a", "more": 1}, Person),
        ({"a": [1, None, {"b": "c"}]}, Json),
        (Words(["a"]), Iterable[str]),
        (Point(1, "a"), tuple[int, str]),
        (Color.RED, Literal[Color.RED]),
        ("anything", "Missing"),
        (1, 5),
        ([1], list["Missing"]),  # type: ignore[name-defined]  # noqa: F821
        (np.array([1.5]), np.ndarray[Any, Any]),
    ],
    ids=lambda part: repr(part).partition(" at 0x")[0],
)
def test_a_value_of_the_type_matches(value: object, hint: Any) -> None:
    assert matches(value, hint)


def test_iterators_are_not_consumed() -> None:
    numbers = iter([1, 2, 3])
    generated = (x for x in [1, 2, 3])
    assert matches(numbers, Iterator[str])
    assert matches(generated, Iterable[str])
    assert list(numbers) == [1, 2, 3]
    assert list(generated) == [1, 2, 3]
    assert not matches([1], Iterator[int])


def test_only_the_first_hundred_items_of_a_large_container_are_checked() -> None:
    assert not matches([1] * 99 + ["a"], list[int])
    assert matches([1] * 100 + ["a"], list[int])
    assert matches(dict.fromkeys(range(100), 1) | {"a": 1}, dict[int, int])


def test_a_value_that_contains_itself_is_checked_to_a_limited_depth() -> None:
    knot: list[Any] = []
    knot.append(knot)
    assert matches(knot, Json)

    @dataclass
    class Node:
        parent: object

    node = Node(None)
    node.parent = node
    assert matches(node, Node)


# Properties of values that Hypothesis draws from a type.

SIMPLE: list[Any] = [int, str, bytes, bool, float, type(None), Color, Decimal, Point, Person, Literal["a", 1], Event]
CONTAINERS: list[Callable[[Any, Any], Any]] = [
    lambda a, _: list[a],
    lambda a, b: tuple[a, b],
    lambda a, _: tuple[a, ...],
    lambda a, _: dict[str, a],
    lambda a, b: Union[a, b],  # noqa: UP007
    lambda a, _: Optional[a],  # noqa: UP045
    lambda a, _: Annotated[a, "note"],
    lambda a, _: Sequence[a],
    lambda a, _: Mapping[str, a],
    lambda a, _: Collection[a],
]
hints = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.builds(lambda make, a, b: make(a, b), st.sampled_from(CONTAINERS), inner, inner),
    max_leaves=4,
)


def trivial(value: object) -> bool:
    """Whether a value matches many types: it is None, empty, or consists only of such values."""
    match value:
        case None:
            return True
        case Event() | type():
            return False
        case str() | bytes() | bytearray():
            return not value
        case Mapping():
            return any(map(trivial, (*value, *value.values()))) or not value
        case Collection():
            return any(map(trivial, value)) or not value
    return isinstance(value, Sized) and len(value) == 0


@settings(max_examples=150, deadline=None)
@given(st.data(), hints)
def test_values_drawn_from_a_type_match_it(data: st.DataObject, hint: Any) -> None:
    assert matches(data.draw(st.from_type(hint)), hint)


@settings(max_examples=150, deadline=None)
@given(hints)
def test_every_type_agrees_with_itself(hint: Any) -> None:
    assert clash(hint, hint) is None
    assert clash(hint, Any) is None
    assert clash(Any, hint) is None
    assert clash(hint, object) is None
    assert clash(list[hint], Iterable[hint]) is None
    assert clash(hint, Union[hint, Event]) is None  # noqa: UP007


@settings(max_examples=400, deadline=None)
@given(st.data(), hints, hints)
def test_types_that_share_a_nontrivial_value_do_not_clash(data: st.DataObject, one: Any, other: Any) -> None:
    value = data.draw(st.from_type(one))
    if matches(value, other) and not trivial(value):
        assert clash(one, other) is None


PATTERNS: list[Any] = [
    T,
    tuple[K, V],
    tuple[K, list[V]],
    list[T],
    Iterable[tuple[K, V]],
    dict[K, list[V]],
    Box[T],
    tuple[T, ...],
]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PATTERNS), st.fixed_dictionaries({T: hints, K: hints, V: hints}))
def test_binding_is_the_inverse_of_substitution(pattern: Any, bindings: dict[TypeVar, Any]) -> None:
    substituted = substitute(pattern, bindings)
    assert clash(substituted, pattern) is None
    assert clash(pattern, substituted) is None
    found = bind(pattern, substituted)
    assert substitute(pattern, found) == substituted
    assert found == {variable: union([bindings[variable]]) for variable in found}


@settings(max_examples=200, deadline=None)
@given(hints)
def test_the_name_of_a_type_evaluates_to_the_type(hint: Any) -> None:
    read = eval(type_name(hint), globals())
    assert type_name(read) == type_name(hint)
    assert clash(hint, read) is None


@settings(max_examples=200, deadline=None)
@given(st.data(), hints)
def test_the_elements_of_a_drawn_container_match_its_element_type(data: st.DataObject, hint: Any) -> None:
    for container in (list[hint], tuple[hint, ...], dict[str, hint], tuple[hint, int]):
        for element in data.draw(st.from_type(container)):
            assert matches(element, element_of_iterable(container))
