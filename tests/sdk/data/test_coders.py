"""Coders and encoded blocks: decoding returns what was encoded, and errors name the part that can't be encoded."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.data.coders import (
    Coder,
    PickleCoder,
    decode_columns,
    encode_columns,
    explain_unpicklable,
    install,
    register_coder,
    registered,
)
from tidegate.sdk.data.keys import key_bytes
from tidegate.sdk.errors import BuildError, KeyEncodingError, PicklingError, RunError


class Handle:
    """A value that pickle alone does not support."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lock = threading.Lock()


class HandleCoder(Coder[Handle]):
    deterministic = True

    def encode(self, value: Handle) -> bytes:
        return value.name.encode()

    def decode(self, data: bytes) -> Handle:
        return Handle(data.decode())


class LooseHandleCoder(HandleCoder):
    deterministic = False


class ShoutingCoder(HandleCoder):
    def encode(self, value: Handle) -> bytes:
        return value.name.upper().encode()


class Picky:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


class Refusing:
    def __getstate__(self) -> Any:
        raise ValueError("this object stays at home")


class Loner:
    """Leaves its lock out of its state, as it should; but something else is wrong."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.callback = lambda: None

    def __getstate__(self) -> dict[str, Any]:
        return {"callback": self.callback}


@dataclass(frozen=True, slots=True)
class Slotted:
    name: str
    inner: Any


@pytest.fixture(autouse=True)
def _registry_left_as_found() -> Iterator[None]:
    before = registered()
    yield
    install(before)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda parts: st.lists(parts, max_size=3) | st.tuples(parts, parts) | st.dictionaries(st.text(max_size=2), parts),
    max_leaves=8,
)


@given(columns=st.lists(st.lists(values, max_size=6) | values, max_size=4).map(tuple), with_coders=st.booleans())
def test_columns_come_back_as_they_were(columns: tuple[Any, ...], with_coders: bool) -> None:
    install(((Handle, HandleCoder()),) if with_coders else ())
    back = decode_columns(encode_columns(columns))
    assert back == columns
    assert repr(back) == repr(columns)  # the types too: 1 stays an int, True a bool


@given(values)
def test_the_pickle_coder_takes_plain_values_both_ways(value: Any) -> None:
    coder = PickleCoder()
    assert coder.decode(coder.encode(value)) == value
    assert not coder.deterministic


def test_an_object_that_occurs_often_is_written_once() -> None:
    row = ("x" * 1000,)
    data = encode_columns(([row] * 100,))
    assert len(data) < 2000
    (column,) = decode_columns(data)
    assert column[0] is column[99]


def test_a_registered_coder_carries_what_pickle_can_not_and_leaves_pickle_alone() -> None:
    with pytest.raises(PicklingError):
        encode_columns(([Handle("a")],))
    register_coder(Handle, HandleCoder())
    ((first, nested),) = decode_columns(encode_columns(([Handle("a"), {"deep": (Handle("b"),)}],)))
    assert (type(first), first.name, nested["deep"][0].name) == (Handle, "a", "b")
    with pytest.raises(TypeError):
        pickle.dumps(Handle("a"))


def test_a_deterministic_coder_makes_keys_and_another_does_not() -> None:
    register_coder(Handle, HandleCoder())
    assert key_bytes(("k", Handle("a"))) == key_bytes(("k", Handle("a"))) != key_bytes(("k", Handle("b")))
    register_coder(Handle, LooseHandleCoder())
    with pytest.raises(KeyEncodingError):
        key_bytes(Handle("a"))
    ((back,),) = decode_columns(encode_columns(([Handle("a")],)))
    assert back.name == "a"


def test_registering_again_replaces_the_coder_for_keys_and_elements() -> None:
    register_coder(Handle, HandleCoder())
    quiet = key_bytes(Handle("a"))
    register_coder(Handle, ShoutingCoder())
    assert key_bytes(Handle("a")) != quiet
    ((back,),) = decode_columns(encode_columns(([Handle("a")],)))
    assert back.name == "A"


def test_what_is_registered_travels_and_installing_forgets_the_job_before() -> None:
    install(())
    register_coder(Handle, HandleCoder())
    travelling = pickle.loads(pickle.dumps(registered()))
    mine = key_bytes(Handle("a"))
    install(())
    assert registered() == ()
    with pytest.raises(KeyEncodingError):
        key_bytes(Handle("a"))
    install(travelling)
    assert [cls for cls, _ in registered()] == [Handle]
    assert key_bytes(Handle("a")) == mine


@pytest.mark.parametrize("cls", [int, str, list, dict, tuple, type, type(None), type(lambda: None)])
def test_types_that_pickle_writes_by_nature_can_not_have_a_coder(cls: type) -> None:
    with pytest.raises(BuildError, match="wrap its values"):
        register_coder(cls, PickleCoder())
    assert cls not in dict(registered())


def test_a_registration_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(BuildError, match="an instance of Coder"):
        register_coder(Handle, HandleCoder)  # type: ignore[arg-type]
    with pytest.raises(BuildError, match="a class"):
        register_coder(Handle("a"), HandleCoder())  # type: ignore[arg-type]

    class Word(str):
        pass

    class WordCoder(Coder[Word]):
        deterministic = True

        def encode(self, value: Word) -> bytes:
            return value.encode()

        def decode(self, data: bytes) -> Word:
            return Word(data.decode())

    with pytest.raises(BuildError, match="they equal values of other types"):
        register_coder(Word, WordCoder())
    assert Word not in dict(registered())


def test_values_read_where_no_coder_is_registered_say_so() -> None:
    register_coder(Handle, HandleCoder())
    data = encode_columns(([Handle("a")],))
    install(())
    with pytest.raises(RunError, match=r"no coder for .*Handle is registered in the process reading"):
        decode_columns(data)


def test_damaged_data_is_an_error_of_ours() -> None:
    data = encode_columns(([1, 2, 3],))
    for broken in (b"", data[:-3], b"\xff" + data, pickle.dumps([1])):
        with pytest.raises(RunError):
            decode_columns(broken)


def test_an_element_that_can_not_be_rebuilt_is_an_error_that_says_why() -> None:
    with pytest.raises(RunError, match="__reduce__") as failure:
        decode_columns(encode_columns(([Picky()],)))
    assert isinstance(failure.value.__cause__, ValueError)


def local_class() -> Any:
    class Inside:
        pass

    return Inside()


knot: list[Any] = []
knot.extend([knot, threading.Lock()])

UNPICKLABLE: list[tuple[Any, str]] = [
    (threading.Lock(), "value, <unlocked _thread.lock"),
    (Handle("a"), "value.lock, <unlocked"),
    ({"a": [1, (2, Handle("a"))]}, r"value['a'][1][1].lock, <"),
    (Slotted("a", Handle("b")), "value.inner.lock, <"),
    (Refusing(), "this object stays at home"),
    ([lambda: 1], "value[0], <function"),
    (Loner(), "value.callback, <function"),
    ({threading.Lock(): 1}, ", its key <unlocked"),
    (frozenset({threading.Lock()}), ", its member, <unlocked"),
    (local_class(), "local object"),
    ((n for n in ()), "value, <generator"),
    (knot, "value[1], <unlocked"),
]


@pytest.mark.parametrize(("value", "says"), UNPICKLABLE, ids=lambda part: repr(part).partition(" at 0x")[0][:20])
def test_the_part_that_can_not_be_pickled_is_named(value: Any, says: str) -> None:
    assert says in explain_unpicklable(value)


def test_a_picklable_value_is_said_to_be_so() -> None:
    assert explain_unpicklable([1]) == "[1] can be pickled"


def test_the_element_at_fault_is_found_in_its_column() -> None:
    with pytest.raises(PicklingError, match=r"^\('k', <.*Handle.*\) can't be sent between steps: value\[1\]\.lock, <"):
        encode_columns((["a", "b"], [1, ("k", Handle("x"))]))


def test_a_value_nested_too_deeply_is_refused_not_a_crash() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PicklingError, match="can't be sent between steps"):
        encode_columns((deep,))
