"""The text of `tidegate explain`: the plan, the runner's account of how it executes it, and what is inlined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.cli.target import Target
    from tidegate.runners.plan import Plan
    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.user_code.user_fn import UserFn


def explained(found: Target, options: PipelineOptions, *, verbose: bool = False) -> str:
    """The stages, exchanges and reasons of the plan, then the runner's part; if `verbose`, how each function is run.

    The text is the same for the same pipeline and flags.
    """
    from tidegate.runners.planner.explain import explain

    runner = found.runner(options)
    plan = runner.plan(found.live(options), options)
    of_runner = runner.explain(plan, options)
    text = explain(plan) + (f"\n{of_runner}" if of_runner else "")
    if not verbose:
        return text
    sealed = runner.plan(found.sealed(options), options)
    return "\n".join([text, "Functions", *_functions(sealed, options, load=found.loads_code)]) + "\n"


def _functions(plan: Plan, options: PipelineOptions, *, load: bool) -> Iterator[str]:
    """For each function a line that says how it is run, and its text, if the loop contains it or may do so."""
    from tidegate.runners.engine.function_calls import function_calls
    from tidegate.sdk.errors import visible

    for call in function_calls(plan, options, load=load):
        why = f": {call.reason}" if call.reason else ""
        yield f"  {visible(call.step)}   {call.how}{visible(why)}"
        if call.how != "called":
            yield from (f"      {visible(line)}" for line in _text(call.fn))


def _text(fn: UserFn) -> list[str]:
    """The lines of a function's text, without the indentation that they have in their file."""
    from inspect import cleandoc
    from textwrap import dedent

    if fn.body is None:
        return []
    text = cleandoc(fn.body.text) if fn.name.endswith("<lambda>") else dedent(fn.body.text)
    return text.expandtabs().splitlines()
