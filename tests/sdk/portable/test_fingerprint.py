"""The fingerprint of a pipeline: equal in every process that runs the same script, different if the script does
something else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.sdk.portable.fingerprint import digest
from tidegate.sdk.portable.pickle_graph import digest_of
from tidegate.sdk.user_code.by_value import pickle_by_value

ROOT = Path(__file__).parents[3]

SCRIPT = """\
import abc, dataclasses, enum, functools, json, re, sys
from pydantic import BaseModel
import tidegate as tg

WORDS = {"a", "bb", "ccc", "dddd", "eeeee"}
TABLE = {word: {1, 2, word} for word in WORDS}


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Model(BaseModel):
    x: int = 1
    tags: set[str] = {"p", "q", "r"}


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    y: int = 2

    def mirrored(self):
        return Point(self.y, self.x)


@dataclasses.dataclass(slots=True)
class Slotted:
    x: int


class Base(abc.ABC):
    @abc.abstractmethod
    def f(self): ...


class Sub(Base):
    def f(self):
        return super().f


Base.register(Point)
Base.register(Slotted)


def even(n):
    return n == 0 or odd(n - 1)


def odd(n):
    return n != 0 and even(n - 1)


def all_of_it(x, words=frozenset(WORDS)):
    found = [w for w in WORDS if w in {"x", "y", "zz", "www"}]
    return [found, Colour.RED, Model(), Point(1), Slotted(2), Sub(), even(3), re.compile("a"), lambda: TABLE]


class Count(tg.DoFn):
    SEEN = tg.ValueStateSpec("seen")

    def __init__(self):
        self.names = {"q", "r", "st"}
        self.part = functools.partial(all_of_it, words=WORDS)
        self.itself = self

    def process(self, element, seen=tg.DoFn.StateParam(SEEN)):
        yield element, TABLE, self.part


def build():
    p = tg.Pipeline()
    words = p | "words" >> tg.Create([("a", {"x", "y", "z"}), ("b", Point(1))])
    keyed = words | "all" >> tg.Map(all_of_it) | "key" >> tg.Map(lambda x: (Colour.BLUE.name, 1))
    keyed | "count" >> tg.ParDo(Count()) | "line" >> tg.Map(str) | "write" >> tg.io.WriteToText("out")
    numbers = p | "numbers" >> tg.Create([1, 2, 3]) | "windows" >> tg.WindowInto(tg.FixedWindows(5))
    numbers | "pair" >> tg.Map(lambda n: (n, n)) | "sum" >> tg.CombinePerKey(sum)
    return p


if __name__ == "__main__":
    from tidegate.sdk.portable.fingerprint import fingerprint

    print(json.dumps(fingerprint(build().sealed())))
"""


def fingerprint_of(folder: Path, script: str = SCRIPT, hashes: str = "0") -> dict[str, str]:
    """The fingerprint of a script's pipeline, computed in another process."""
    pytest.importorskip("pydantic")
    folder.mkdir(exist_ok=True)
    (folder / "script.py").write_text(script)
    completed = subprocess.run(
        [sys.executable, str(folder / "script.py")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": str(ROOT)},
    )
    found: dict[str, str] = json.loads(completed.stdout)
    return found


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return fingerprint_of(tmp_path_factory.mktemp("first"))


@pytest.mark.parametrize("hashes", ["1", "2", "3"])
def test_hash_seeds_paths_and_line_numbers_do_not_change_the_fingerprint(
    first: dict[str, str], tmp_path: Path, hashes: str
) -> None:
    assert fingerprint_of(tmp_path / hashes, f"# elsewhere{int(hashes) * chr(10)}{SCRIPT}", hashes) == first


@pytest.mark.parametrize(
    ("before", "after", "steps"),
    [
        ('"zz", "www"', '"zz", "wwx"', {"all", "count"}),
        ("n != 0 and", "n != 1 and", {"all", "count"}),
        ("Point(self.y, self.x)", "Point(self.x, self.y)", {"words", "all", "count"}),
        ("RED = 1", "RED = 3", {"all", "key", "count"}),
        ('{"q", "r", "st"}', '{"q", "r", "sT"}', {"count"}),
        ("words=WORDS", "words=()", {"count"}),
        ("FixedWindows(5)", "FixedWindows(6)", {"windows", "pair", "sum"}),
        ('("b", Point(1))', '("b", Point(2))', {"words"}),
        ("[1, 2, 3]", "[1, 2, 3.0]", {"numbers"}),
        ('WriteToText("out")', 'WriteToText("other")', {"write/Write"}),
        ("CombinePerKey(sum)", "CombinePerKey(max)", {"sum"}),
        ("(n, n)", "(n, -n)", {"pair"}),
        ('ValueStateSpec("seen")', 'BagStateSpec("seen")', {"count"}),
    ],
)
def test_a_change_of_a_step_changes_the_fingerprint_of_that_step(
    first: dict[str, str], tmp_path: Path, before: str, after: str, steps: set[str]
) -> None:
    assert SCRIPT.count(before) == 1
    changed = fingerprint_of(tmp_path, SCRIPT.replace(before, after))
    assert changed.keys() == first.keys()
    assert {part for part in changed if changed[part] != first[part]} == {f"step {step!r}" for step in steps}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda part: st.lists(part) | st.tuples(part, part) | st.dictionaries(st.text(), part),
)


@given(PLAIN, PLAIN)
def test_values_have_equal_digests_exactly_if_their_types_and_contents_are_equal(one: object, other: object) -> None:
    assert (digest(one) == digest(other)) == (_canonical(one) == _canonical(other))


def _canonical(value: object) -> str:
    match value:
        case dict():
            return f"{{{sorted((key, _canonical(item)) for key, item in value.items())}}}"
        case list() | tuple():
            return f"{type(value).__name__} {[_canonical(item) for item in value]}"
        case _:
            return f"{type(value).__name__} {value!r}"


@given(PLAIN)
def test_shared_objects_in_a_pickle_do_not_change_the_digest(value: object) -> None:
    import copy

    shared, copied = pickle_by_value([value, value])[0], pickle_by_value([value, copy.deepcopy(value)])[0]
    assert digest_of(shared) == digest_of(copied)


def test_a_value_that_contains_itself_has_a_digest() -> None:
    def ring(length: int, last: object) -> bytes:
        items: list[list[object]] = [[n] for n in range(length)]
        for item, following in zip(items, [*items[1:], items[0]], strict=True):
            item.append(following)
        items[-1].append(last)
        return digest_of(pickle_by_value(items[0])[0])

    assert ring(50, "x") == ring(50, "x")
    assert len({ring(50, "x"), ring(50, "y"), ring(51, "x")}) == 3


def test_a_deeply_nested_value_does_not_overflow_the_stack() -> None:
    import pickle

    deep = pickle.PROTO + bytes([4]) + b"]" * 100_000 + b"a" * 99_999 + b"."
    assert digest_of(deep) != digest_of(pickle.dumps([]))
