"""Redefined classes and steps at Python's interactive prompt, where each statement is code of its own."""

from __future__ import annotations

import subprocess
import sys

SESSION = """
import tidegate as tg
from dataclasses import dataclass
@dataclass(frozen=True)
class Visit:
    who: str

old = [Visit("ada")]
visits = tg.Pipeline() | tg.Create([[visit] for visit in old]).with_output_types(list)
@dataclass(frozen=True)
class Visit:
    who: str

found = visits.collect(runner="streaming")
print("found", found == [old], type(found[0][0]) is type(old[0]))
"""


def test_elements_of_a_class_redefined_at_the_prompt_keep_working_in_forked_workers() -> None:
    done = subprocess.run([sys.executable, "-i"], input=SESSION, capture_output=True, text=True, timeout=120)
    assert "found True True" in done.stdout, done.stderr


REDEFINED_STEPS = """
import tidegate as tg
p = tg.Pipeline()
words = p | tg.Create(["tea", "jam", "tea"])
counts = words | "count" >> tg.CombinePerElement(len)
counts = words | "count" >> tg.CombinePerElement(len)
(counts | tg.Map(lambda pair: pair["n"])).head(1)

with p:
    counts | "print" >> tg.MapTuple(lambda word, n: print(word, n))
    counts | "print" >> tg.Map(print)

p
_ = counts | "print" >> tg.MapTuple(lambda word, n: print("!", word, n))
result = p.run()
del p["print"]
p
"""


def test_a_labelled_step_is_replaced_by_a_later_statement_and_a_temporary_step_is_removed() -> None:
    done = subprocess.run([sys.executable, "-i"], input=REDEFINED_STEPS, capture_output=True, text=True, timeout=120)
    assert "<stdin>:3: the step" not in done.stderr
    assert done.stderr.count("another step is already labelled 'print'") == 1
    assert "applied at <stdin>:3" in done.stderr
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if line.startswith("!")) == ["! jam 1", "! tea 2"]
    assert [line for line in lines if line.startswith("<Pipeline")] == [
        "<Pipeline 'pipeline': 3 steps, not run>",
        "<Pipeline 'pipeline': 2 steps, run: DONE>",
    ]


PICKLED_ELEMENTS = """
import tidegate as tg
class Counted:
    pickled = 0
    def __reduce__(self):
        Counted.pickled += 1
        return Counted, ()

(tg.Pipeline(options=["--checks", "off"]) | tg.Create([Counted()] * 3) | tg.Map(lambda _: 1)).collect(runner="direct")
print("pickled", Counted.pickled)
"""


def test_a_run_in_this_process_pickles_no_elements_at_the_prompt() -> None:
    done = subprocess.run([sys.executable, "-i"], input=PICKLED_ELEMENTS, capture_output=True, text=True, timeout=120)
    assert "pickled 0" in done.stdout, done.stderr
