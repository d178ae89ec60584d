"""Looking up a step, or its output, by the last parts of its label path."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegate.sdk.errors import BuildError, shorten
from tidegate.sdk.steps.applied_steps import AppliedStep, AppliedSteps
from tidegate.sdk.steps.pvalue import PValue, values_in


def step_of(steps: AppliedSteps, label: str) -> AppliedStep:
    """The step with that label, or the only one whose label path ends in it."""
    if not isinstance(label, str):
        raise BuildError(f"a pipeline's steps are found by their labels, as in p['count'], not by {shorten(label)}")
    paths = [label] if label in steps.by_path else [path for path in steps.by_path if path.endswith("/" + label)]
    if len(paths) > 1:
        raise BuildError(f"several steps end in {label!r}: write one of {', '.join(map(repr, paths))}")
    if not paths:
        raise BuildError(f"there is no step {label!r}{_near(label, steps.by_path)}")
    return steps.by_path[paths[0]]


def output_of(results: Mapping[str, Any], label: str) -> PValue:
    """The main output of the step with that label, or whose label path ends in it; or the collection with that id."""
    if not isinstance(label, str):
        raise BuildError(f"a pipeline's steps are found by their labels, as in p['count'], not by {shorten(label)}")
    paths = [label] if label in results else [path for path in results if path.endswith("/" + label)]
    if len(paths) > 1:
        raise BuildError(f"several steps end in {label!r}: write one of {', '.join(map(repr, paths))}")
    if not paths:
        made = {pcoll.id: pcoll for result in results.values() for pcoll in values_in(result)}
        ids = [label] if label in made else [id for id in made if id.endswith("/" + label)]
        if len(ids) == 1:
            return made[ids[0]]
        raise BuildError(f"there is no step {label!r}{_near(label, [*results, *made])}")
    found = values_in(results[paths[0]])
    main = [pcoll for pcoll in found if len(found) == 1 or pcoll.id == paths[0]]
    if main:
        return main[0]
    if not found:
        raise BuildError(f"the step {paths[0]!r} returns no collection")
    ids = list(dict.fromkeys(pcoll.id for pcoll in found))
    raise BuildError(f"the step {paths[0]!r} returns several collections: write one of {', '.join(map(repr, ids))}")


def _near(label: str, known: Iterable[str]) -> str:
    import difflib

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(label, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are: {', '.join(map(repr, names))}" if names else ": nothing has been applied yet"
