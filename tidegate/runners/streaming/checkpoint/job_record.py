"""The job record, `job.json`: says which job a checkpoint directory belongs to, and whether that job has finished."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

from tidegate.runners.checkpoint.manifest import ManifestError
from tidegate.runners.checkpoint.metrics_codec import metrics_in, metrics_out
from tidegate.runners.checkpoint.step_state import has_checkpointed_state, step_facts
from tidegate.runners.plan import Plan
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.sdk.errors import shorten
from tidegate.sdk.metrics import MetricCells

RECORD: Final = "job.json"
RECORDED: Final = 0
"""The checkpoint number in `Store` and `Stored` when a job records its end instead of storing a checkpoint."""
FORMAT: Final = 2
_FORMAT_WITHOUT_PARTS: Final = 1
"""The previous format, whose oldest records lack `parts` and `metrics`."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, as its checkpoint directory records it.

    `run` and `parts` are as in `Job`; `parts` is empty if an earlier version recorded none. `pipeline`: the pipeline's
    name. `steps`: name and kind of the steps with checkpointed state. `metrics`: empty until the job has finished.
    """

    job: str
    run: str
    pipeline: str
    steps: frozenset[str]
    state: Literal["running", "finished"]
    parts: Mapping[str, str] = field(default_factory=dict)
    metrics: MetricCells = field(default_factory=MetricCells)


def record(job: Job, state: Literal["running", "finished"], metrics: MetricCells | None = None) -> bytes:
    """A job's record as JSON. `metrics`: the totals of a finished job."""
    fields = {
        "tidegate": FORMAT,
        "job": job.id,
        "run": job.run,
        "pipeline": job.plan.pipeline.name,
        "steps": sorted(_checkpointed_steps(job.plan)),
        "state": state,
        "digest": _digest(job.parts),
        "parts": dict(sorted(job.parts.items())),
        "metrics": metrics_out(metrics or MetricCells()),
    }
    return json.dumps(fields, indent=1).encode()


def read_record(data: bytes) -> JobRecord:
    """Parse a record. Raises ManifestError if it is torn, damaged or of a format that this version can't read."""
    try:
        fields = json.loads(data)
        if fields["tidegate"] not in (FORMAT, _FORMAT_WITHOUT_PARTS):
            raise ManifestError(
                f"{RECORD} has format {shorten(fields['tidegate'])}, and this version of Tidegate reads "
                f"{_FORMAT_WITHOUT_PARTS} and {FORMAT}: run it with the version that wrote it"
            )
        if fields["tidegate"] == _FORMAT_WITHOUT_PARTS and "parts" not in fields:
            fields |= {"parts": {}, "digest": _digest({}), "metrics": metrics_out(MetricCells())}
        state: Literal["running", "finished"] = "finished" if fields["state"] == "finished" else "running"
        id, run, pipeline = fields["job"], fields["run"], fields["pipeline"]
        steps = frozenset(fields["steps"])
        parts, metrics = dict(fields["parts"]), metrics_in(fields["metrics"])
        intact = fields["digest"] == _digest(parts)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ManifestError(f"{RECORD} is damaged: {error}") from None
    if not intact or not all(isinstance(name, str) for name in (id, run, pipeline, *steps)):
        raise ManifestError(f"{RECORD} is damaged: {shorten(fields)}")
    return JobRecord(id, run, pipeline, steps, state, parts, metrics)


def same_pipeline(known: JobRecord, plan: Plan) -> bool:
    """Return whether a plan may be a later version of the recorded pipeline: a step with checkpointed state recurs.

    True also if the recorded pipeline had no such step.
    """
    return not known.steps or not known.steps.isdisjoint(_checkpointed_steps(plan))


def _digest(parts: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(parts.items())).encode()).hexdigest()


def _checkpointed_steps(plan: Plan) -> set[str]:
    return {f"{facts.name} ({facts.kind})" for facts in step_facts(plan) if has_checkpointed_state(facts)}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe how two jobs' fingerprints differ; "" if they are equal.

    >>> differences({"step 'a'": "1", "step 'b'": "2"}, {"step 'a'": "9", "step 'b'": "2", "step 'c'": "3"})
    "step 'a' has changed, step 'c' is new"
    """
    return ", ".join(_differences(before, now))


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    if before.get(_PYTHON) != now.get(_PYTHON):  # each version compiles every function differently
        yield f"{_PYTHON} is {now.get(_PYTHON)}, and was {before.get(_PYTHON)}"
        return
    for part in sorted(before.keys() | now.keys()):
        if part not in before:
            yield f"{part} is new"
        elif part not in now:
            yield f"{part} is gone"
        elif before[part] != now[part]:
            yield f"{part} has changed"


_PYTHON: Final = "the version of Python"
