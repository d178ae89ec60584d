"""The record of a job in its checkpoint directory: whose the directory is, and whether the job is over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

from tidegate.runners.plan import Plan
from tidegate.runners.streaming.checkpoint.manifest import ManifestError
from tidegate.runners.streaming.checkpoint.metrics_codec import metrics_in, metrics_out
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.step_state import has_checkpointed_state, step_facts
from tidegate.sdk.errors import shorten
from tidegate.sdk.metrics import MetricCells

RECORD: Final = "job.json"
RECORDED: Final = 0
"""What `Stored` says of the record that all is done, which is no checkpoint."""
FORMAT: Final = 2
_WITHOUT_PARTS: Final = 1
"""The format before: as this one, but without `parts` and `metrics` (some records of it have them)."""


@dataclass(frozen=True, slots=True)
class JobRecord:
    """`run` is what sinks know the job by, `pipeline` its name, `steps` those that keep something. `parts` make it the
    same job (see `Job`), but an earlier version may have recorded none; `metrics` are of one that is over."""

    job: str
    run: str
    pipeline: str
    steps: frozenset[str]
    state: Literal["running", "finished"]
    parts: Mapping[str, str] = field(default_factory=dict)
    metrics: MetricCells = field(default_factory=MetricCells)


def record(job: Job, state: Literal["running", "finished"], metrics: MetricCells | None = None) -> bytes:
    """The record of a job, as JSON. `metrics`: all that was counted, of one that is over."""
    fields = {
        "tidegate": FORMAT,
        "job": job.id,
        "run": job.run,
        "pipeline": job.plan.pipeline.name,
        "steps": sorted(_kept(job.plan)),
        "state": state,
        "digest": _digest(job.parts),
        "parts": dict(sorted(job.parts.items())),
        "metrics": metrics_out(metrics or MetricCells()),
    }
    return json.dumps(fields, indent=1).encode()


def read_record(data: bytes) -> JobRecord:
    """The record back; ManifestError for one that is torn, or of another version."""
    try:
        fields = json.loads(data)
        if fields["tidegate"] not in (FORMAT, _WITHOUT_PARTS):
            raise ManifestError(
                f"{RECORD} has format {shorten(fields['tidegate'])}, and this version of Tidegate reads "
                f"{_WITHOUT_PARTS} and {FORMAT}: run it with the version that wrote it"
            )
        if fields["tidegate"] == _WITHOUT_PARTS and "parts" not in fields:
            fields |= {"parts": {}, "digest": _digest({}), "metrics": metrics_out(MetricCells())}
        state: Literal["running", "finished"] = "finished" if fields["state"] == "finished" else "running"
        id, run, pipeline = fields["job"], fields["run"], fields["pipeline"]
        steps = frozenset(fields["steps"])
        parts, metrics = dict(fields["parts"]), metrics_in(fields["metrics"])
        whole = fields["digest"] == _digest(parts)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ManifestError(f"{RECORD} is damaged: {error}") from None
    if not whole or not all(isinstance(name, str) for name in (id, run, pipeline, *steps)):
        raise ManifestError(f"{RECORD} is damaged: {shorten(fields)}")
    return JobRecord(id, run, pipeline, steps, state, parts, metrics)


def same_pipeline(known: JobRecord, plan: Plan) -> bool:
    """Whether a plan is that of the pipeline on record, perhaps changed: it has at least one of the steps that keep
    something, by name and kind."""
    return not known.steps or not known.steps.isdisjoint(_kept(plan))


def _digest(parts: Mapping[str, str]) -> str:
    return sha256(json.dumps(sorted(parts.items())).encode()).hexdigest()


def _kept(plan: Plan) -> set[str]:
    return {f"{facts.name} ({facts.kind})" for facts in step_facts(plan) if has_checkpointed_state(facts)}


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """What has changed, for people; "" if nothing has."""
    return ", ".join(_differences(before, now))


def _differences(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    if before.get(_PYTHON) != now.get(_PYTHON):  # it compiles every function differently
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
