"""Classes of the author's that are pickled by value, loaded by a process that has not got their module."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tidegate.sdk.user_code.by_value import pickle_by_value, pickle_with_local_code

MODULE = """
from __future__ import annotations
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from decimal import Decimal


class Place(NamedTuple):
    name: str
    since: datetime


@dataclass(frozen=True)
class Visit:
    at: datetime
    place: Place | None
    before: Visit | None = None


@dataclass
class Vague:
    amount: Decimal
"""
LOAD = "import pickle, sys, typing; cls = pickle.load(sys.stdin.buffer); print(typing.get_type_hints(cls))"


def hints_elsewhere(folder: Path, name: str) -> subprocess.CompletedProcess[bytes]:
    """The type hints of a class of the module, printed by a process that can't import it."""
    (folder / "places.py").write_text(MODULE)
    dump = (
        "import places, sys; from tidegate.sdk.user_code.by_value import pickle_by_value as pickled; "
        f"sys.stdout.buffer.write(pickled(places.{name})[0])"
    )
    dumped = subprocess.run([sys.executable, "-c", dump], cwd=folder, capture_output=True, check=True, timeout=60)
    return subprocess.run(
        [sys.executable, "-c", LOAD], cwd=folder.parent, input=dumped.stdout, capture_output=True, timeout=60
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Place", "{'name': <class 'str'>, 'since': <class 'datetime.datetime'>}"),
        ("Visit", "{'at': <class 'datetime.datetime'>, 'place': places.Place | None, 'before': places.Visit | None}"),
    ],
)
def test_annotations_of_records_are_types_where_their_module_is_missing(
    tmp_path: Path, name: str, expected: str
) -> None:
    printed = hints_elsewhere(tmp_path, name)
    assert printed.stdout.decode().strip() == expected, printed.stderr.decode()


def test_annotations_for_type_checkers_alone_stay_text(tmp_path: Path) -> None:
    assert b"name 'Decimal' is not defined" in hints_elsewhere(tmp_path, "Vague").stderr


@pytest.mark.parametrize("pickled", [lambda value: pickle_by_value(value)[0], pickle_with_local_code])
def test_code_keeps_the_file_that_it_was_written_in(pickled: Callable[[Any], bytes]) -> None:
    """Tracebacks show it, and with it the author's line. Cloudpickle replaces it, from 3.1.3 on."""
    inner = pickle.loads(pickled(lambda: lambda x: x / 0))()
    with pytest.raises(ZeroDivisionError) as caught:
        inner(1)
    assert str(caught.traceback[-1].path) == __file__
