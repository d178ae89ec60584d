"""Names in pickles of earlier versions are mapped to the current modules of the classes."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pkgutil import resolve_name
from types import ModuleType
from zlib import crc32

import cloudpickle
import pytest

import tidegate as tg
from tidegate.sdk.data.keys import key_bytes
from tidegate.sdk.moved import MODULES, MOVES, NAMES, Moves


@pytest.fixture
def modules() -> Iterator[dict[str, ModuleType]]:
    """Modules to put classes into; they are removed afterwards."""
    made = {name: ModuleType(name) for name in ("rows_before", "rows_between", "rows_now", "elsewhere_now")}
    sys.modules.update(made)
    yield made
    for name in made:
        sys.modules.pop(name, None)


def put(module: ModuleType, name: str) -> type:
    """A class of that name in a module."""
    cls = type(name, (), {"__module__": module.__name__, "__qualname__": name})
    inner = type("Inner", (), {"__module__": module.__name__, "__qualname__": f"{name}.Inner"})
    cls.Inner = inner  # type: ignore[attr-defined]
    setattr(module, name, cls)
    return cls


TWICE = Moves(
    {"rows_before": "rows_between", "rows_between": "rows_now"},
    {("rows_between", "Row"): ("rows_between", "Record"), ("rows_now", "Apart"): ("elsewhere_now", "Apart")},
)


def test_a_class_is_found_where_it_has_moved_to_in_two_steps_and_by_another_name(
    modules: dict[str, ModuleType],
) -> None:
    old = [put(modules["rows_before"], name) for name in ("Row", "Table", "Apart")]
    data = pickle.dumps((old, old[0].Inner), 5)  # type: ignore[attr-defined]
    del sys.modules["rows_before"]
    new = [put(modules["rows_now"], "Record"), put(modules["rows_now"], "Table")]
    new.append(put(modules["elsewhere_now"], "Apart"))
    assert TWICE.loads(data) == (new, new[0].Inner)  # type: ignore[attr-defined]
    assert TWICE.loads(pickle.dumps(new, 5)) == new


def test_a_function_that_travels_by_value_finds_the_modules_and_classes_it_knows(
    modules: dict[str, ModuleType],
) -> None:
    import rows_before  # type: ignore[import-not-found]  # one of those above

    old = put(modules["rows_before"], "Table")
    data = cloudpickle.dumps(lambda: (rows_before.Table, old))
    del sys.modules["rows_before"]
    new = put(modules["rows_now"], "Table")
    assert TWICE.loads(data)() == (new, new)


def test_the_first_name_of_what_has_moved_is_known() -> None:
    assert TWICE.original("rows_now", "Record.Inner") == ("rows_before", "Row.Inner")
    assert TWICE.original("elsewhere_now", "Apart") == ("rows_before", "Apart")
    assert TWICE.original("rows_now", "Table") == ("rows_before", "Table")
    assert TWICE.original("rows_before", "Row") == ("rows_before", "Row")
    assert TWICE.original_module("rows_now") == "rows_before"


def test_what_is_not_there_is_told_as_pickle_tells_it() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        TWICE.loads(b"cno_such_module\nThing\n.")
    with pytest.raises(AttributeError, match="Nothing"):
        TWICE.loads(b"cpickle\nNothing\n.")


def test_buffers_beside_a_pickle_are_given_to_it() -> None:
    beside: list[pickle.PickleBuffer] = []
    data = pickle.dumps(pickle.PickleBuffer(bytearray(b"beside")), 5, buffer_callback=beside.append)
    assert bytes(TWICE.loads(data, beside)) == b"beside"


# -- the table of what has moved


def test_modules_and_classes_are_where_the_table_says() -> None:
    for module in MODULES.values():
        import_module(MOVES.current_module(module))
    for target in NAMES.values():
        assert resolve_name(":".join(MOVES.current(*target)))


def test_nothing_is_defined_where_a_module_was() -> None:
    """A class that stayed would be looked up in the module's new place."""
    found = {module: defined(module) for module in MODULES if is_there(module)}
    assert {module: names for module, names in found.items() if names} == {}


def defined(module: str) -> list[str]:
    values = vars(import_module(module)).items()
    return [name for name, value in values if getattr(value, "__module__", None) == module]


def is_there(module: str) -> bool:
    """Whether the module exists."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # of the package
        return False


def test_modules_that_have_moved_have_not_become_one() -> None:
    """The original names of its contents would be ambiguous: list the names of one of the modules instead."""
    assert len(set(MODULES.values())) == len(MODULES)


# -- what is computed of names


FIRST = tg.PaneInfo(True, True, tg.Timing.EARLY, 0, 0)


@pytest.mark.parametrize(
    ("key", "check"), [(tg.Timing.ON_TIME, 0x443B14F0), (FIRST, 0x730AAFAB), (tg.FixedWindows(3), 0x69AF392B)]
)
def test_keys_of_a_class_that_moves_are_encoded_as_they_were_at_first(key: object, check: int) -> None:
    """State stays with the worker that elements of its key go to. The name is part of what is encoded."""
    assert crc32(key_bytes(key)) == check
