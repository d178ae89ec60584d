"""Sinks remove the output that no checkpoint completed; failures to remove it are reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.coordinator_harness import (
    CoordinatorHarness,
    actions_of_type,
    count_words_to_text,
    make_job,
    messages_sent,
)
from tests.support.streaming.isolated_worker import IsolatedWorker
from tidegate.runners.engine.errors.transport import packed, unpacked
from tidegate.runners.plan import Step
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.protocol.coordinator_io import CancelJob, Finish, Report, WorkerGone
from tidegate.runners.streaming.protocol.worker_messages import (
    AbortOutput,
    Commit,
    Committed,
    Deploy,
    Heartbeat,
    OutputAborted,
    TaskFailed,
)
from tidegate.runners.streaming.worker.worker import Worker
from tidegate.sdk.connectors.sinks import Attempt, Committable, Sink
from tidegate.sdk.errors import RunError
from tidegate.sdk.user_code.user_fn import Payload, UserFn


@dataclass(frozen=True)
class Stubborn(Sink[Any]):
    """Fails to remove the output of one run, and records in a folder the runs whose output it was asked to remove."""

    folder: str

    def attempt(self, run: str, task: int) -> Attempt[Any]:
        raise AssertionError("nothing is written")

    def commit(self, run: str, committables: Sequence[Committable], checkpoint: int | None = None) -> None:
        raise AssertionError("nothing is committed")

    def abort(self, run: str) -> None:
        (Path(self.folder) / run).touch()
        if run == "first":
            raise PermissionError("not yours")


def stubborn(folder: Path) -> Job:
    def write(p: tg.Pipeline) -> None:
        _ = p | tg.Create([1]) | "keep" >> tg.Write(Stubborn(str(folder)))

    return make_job(write)


def with_a_sink_that_is_not_installed(job: Job) -> Job:
    """The job with a sink whose module the worker can't import."""
    missing = UserFn("Missing", None, Payload(b"cno.such.module\nSink\n.", ""))

    def with_missing_sink(step: Step) -> Step:
        return replace(step, nodes=(*step.nodes[:-1], replace(step.tail, sink=missing))) if step.is_sink else step

    return replace(job, plan=replace(job.plan, steps=tuple(map(with_missing_sink, job.plan.steps))))


def sink_step(job: Job) -> int:
    (step,) = [step.id for step in job.plan.steps if step.is_sink]
    return step


def test_output_of_one_run_is_removed_though_that_of_another_cannot_be_which_is_reported(tmp_path: Path) -> None:
    services, job = IsolatedWorker(tmp_path), stubborn(tmp_path)
    Worker(job, 0, 1, services).on_message(AbortOutput(sink_step(job), ("first", "second")))  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    (answer,) = services.reported
    assert isinstance(answer, OutputAborted)
    assert answer.error is not None
    assert "PermissionError: not yours" in str(unpacked(answer.error))
    assert "in step 'keep'" in str(unpacked(answer.error))
    assert "not yours" in answer.text


@pytest.mark.parametrize("operation", ["abort", "commit", "write"])
def test_a_sink_that_cannot_be_loaded_fails_its_step_and_not_the_worker(tmp_path: Path, operation: str) -> None:
    services, job = IsolatedWorker(tmp_path), with_a_sink_that_is_not_installed(stubborn(tmp_path))
    worker = Worker(job, 0, 1, services)  # type: ignore[arg-type]
    step = sink_step(job)
    (stage,) = [each.stage for each in job.plan.steps if each.id == step]
    match operation:
        case "abort":
            worker.on_message(AbortOutput(step, ("first",)))
        case "commit":
            worker.on_message(Commit(step, "first", (), 1))
        case _:
            worker.on_message(Deploy(0, tuple(task for task in job.topology.tasks(0) if task.stage == stage)[:1]))
    worker.work()  # commits are reported by the loop
    (answer,) = [each for each in services.reported if not isinstance(each, Heartbeat)]
    assert isinstance(answer, OutputAborted | Committed | TaskFailed)
    assert answer.error is not None
    message = str(unpacked(answer.error))
    assert "ModuleNotFoundError: No module named 'no'" in message
    assert "in step 'keep'" in message


WHY = packed(RunError("not yours"))


def restarted_job() -> tuple[CoordinatorHarness, AbortOutput]:
    """A job whose second attempt has asked for the removal of the first one's output."""
    harness = CoordinatorHarness(make_job(count_words_to_text()))
    harness.ready()
    harness.handle(WorkerGone(0, 1, "killed"))
    harness.wait(1)
    harness.attempt = 2
    harness.new_actions()
    (abort,) = messages_sent(harness.ready(), AbortOutput)
    return harness, abort


def test_a_job_restarts_when_uncommitted_output_could_not_be_removed() -> None:
    harness, abort = restarted_job()
    actions = harness.from_worker(0, OutputAborted(abort.step, WHY, "not yours"))
    assert messages_sent(actions, Deploy) == []
    (report,) = actions_of_type(actions, Report)
    assert report.state == "restarting"
    assert report.text.startswith("the uncommitted output of 'write/Write' could not be removed: not yours; ")


def test_a_cancelled_job_reports_output_that_could_not_be_removed_and_ends() -> None:
    harness = CoordinatorHarness(make_job(count_words_to_text()))
    harness.ready()
    harness.handle(CancelJob())
    for worker in range(2):
        harness.handle(WorkerGone(worker, 1, "its process ended with exit code 0"))
    harness.attempt = 2
    (abort,) = messages_sent(harness.ready(), AbortOutput)
    actions = harness.from_worker(0, OutputAborted(abort.step, WHY, "not yours"))
    assert [report.text for report in actions_of_type(actions, Report)] == [
        "the uncommitted output of 'write/Write' could not be removed: not yours"
    ]
    assert actions_of_type(actions, Finish) == [Finish("cancelled")]
