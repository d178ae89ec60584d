"""Coders and encoded blocks: decoding returns the encoded values, and errors name the part that can't be encoded."""

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


class NondeterministicCoder(HandleCoder):
    deterministic = False


class UpperCaseCoder(HandleCoder):
    def encode(self, value: Handle) -> bytes:
        return value.name.upper().encode()


class NotUnpicklable:
    """Can be pickled, but not unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return int, ("not a number",)


class FailingGetState:
    def __getstate__(self) -> Any:
        raise ValueError("this object stays at home")


class HasUnpicklableCallback:
    """Leaves its lock out of its state, as it should, but has a callback that can't be pickled."""

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
def _restore_registry() -> Iterator[None]:
    coders = registered()
    yield
    install(coders)


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
def test_decoding_returns_the_encoded_columns(columns: tuple[Any, ...], with_coders: bool) -> None:
    install(((Handle, HandleCoder()),) if with_coders else ())
    decoded = decode_columns(encode_columns(columns))
    assert decoded == columns
    assert repr(decoded) == repr(columns)  # also the types: 1 stays an int, True a bool


@given(values)
def test_the_pickle_coder_encodes_and_decodes_plain_values(value: Any) -> None:
    coder = PickleCoder()
    assert coder.decode(coder.encode(value)) == value
    assert not coder.deterministic


def test_an_object_that_occurs_repeatedly_is_written_once() -> None:
    row = ("x" * 1000,)
    data = encode_columns(([row] * 100,))
    assert len(data) < 2000
    (column,) = decode_columns(data)
    assert column[0] is column[99]


def test_a_registered_coder_encodes_unpicklable_values_and_does_not_affect_pickle() -> None:
    with pytest.raises(PicklingError):
        encode_columns(([Handle("a")],))
    register_coder(Handle, HandleCoder())
    ((first, nested),) = decode_columns(encode_columns(([Handle("a"), {"deep": (Handle("b"),)}],)))
    assert (type(first), first.name, nested["deep"][0].name) == (Handle, "a", "b")
    with pytest.raises(TypeError):
        pickle.dumps(Handle("a"))


def test_values_of_a_type_are_keys_only_if_its_coder_is_deterministic() -> None:
    register_coder(Handle, HandleCoder())
    assert key_bytes(("k", Handle("a"))) == key_bytes(("k", Handle("a"))) != key_bytes(("k", Handle("b")))
    register_coder(Handle, NondeterministicCoder())
    with pytest.raises(KeyEncodingError):
        key_bytes(Handle("a"))
    ((decoded,),) = decode_columns(encode_columns(([Handle("a")],)))
    assert decoded.name == "a"


def test_registering_again_replaces_the_coder_for_keys_and_elements() -> None:
    register_coder(Handle, HandleCoder())
    first_key = key_bytes(Handle("a"))
    register_coder(Handle, UpperCaseCoder())
    assert key_bytes(Handle("a")) != first_key
    ((decoded,),) = decode_columns(encode_columns(([Handle("a")],)))
    assert decoded.name == "A"


def test_registered_coders_can_be_pickled_and_installing_replaces_earlier_ones() -> None:
    install(())
    register_coder(Handle, HandleCoder())
    coders = pickle.loads(pickle.dumps(registered()))
    expected = key_bytes(Handle("a"))
    install(())
    assert registered() == ()
    with pytest.raises(KeyEncodingError):
        key_bytes(Handle("a"))
    install(coders)
    assert [cls for cls, _ in registered()] == [Handle]
    assert key_bytes(Handle("a")) == expected


@pytest.mark.parametrize("cls", [int, str, list, dict, tuple, type, type(None), type(lambda: None)])
def test_types_that_pickle_handles_natively_cannot_have_a_coder(cls: type) -> None:
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


def test_decoding_without_the_registered_coder_is_an_error() -> None:
    register_coder(Handle, HandleCoder())
    data = encode_columns(([Handle("a")],))
    install(())
    with pytest.raises(RunError, match=r"no coder for .*Handle is registered in the process reading"):
        decode_columns(data)


def test_damaged_data_is_a_run_error() -> None:
    data = encode_columns(([1, 2, 3],))
    for broken in (b"", data[:-3], b"\xff" + data, pickle.dumps([1])):
        with pytest.raises(RunError):
            decode_columns(broken)


def test_the_error_of_an_element_that_cannot_be_unpickled_has_its_cause() -> None:
    with pytest.raises(RunError, match="__reduce__") as failure:
        decode_columns(encode_columns(([NotUnpicklable()],)))
    assert isinstance(failure.value.__cause__, ValueError)


def local_class() -> Any:
    class Inside:
        pass

    return Inside()


self_reference: list[Any] = []
self_reference.extend([self_reference, threading.Lock()])

UNPICKLABLE: list[tuple[Any, str]] = [
    (threading.Lock(), "value, <unlocked _thread.lock"),
    (Handle("a"), "value.lock, <unlocked"),
    ({"a": [1, (2, Handle("a"))]}, r"value['a'][1][1].lock, <"),
    (Slotted("a", Handle("b")), "value.inner.lock, <"),
    (FailingGetState(), "this object stays at home"),
    ([lambda: 1], "value[0], <function"),
    (HasUnpicklableCallback(), "value.callback, <function"),
    ({threading.Lock(): 1}, ", its key <unlocked"),
    (frozenset({threading.Lock()}), ", its member, <unlocked"),
    (local_class(), "local object"),
    ((n for n in ()), "value, <generator"),
    (self_reference, "value[1], <unlocked"),
]


@pytest.mark.parametrize(("value", "message"), UNPICKLABLE, ids=lambda part: repr(part).partition(" at 0x")[0][:20])
def test_the_explanation_names_the_part_that_cannot_be_pickled(value: Any, message: str) -> None:
    assert message in explain_unpicklable(value)


def test_the_explanation_of_a_picklable_value_says_that_it_can_be_pickled() -> None:
    assert explain_unpicklable([1]) == "[1] can be pickled"


def test_the_error_names_the_element_that_cannot_be_pickled() -> None:
    with pytest.raises(PicklingError, match=r"^\('k', <.*Handle.*\) can't be sent between steps: value\[1\]\.lock, <"):
        encode_columns((["a", "b"], [1, ("k", Handle("x"))]))


def test_a_value_nested_too_deeply_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PicklingError, match="can't be sent between steps"):
        encode_columns((deep,))
