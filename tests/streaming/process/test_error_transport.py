"""Errors that are sent from one process to another."""

from __future__ import annotations

import pickle

import pytest

from tidegate.runners.engine.errors.transport import packed, unpacked
from tidegate.runners.streaming.model.exit_status import one_line
from tidegate.sdk.errors import RunError, UserCodeError


class Unpicklable(Exception):
    def __reduce__(self) -> str:
        raise TypeError("it can't be pickled")


def test_an_error_is_transported_with_its_cause_and_each_note_once() -> None:
    error = UserCodeError("it broke", step="Map", where="x.py:1", element="7")
    error.__cause__ = ValueError("why")
    error.add_note("one")
    error.add_note("two")
    received = unpacked(packed(error))
    assert str(received) == str(error)
    assert received.__notes__ == ["one", "two"]
    assert isinstance(received, UserCodeError)
    assert received.step == "Map"
    assert str(received.__cause__) == "why"


@pytest.mark.parametrize("error", [OSError(20, "Not a directory"), KeyError("x")])
def test_a_foreign_exception_becomes_a_run_error_and_keeps_its_notes(error: Exception) -> None:
    error.add_note("where it was")
    received = unpacked(packed(error))
    assert type(received) is RunError
    assert str(error) in str(received)
    assert received.__notes__ == ["where it was"]


def test_a_cause_that_cannot_be_pickled_is_replaced_by_its_text() -> None:
    error = RunError("it broke")
    error.__cause__ = Unpicklable("x")
    received = unpacked(packed(error))
    assert str(received) == "it broke"
    assert type(received.__cause__) is RunError
    assert str(received.__cause__) == "Unpicklable: x"


def test_an_error_that_cannot_be_pickled_is_replaced_by_its_text() -> None:
    with pytest.raises(TypeError):
        pickle.dumps(Unpicklable("x"))
    assert str(unpacked(packed(Unpicklable("x")))) == "Unpicklable: x"


def test_an_error_is_summarised_in_one_line() -> None:
    assert one_line(RunError("it broke\n  in step 'Map'\n  long story")) == "it broke, in step 'Map'"
    assert one_line(KeyError("x")) == "KeyError: 'x'"
