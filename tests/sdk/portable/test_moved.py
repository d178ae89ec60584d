"""Module and class names in pickles of earlier versions are mapped to the current ones."""

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
    """Temporary modules for classes of the test."""
    temporary = {name: ModuleType(name) for name in ("rows_before", "rows_between", "rows_now", "elsewhere_now")}
    sys.modules.update(temporary)
    yield temporary
    for name in temporary:
        sys.modules.pop(name, None)


def define_class(module: ModuleType, name: str) -> type:
    """Define a class with a nested class `Inner` in a module."""
    cls = type(name, (), {"__module__": module.__name__, "__qualname__": name})
    inner = type("Inner", (), {"__module__": module.__name__, "__qualname__": f"{name}.Inner"})
    cls.Inner = inner  # type: ignore[attr-defined]
    setattr(module, name, cls)
    return cls


MOVED_TWICE = Moves(
    {"rows_before": "rows_between", "rows_between": "rows_now"},
    {("rows_between", "Row"): ("rows_between", "Record"), ("rows_now", "Apart"): ("elsewhere_now", "Apart")},
)


def test_a_class_that_was_moved_twice_and_renamed_is_found(
    modules: dict[str, ModuleType],
) -> None:
    old = [define_class(modules["rows_before"], name) for name in ("Row", "Table", "Apart")]
    data = pickle.dumps((old, old[0].Inner), 5)  # type: ignore[attr-defined]
    del sys.modules["rows_before"]
    new = [define_class(modules["rows_now"], "Record"), define_class(modules["rows_now"], "Table")]
    new.append(define_class(modules["elsewhere_now"], "Apart"))
    assert MOVED_TWICE.loads(data) == (new, new[0].Inner)  # type: ignore[attr-defined]
    assert MOVED_TWICE.loads(pickle.dumps(new, 5)) == new


def test_a_function_pickled_by_value_finds_moved_modules_and_classes(
    modules: dict[str, ModuleType],
) -> None:
    import rows_before  # type: ignore[import-not-found]  # one of those above

    old = define_class(modules["rows_before"], "Table")
    data = cloudpickle.dumps(lambda: (rows_before.Table, old))
    del sys.modules["rows_before"]
    new = define_class(modules["rows_now"], "Table")
    assert MOVED_TWICE.loads(data)() == (new, new)


def test_the_original_names_of_moved_classes_are_known() -> None:
    assert MOVED_TWICE.original("rows_now", "Record.Inner") == ("rows_before", "Row.Inner")
    assert MOVED_TWICE.original("elsewhere_now", "Apart") == ("rows_before", "Apart")
    assert MOVED_TWICE.original("rows_now", "Table") == ("rows_before", "Table")
    assert MOVED_TWICE.original("rows_before", "Row") == ("rows_before", "Row")
    assert MOVED_TWICE.original_module("rows_now") == "rows_before"


def test_a_missing_module_or_class_raises_the_same_error_as_pickle() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        MOVED_TWICE.loads(b"cno_such_module\nThing\n.")
    with pytest.raises(AttributeError, match="Nothing"):
        MOVED_TWICE.loads(b"cpickle\nNothing\n.")


def test_out_of_band_buffers_are_loaded() -> None:
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(pickle.PickleBuffer(bytearray(b"out of band")), 5, buffer_callback=buffers.append)
    assert bytes(MOVED_TWICE.loads(data, buffers)) == b"out of band"


# -- the table of moved names


def test_modules_and_classes_exist_where_the_table_says() -> None:
    for module in MODULES.values():
        import_module(MOVES.current_module(module))
    for target in NAMES.values():
        assert resolve_name(":".join(MOVES.current(*target)))


def test_no_name_is_defined_at_the_old_place_of_a_module() -> None:
    """A class left at the old place would be looked up at the new place of its module."""
    found = {module: defined(module) for module in MODULES if exists(module)}
    assert {module: names for module, names in found.items() if names} == {}


def defined(module: str) -> list[str]:
    values = vars(import_module(module)).items()
    return [name for name, value in values if getattr(value, "__module__", None) == module]


def exists(module: str) -> bool:
    """Whether the module can be found."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # for a missing package
        return False


def test_no_two_moved_modules_were_merged_into_one() -> None:
    """The original names would be ambiguous: list the names of one of the modules instead."""
    assert len(set(MODULES.values())) == len(MODULES)


# -- encodings that contain names


FIRST = tg.PaneInfo(True, True, tg.Timing.EARLY, 0, 0)


@pytest.mark.parametrize(
    ("key", "check"), [(tg.Timing.ON_TIME, 0x443B14F0), (FIRST, 0x730AAFAB), (tg.FixedWindows(3), 0x69AF392B)]
)
def test_keys_of_a_moved_class_keep_their_encoding(key: object, check: int) -> None:
    """The encoding contains the class name, and decides which worker has the state of a key."""
    assert crc32(key_bytes(key)) == check
