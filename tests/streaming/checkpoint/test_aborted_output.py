"""Output that no checkpoint completed is removed by its sink; where that fails it is said, and not taken for done."""

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
    """Can't remove what one of its runs has written; what it was asked to remove is in a folder."""

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
    """The job as it comes to a worker that lacks what its sink is made of."""
    gone = UserFn("Missing", None, Payload(b"cno.such.module\nSink\n.", ""))

    def lacking(step: Step) -> Step:
        return replace(step, nodes=(*step.nodes[:-1], replace(step.tail, sink=gone))) if step.is_sink else step

    return replace(job, plan=replace(job.plan, steps=tuple(map(lacking, job.plan.steps))))


def the_sink(job: Job) -> int:
    (step,) = [step.id for step in job.plan.steps if step.is_sink]
    return step


def test_what_one_run_wrote_is_removed_though_that_of_another_can_not_be_and_that_is_told(tmp_path: Path) -> None:
    world, job = IsolatedWorker(tmp_path), stubborn(tmp_path)
    Worker(job, 0, 1, world).on_message(AbortOutput(the_sink(job), ("first", "second")))  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]
    (answer,) = world.reported
    assert isinstance(answer, OutputAborted)
    assert answer.error is not None
    assert "PermissionError: not yours" in str(unpacked(answer.error))
    assert "in step 'keep'" in str(unpacked(answer.error))
    assert "not yours" in answer.text


@pytest.mark.parametrize("asked", ["abort", "commit", "write"])
def test_a_sink_that_can_not_be_loaded_is_an_error_of_its_step_and_not_the_end_of_the_worker(
    tmp_path: Path, asked: str
) -> None:
    world, job = IsolatedWorker(tmp_path), with_a_sink_that_is_not_installed(stubborn(tmp_path))
    worker = Worker(job, 0, 1, world)  # type: ignore[arg-type]
    step = the_sink(job)
    (stage,) = [each.stage for each in job.plan.steps if each.id == step]
    match asked:
        case "abort":
            worker.on_message(AbortOutput(step, ("first",)))
        case "commit":
            worker.on_message(Commit(step, "first", (), 1))
        case _:
            worker.on_message(Deploy(0, tuple(task for task in job.topology.tasks(0) if task.stage == stage)[:1]))
    worker.work()  # commits are reported by the loop
    (answer,) = [each for each in world.reported if not isinstance(each, Heartbeat)]
    assert isinstance(answer, OutputAborted | Committed | TaskFailed)
    assert answer.error is not None
    said = str(unpacked(answer.error))
    assert "ModuleNotFoundError: No module named 'no'" in said
    assert "in step 'keep'" in said


WHY = packed(RunError("not yours"))


def aborting() -> tuple[CoordinatorHarness, AbortOutput]:
    """A job whose second attempt removes what the first has written."""
    harness = CoordinatorHarness(make_job(count_words_to_text()))
    harness.ready()
    harness.handle(WorkerGone(0, 1, "killed"))
    harness.wait(1)
    harness.attempt = 2
    harness.new_actions()
    (abort,) = messages_sent(harness.ready(), AbortOutput)
    return harness, abort


def test_a_job_does_not_go_on_over_output_that_could_not_be_removed() -> None:
    harness, abort = aborting()
    actions = harness.from_worker(0, OutputAborted(abort.step, WHY, "not yours"))
    assert messages_sent(actions, Deploy) == []
    (report,) = actions_of_type(actions, Report)
    assert report.state == "restarting"
    assert report.text.startswith("the uncommitted output of 'write/Write' could not be removed: not yours; ")


def test_a_cancelled_job_says_what_could_not_be_removed_and_ends() -> None:
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
