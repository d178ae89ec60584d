"""Each step of a chain is reported with its own line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.testing import TestPipeline

ROOT = Path(__file__).parents[3]

CHAIN = """\
import tidegate as tg
p = tg.Pipeline()
step = tg.Map(str)
steps = [tg.Map(str)]
(
    p
    | "one" >> tg.Create([1])

    | "many lines" >> tg.Map(
        lambda x: x,
    )
    | (
        "in parentheses"
        >> tg.Map(str)
    )
    | "method" >> tg.CombineGlobally(
        len
    ).without_defaults()
    | (
        "method below" >> tg.CombineGlobally(len)
        .without_defaults()
    )
    | step
    | steps[
        0
    ]
    | (tg.Map(print)
       if p is None else
       "chosen" >> tg.Map(len))
    | "a function of collections" >> tg.Map(
        (
            lambda x: [x for x in
                       str(x)]
        )
    )
)
(
    (
        p | "outer left" >> tg.Create([2])
        | "inner" >> tg.Map(str)
    )
    | "outer right" >> tg.Map(str)
)
(
    p | "left" >> tg.Create([3]),
    p | "right" >> tg.Create([4])
) | (
    "both" >> tg.Flatten())
more = p | "begin" >> tg.Create(
    [5]
)
more |= (
    "end" >> tg.Map(str)
)
"""


def lines(chain: str) -> dict[str, int]:
    """The label and the line of every step of a chain, compiled as part of a file."""
    space: dict[str, object] = {"__name__": "chain"}
    exec(compile(chain, "chain.py", "exec"), space)
    pipeline = space["p"]
    assert isinstance(pipeline, tg.Pipeline)
    return {node.label: node.where.line for node in pipeline.portable().nodes}


def test_each_step_of_a_chain_has_its_own_line() -> None:
    written = CHAIN.splitlines()
    found = lines(CHAIN)
    for label in ("one", "many lines", "in parentheses", "inner", "outer left", "outer right"):
        assert f'"{label}"' in written[found[label] - 1], label
    assert '"both"' in written[found["both"] - 1]
    assert '"end"' in written[found["end"] - 1]
    assert '"begin"' in written[found["begin"] - 1]
    assert '"chosen"' in written[found["chosen"] - 1]
    assert written[found["Map(str)"] - 1] == "    | step"
    assert written[found["Map(str)#2"] - 1] == "    | steps["


def test_a_step_followed_by_a_method_call_has_its_first_line() -> None:
    written = CHAIN.splitlines()
    found = {label.partition("/")[0]: written[line - 1].strip() for label, line in lines(CHAIN).items()}
    assert found["method"] == '| "method" >> tg.CombineGlobally('
    assert found["method below"] == '"method below" >> tg.CombineGlobally(len)'


def test_steps_in_long_bytecode_have_their_lines() -> None:
    numbers = "\n".join(f"    | 'step {n}' >> tg.Map(lambda x, y={n}: (x, y, 'constant {n}'))" for n in range(400))
    found = lines(f"import tidegate as tg\np = tg.Pipeline()\nchain = (\n    p\n    | tg.Create([1])\n{numbers}\n)\n")
    assert [found[f"step {n}"] for n in range(400)] == list(range(6, 406))


def test_a_step_inside_an_authors_composite_has_its_line_in_the_composite(pipeline: TestPipeline) -> None:
    class Composite(tg.PTransform[tg.PCollection[int], tg.PCollection[str]]):
        def expand(self, input: tg.PCollection[int]) -> tg.PCollection[str]:
            return (
                input
                | "add" >> tg.Map(lambda x: x + 1)
                | "write" >> tg.Map(str)
            )  # fmt: skip

    first = Composite.expand.__code__.co_firstlineno
    _ = pipeline | tg.Create([1]) | "whole" >> Composite()
    lines_of_steps = {node.label: node.where.line for node in pipeline.portable().nodes}
    assert (lines_of_steps["whole/add"], lines_of_steps["whole/write"]) == (first + 3, first + 4)


@pytest.mark.parametrize(("flags", "line"), [((), 6), (("-X", "no_debug_ranges"), 4)])
def test_an_error_names_the_line_of_the_step_that_failed(tmp_path: Path, flags: tuple[str, ...], line: int) -> None:
    (tmp_path / "script.py").write_text(
        "import tidegate as tg\nwith tg.Pipeline() as p:\n    (\n        p\n        | tg.Create([0])\n"
        "        | 'divide' >> tg.Map(\n            lambda x: 1 / x\n        )\n        | tg.Map(print)\n    )\n"
    )
    done = subprocess.run(
        [sys.executable, *flags, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert f"in step 'divide', applied at {tmp_path / 'script.py'}:{line}\n" in done.stderr
