"""The record of a job in its checkpoint directory: whose the directory is, and whether the job is over."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final, Literal

from tidegate.runners.plan import Plan
from tidegate.runners.streaming.facts import keeps_something, step_facts
from tidegate.runners.streaming.job import Job
from tidegate.runners.streaming.manifest import ManifestError
from tidegate.sdk.errors import shorten

RECORD: Final = "job.json"
RECORDED: Final = 0
"""What `Stored` says of the record that all is done, which is no checkpoint."""
FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Record:
    """`run` is what sinks know the job by; `pipeline` is its name, `steps` those of it that keep something."""

    job: str
    run: str
    pipeline: str
    steps: frozenset[str]
    state: Literal["running", "finished"]


def record(job: Job, state: Literal["running", "finished"]) -> bytes:
    """The record of a job, as JSON."""
    fields = {
        "tidegate": FORMAT,
        "job": job.id,
        "run": job.run,
        "pipeline": job.plan.pipeline.name,
        "steps": sorted(_kept(job.plan)),
        "state": state,
    }
    return json.dumps(fields, indent=1).encode()


def read_record(data: bytes) -> Record:
    """The record back; ManifestError for one that is torn, or of another version."""
    try:
        fields = json.loads(data)
        if fields["tidegate"] != FORMAT:
            raise ManifestError(
                f"{RECORD} has format {shorten(fields['tidegate'])}, and this version of Tidegate reads {FORMAT}: "
                "run it with the version that wrote it"
            )
        state: Literal["running", "finished"] = "finished" if fields["state"] == "finished" else "running"
        id, run, pipeline = fields["job"], fields["run"], fields["pipeline"]
        steps = frozenset(fields["steps"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise ManifestError(f"{RECORD} is damaged: {error}") from None
    if not all(isinstance(name, str) for name in (id, run, pipeline, *steps)):
        raise ManifestError(f"{RECORD} is damaged: {shorten(fields)}")
    return Record(id, run, pipeline, steps, state)


def same_pipeline(known: Record, plan: Plan) -> bool:
    """Whether a plan is of the pipeline on record, perhaps with changes: of the steps that keep something, by name
    and kind, it has at least one."""
    return not known.steps or not known.steps.isdisjoint(_kept(plan))


def _kept(plan: Plan) -> set[str]:
    return {f"{facts.name} ({facts.kind})" for facts in step_facts(plan) if keeps_something(facts)}
