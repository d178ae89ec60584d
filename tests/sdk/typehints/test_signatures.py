"""Signatures: the types of every kind of callable are read from its annotations, without raising."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, ItemsView, Iterable, Sized
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NewType, Self, TypedDict, TypeVar

import pytest

from tidegate.sdk.typehints.compatibility import bind, clash
from tidegate.sdk.typehints.hints import substitute, type_name
from tidegate.sdk.typehints.signatures import FnTypes, signature_of

if TYPE_CHECKING:
    from nowhere import Unseen

T = TypeVar("T")
K = TypeVar("K")
UserId = NewType("UserId", int)


class Color(Enum):
    RED = 1


@dataclass(frozen=True)
class Event:
    user: str
    amount: float = 0.0
    tags: list[str] = field(default_factory=list)

    def total(self, rate: int) -> float:
        return self.amount * rate

    @classmethod
    def parse(cls, line: str) -> Self:
        return cls(line)

    @staticmethod
    def zero() -> Event:
        return Event("")


class Point(NamedTuple):
    x: int
    name: str


class Person(TypedDict):
    name: str


@dataclass
class Box(Generic[T]):
    content: T


class Greeter:
    def __init__(self) -> None:
        self.name = "g"


def plus(x: int, y: float = 0.0, *more: str, scale: bool = False) -> tuple[int, str]:
    return x, ""


def test_a_functions_annotations_are_read() -> None:
    assert signature_of(plus) == FnTypes((int, float), str, tuple[int, str])


def test_parameters_beyond_the_named_ones_have_the_type_of_rest() -> None:
    assert [signature_of(plus).parameter(i) for i in range(4)] == [int, float, str, str]
    assert signature_of(lambda x: x).parameter(5) is Any


def test_a_lambda_has_only_a_number_of_parameters() -> None:
    assert signature_of(lambda x, y=1: x) == FnTypes((Any, Any), Any, Any)


def test_a_bound_method_does_not_count_self() -> None:
    assert signature_of(Event("a").total) == FnTypes((int,), Any, float)


def test_self_is_the_class_the_method_is_bound_to() -> None:
    assert signature_of(Event.parse) == FnTypes((str,), Any, Event)


def test_a_static_method_is_a_function() -> None:
    assert signature_of(Event.zero) == FnTypes((), Any, Event)


def test_a_partial_does_not_count_bound_parameters() -> None:
    assert signature_of(functools.partial(plus, 1)).parameters == (float,)
    named = signature_of(functools.partial(plus, scale=True))
    assert named.parameters == (int, float)
    assert named.result == tuple[int, str]
    assert signature_of(functools.partial(functools.partial(plus, 1), 2.0)).parameters == ()
    assert signature_of(functools.partial(Event("a").total, 3)) == FnTypes((), Any, float)
    assert signature_of(functools.partial(Event, amount=2.0)).result is Event


def test_a_partial_that_binds_the_first_parameter_by_name_takes_nothing_by_position() -> None:
    assert signature_of(functools.partial(plus, x=1)).parameters == ()


def test_a_callable_object_is_read_through_its_call() -> None:
    class Scale:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, x: int) -> float:
            return x / 2

    assert signature_of(Scale()) == FnTypes((int,), Any, float)


def test_a_class_is_a_function_that_returns_an_instance() -> None:
    assert signature_of(Event) == FnTypes((str, float, list[str]), Any, Event)
    assert signature_of(Point).parameters == (int, str)
    assert signature_of(Point).result is Point
    assert signature_of(Greeter).parameters == ()
    assert signature_of(Box[int]).parameter(0) is int
    assert signature_of(Box[int]).result == Box[int]
    assert signature_of(Color).result is Color
    assert signature_of(Person).result is Person


@pytest.mark.parametrize("cls", [int, str, float, bytes, bool, dict, Decimal, type, zip], ids=lambda c: c.__name__)
def test_a_builtin_class_is_its_own_result(cls: type) -> None:
    assert signature_of(cls).result is cls


def test_a_new_type_takes_its_supertype() -> None:
    assert signature_of(UserId) == FnTypes((int,), Any, UserId)


def test_a_local_class_is_found_through_the_closure() -> None:
    @dataclass
    class Local:
        n: int

    def step(x: Local) -> list[Local]:
        return [Local(x.n)]

    assert signature_of(step) == FnTypes((Local,), Any, list[Local])


def test_an_unresolvable_name_is_any_and_does_not_affect_other_annotations() -> None:
    def step(x: Unseen, y: int, z: dict[str, Unseen], w: Unseen.Inner) -> tuple[Unseen, int]: ...

    found = signature_of(step)
    assert found.parameters == (Any, int, dict[str, Any], Any)
    assert found.result == tuple[Any, int]


def test_a_closure_variable_that_is_not_yet_assigned_is_any() -> None:
    def make() -> Callable[..., Any]:
        def step(x: Later) -> int:
            return Later  # type: ignore[no-any-return]

        found.append(signature_of(step))
        Later = int
        return step

    found: list[FnTypes] = []
    step = make()
    assert found[0].parameters == (Any,)
    assert signature_of(step).parameters == (int,)


def test_a_method_of_a_local_class_may_name_its_class_and_nested_classes() -> None:
    class Outer:
        class Inner:
            pass

        def list(self, x: Inner) -> list[Outer]: ...

    assert signature_of(Outer().list) == FnTypes((Outer.Inner,), Any, list[Outer])


def test_invalid_annotations_are_any() -> None:
    def step(x: 1 / 0, y: "]") -> {}[1]: ...  # type: ignore # noqa: F722

    assert signature_of(step).parameters == (Any, Any)
    namespace: dict[str, Any] = {}
    exec("def eager(x: 5, y: [int]) -> {}: ...", namespace)
    assert clash(signature_of(namespace["eager"]).parameter(0), str) is None
    assert clash(signature_of(namespace["eager"]).result, str) is None


def test_a_decorated_function_keeps_the_types_of_the_wrapped_function() -> None:
    def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: object, **kwargs: object) -> object:
            return fn(*args, **kwargs)

        return wrapper

    assert signature_of(logged(plus)) == signature_of(plus)
    assert signature_of(functools.lru_cache(plus)) == signature_of(plus)


def test_a_wrapper_that_supplies_arguments_has_only_its_own_parameters() -> None:
    def with_session(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(x: int) -> Any:
            return fn("session", x)

        return wrapper

    @with_session
    def step(session: str, x: int) -> bytes: ...

    assert signature_of(step) == FnTypes((int,), Any, bytes)


def test_a_single_dispatch_function_has_no_types() -> None:
    @functools.singledispatch
    def step(x: int) -> int:
        return x

    step.register(str, len)
    assert signature_of(step).parameter(0) is Any
    assert signature_of(step).result is Any


def test_an_async_function_returns_a_coroutine() -> None:
    async def step(x: int) -> str:
        return ""

    assert type_name(signature_of(step).result) == "Coroutine[Any, Any, str]"
    assert clash(signature_of(step).result, str) is not None


@pytest.mark.parametrize(
    ("fn", "parameters", "result"),
    [
        (str.split, (str,), list[str]),
        (str.lower, (str,), str),
        (bytes.decode, (bytes,), str),
        (str.encode, (str,), bytes),
        (str.partition, (str,), tuple[str, str, str]),
        (",".join, (Iterable[str],), str),
        (",".count, (), int),
        (functools.partial(str.split, sep=","), (str,), list[str]),
        (functools.partial(str.split, "a b"), (), list[str]),
        (len, (Sized,), int),
        (repr, (Any,), str),
        (any, (Iterable[Any],), bool),
        (math.floor, (Any,), int),
    ],
)
def test_common_builtins_have_types(fn: Any, parameters: tuple[Any, ...], result: Any) -> None:
    found = signature_of(fn)
    assert (found.parameters, found.result) == (parameters, result)


def test_unsuitable_arguments_of_builtins_clash() -> None:
    assert clash(int, signature_of(str.split).parameter(0)) is not None
    assert clash(int, signature_of(len).parameter(0)) is not None
    assert clash(str, signature_of(math.sqrt).parameter(0)) is not None
    assert clash(Decimal, signature_of(math.sqrt).parameter(0)) is None
    assert clash(dict[str, int], signature_of(len).parameter(0)) is None


def test_a_result_type_follows_from_the_argument_types() -> None:
    def pair(x: T) -> tuple[T, int]: ...

    def first(x: Iterable[T], y: K) -> dict[K, T]: ...

    def result(fn: Any, *arguments: Any) -> Any:
        found = signature_of(fn)
        parameters = tuple(found.parameter(i) for i in range(len(arguments)))
        return substitute(found.result, bind(GenericAlias(tuple, parameters), GenericAlias(tuple, arguments)))

    assert result(pair, str) == tuple[str, int]
    assert result(pair, Any) == tuple[Any, int]
    assert result(first, list[int], str) == dict[str, int]
    assert result(sorted, set[Event]) == list[Event]
    assert result(dict.items, dict[str, int]) == ItemsView[str, int]
    assert result(plus, str) == tuple[int, str]


class Hostile:
    @property
    def __wrapped__(self) -> object:
        raise RuntimeError("no")

    @property
    def __signature__(self) -> object:
        raise RuntimeError("no")


class Loop:
    @property
    def __wrapped__(self) -> object:
        return self

    def __call__(self, x: int) -> int:
        return x


@pytest.mark.parametrize(
    "value",
    [None, 5, "text", [], Hostile(), Loop(), object(), print, max, operator.itemgetter(1), {}],
    ids=lambda t: type(t).__name__,
)
def test_the_signature_of_any_object_can_be_read(value: object) -> None:
    found = signature_of(value)
    assert found.parameter(0) is Any
    assert isinstance(found, FnTypes)
