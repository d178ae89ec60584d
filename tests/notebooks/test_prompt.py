"""The same at Python's own prompt, where each line is code of its own too."""

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


def test_a_class_that_is_defined_again_at_the_prompt_works_in_forked_workers_too() -> None:
    done = subprocess.run([sys.executable, "-i"], input=SESSION, capture_output=True, text=True, timeout=120)
    assert "found True True" in done.stdout, done.stderr
