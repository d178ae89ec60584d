"""Matching saved state to a pipeline: which task restores which part, and what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate as tg
from tests.support.streaming.coordinator_harness import (
    CoordinatorHarness,
    actions_of_type,
    count_words_to_text,
    make_job,
    messages_sent,
)
from tidegate.runners.checkpoint.manifest import Manifest, ManifestError
from tidegate.runners.checkpoint.manifest_json import loads
from tidegate.runners.checkpoint.matching import ResumeError, check_names, check_steps, reads
from tidegate.runners.checkpoint.parts import SplitProgress
from tidegate.runners.checkpoint.step_state import step_facts
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.checkpoint.task_ids import TaskId
from tidegate.runners.plan import Plan
from tidegate.runners.streaming.checkpoint.epoch_fencing import claim_epoch, open_job, superseded
from tidegate.runners.streaming.checkpoint.job_record import record
from tidegate.runners.streaming.checkpoint.recovery import Resume, resumed
from tidegate.runners.streaming.coordinator.phases import _summary
from tidegate.runners.streaming.model.job_spec import Job
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.runners.streaming.protocol.coordinator_io import Delete, Store, Stored
from tidegate.runners.streaming.protocol.worker_messages import AbortOutput
from tidegate.sdk.connectors.sinks import Sink
from tidegate.sdk.data.keys import key_group
from tidegate.sdk.errors import RunError
from tidegate.sdk.metrics import MetricCells, MetricKey
from tidegate.sdk.portable.model import Write


class Count(tg.DoFn):
    """Stateful, with a value cell."""

    SEEN = tg.ValueStateSpec("seen")

    def process(self, element: tuple[str, int], seen: Any = tg.DoFn.StateParam(SEEN)) -> list[Any]:
        return [element]


class CountOther(tg.DoFn):
    SEEN = tg.BagStateSpec("seen")

    def process(self, element: tuple[str, int], seen: Any = tg.DoFn.StateParam(SEEN)) -> list[Any]:
        return [element]


def stateful(fn: tg.DoFn, label: str = "count", extra_steps: bool = False) -> Callable[[tg.Pipeline], Any]:
    def write(p: tg.Pipeline) -> None:
        words = p | "words" >> tg.Create([("a", 1)])
        if extra_steps:
            words = words | "changed" >> tg.Map(lambda pair: pair) | "shuffled" >> tg.Reshuffle()
        words | label >> tg.ParDo(fn)

    return write


def manifest_of(job: Job, *, ended: bool = False, prepared: str = "") -> Manifest:
    """The first checkpoint of a job."""
    harness = CoordinatorHarness(job)
    harness.ready()
    harness.wait(job.settings.checkpoints.interval)
    (store,) = actions_of_type(harness.acknowledge(1, ended=ended, prepared=prepared), Store)
    return loads(store.data)


def test_each_task_restores_the_state_of_the_task_with_its_index() -> None:
    job = make_job(stateful(Count()))
    resume = resumed(job, manifest_of(job), "checkpoint 1")
    for task, parts in resume.restore.items():
        assert [(part.task, part.parallelism) for part in parts] == [(task, 2)]
    assert len(resume.restore) == 4


def test_state_is_found_by_label_where_stages_have_changed() -> None:
    saved = manifest_of(make_job(stateful(Count())))
    job = make_job(stateful(Count(), extra_steps=True))
    resume = resumed(job, saved, "checkpoint 1")
    counting = next(step for step in job.plan.steps if step.label == "count")
    before = next(step for step in saved.steps if step.label == "count")
    assert counting.stage != before.stage
    (part,) = resume.restore[TaskId(counting.stage, 1)]
    assert part.task == TaskId(counting.stage, 1)
    assert part.handle.files[0][0] == f"chk-000001/{before.stage}.1.state"


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from([9, 16, 128]), st.text(max_size=5))
def test_the_owner_of_a_key_reads_the_state_of_its_previous_owner(
    old_tasks: int, new_tasks: int, groups: int, key: str
) -> None:
    group = key_group(key, groups)
    assert reads(group * new_tasks // groups, new_tasks, group * old_tasks // groups, old_tasks, groups)


@given(st.integers(1, 9), st.integers(1, 9))
def test_the_state_of_every_task_is_read_and_every_task_reads_some(old_tasks: int, new_tasks: int) -> None:
    pairs = {
        (new, old) for new in range(new_tasks) for old in range(old_tasks) if reads(new, new_tasks, old, old_tasks, 128)
    }
    assert {new for new, _ in pairs} == set(range(new_tasks))
    assert {old for _, old in pairs} == set(range(old_tasks))
    assert old_tasks != new_tasks or pairs == {(n, n) for n in range(new_tasks)}


def test_a_job_resumes_with_another_number_of_workers() -> None:
    saved = manifest_of(make_job(stateful(Count()), workers=2))
    job = make_job(stateful(Count()), workers=3)
    counting = next(step for step in job.plan.steps if step.label == "count")
    restore = resumed(job, saved, "checkpoint 1").restore
    assert [part.task.index for part in restore[TaskId(counting.stage, 1)]] == [0, 1]


def test_a_changed_type_of_state_is_refused_and_both_types_are_named() -> None:
    saved = manifest_of(make_job(stateful(Count())))
    with pytest.raises(ResumeError, match=r"'count'.*seen: value.*now.*seen: bag"):
        resumed(make_job(stateful(CountOther())), saved, "checkpoint 1")


class Word(NamedTuple):
    word: str
    n: int


def best(limit: int, of: str = "MAX(n)") -> Callable[[tg.Pipeline], Any]:
    def write(p: tg.Pipeline) -> None:
        words = p | "words" >> tg.Create([Word("a", 1)])
        ranks = "SELECT *, ROW_NUMBER() OVER (PARTITION BY word ORDER BY n) AS k FROM words"
        found = {"words": words} | "best" >> tg.Sql(f"SELECT word, n FROM ({ranks}) WHERE k <= {limit}")
        most = {"words": words} | "most" >> tg.Sql(f"SELECT word, {of} AS most FROM words GROUP BY word")
        (found, most) | tg.Flatten() | tg.Map(print)

    return write


def ranked_and_averaged(limit: int, of: str) -> Callable[[tg.Pipeline], Any]:
    """Steps whose combiners had the same names before their state said what they combine."""

    def write(p: tg.Pipeline) -> None:
        words = p | "words" >> tg.Create([Word("a", 1)])
        found = words | "best" >> tg.TopN(limit, by="n", per="word")
        average = {"words": words} | "average" >> tg.Sql(f"SELECT word, AVG({of}) AS n FROM words GROUP BY word")
        (found, average) | tg.Flatten() | tg.Map(print)

    return write


def changed(query: str) -> Callable[[tg.Pipeline], Any]:
    """A query over words and kinds, all of whose steps have names of their own."""

    def write(p: tg.Pipeline) -> None:
        words = p | "words" >> tg.Create([Word("a", 1)])
        others = p | "others" >> tg.Create([Word("a", 1)])
        match query.split():
            case ["group", *keys]:
                found: Any = words | "step" >> tg.GroupBy(*keys).agg(most=tg.fn.max("n"))
            case ["near", key]:
                found = words | "step" >> tg.Join.on(others, key, suffix="_2", within=60)
            case ["first", per, limit]:
                found = words | "step" >> tg.TopN(int(limit), by=tg.col("n"), per=per)
            case ["where", most]:
                found = (
                    words
                    | "where" >> tg.Filter(tg.col("n") < int(most))
                    | "step" >> tg.GroupBy("word").agg(most=tg.fn.max("n"))
                )
        found | "shown" >> tg.Map(print)

    return write


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("group word", "group word", None),
        ("group word", "where 3", None),
        ("group word", "group n", r"'step.*keys word string by.*now.*keys n bigint by"),
        ("near word", "near n", r"'step' .*keys word = word string; left.*now.*keys n = n bigint; left"),
        ("first word 2", "first n 2", r"'step.*keys word string by.*now.*keys n bigint by"),
        ("first word 2", "first word 3", r"'step.*limit 2.*now.*limit 3"),
    ],
)
def test_state_of_a_step_of_expressions_is_restored_by_one_that_keeps_the_same(
    before: str, after: str, words: str | None
) -> None:
    saved = saved_by(make_job(changed(before)).plan)
    if words is None:
        check_steps(make_job(changed(after)).plan, saved.steps, "checkpoint 1", allow_dropped=False)
        return
    with pytest.raises(ResumeError, match=words):
        check_steps(make_job(changed(after)).plan, saved.steps, "checkpoint 1", allow_dropped=False)
    older = tuple(replace(each, state=re.sub(r"; keys .*?( by [a-z_]+)?$", r"\1", each.state)) for each in saved.steps)
    assert older != saved.steps
    if "limit" not in words:
        check_steps(make_job(changed(after)).plan, older, "checkpoint 1", allow_dropped=False)


class Wider(NamedTuple):
    extra: str
    word: str
    n: int


GROUPED = "SELECT word, MAX(n) AS m FROM words GROUP BY word"
JOINED = "SELECT a.word, b.n FROM words a JOIN words b ON a.word = b.word"


@pytest.mark.parametrize(
    ("before", "after", "element", "message"),
    [
        (GROUPED, GROUPED, Wider("x", "a", 1), None),
        (JOINED, JOINED, Wider("x", "a", 1), None),
        (GROUPED, "SELECT m + 1 AS k FROM (SELECT word, MAX(n) AS m FROM words WHERE n > 2 GROUP BY word)", None, None),
        (GROUPED, f"{GROUPED} HAVING MAX(n) > 5", None, None),
        ("SELECT word FROM words", GROUPED, None, None),
        (GROUPED, "SELECT word FROM words", None, "'Sql/GroupBy word/Combine'.*--allow_dropped_state"),
        (GROUPED, "SELECT MAX(n) AS m FROM words GROUP BY n", None, "'Sql/GroupBy word/Combine'.*--allow_dropped"),
        (
            JOINED,
            JOINED.replace("b.n", "b.n, a.n AS own"),
            None,
            "'Sql/Join b/Group'.*left word string;.*now.*left word string, n bigint",
        ),
    ],
)
def test_state_of_a_changed_query_is_restored_or_refused_by_name(
    before: str, after: str, element: Any, message: str | None
) -> None:
    def job(query: str, element: Any = None) -> Plan:
        def write(p: tg.Pipeline) -> None:
            words = p | "words" >> tg.Create([Word("a", 1) if element is None else element])
            {"words": words} | tg.Sql(query) | "shown" >> tg.Map(print)

        return make_job(write).plan

    saved = saved_by(job(before))
    if message is None:
        check_steps(job(after, element), saved.steps, "checkpoint 1", allow_dropped=False)
    else:
        with pytest.raises(ResumeError, match=message):
            check_steps(job(after, element), saved.steps, "checkpoint 1", allow_dropped=False)


class Timed(NamedTuple):
    word: str
    at: tg.Timestamp


TUMBLE = "TUMBLE(TABLE words, DESCRIPTOR(at), INTERVAL '10' MINUTES)"


@pytest.mark.parametrize(
    ("after", "message"),
    [
        (TUMBLE.replace("10", "20"), None),
        ("HOP(TABLE words, DESCRIPTOR(at), INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)", None),
        (
            TUMBLE.replace("TUMBLE(TABLE words", "SESSION(TABLE words PARTITION BY word"),
            "by live_sessions: give the step",
        ),
    ],
)
def test_state_of_other_windows_is_restored_but_not_of_sessions(after: str, message: str | None) -> None:
    def job(windows: str) -> Plan:
        def write(p: tg.Pipeline) -> None:
            words = {"words": p | "words" >> tg.Create([Timed("a", tg.Timestamp(1))])}
            counts = f"SELECT word, COUNT(*) AS n FROM TABLE({windows}) GROUP BY word, window_start, window_end"
            words | tg.Sql(counts) | "shown" >> tg.Map(print)

        return make_job(write).plan

    if message is None:
        check_steps(job(after), saved_by(job(TUMBLE)).steps, "checkpoint 1", allow_dropped=False)
    else:
        with pytest.raises(ResumeError, match=message):
            check_steps(job(after), saved_by(job(TUMBLE)).steps, "checkpoint 1", allow_dropped=False)


def saved_by(plan: Plan) -> Manifest:
    return replace(manifest_of(make_job(stateful(Count()))), steps=step_facts(plan))


def test_state_of_a_query_that_computes_something_else_is_refused() -> None:
    saved = saved_by(make_job(best(2)).plan)
    check_steps(make_job(best(2)).plan, saved.steps, "checkpoint 1", allow_dropped=False)
    with pytest.raises(ResumeError, match=r"FirstEntriesFn\(n bigint.*; limit 2;.*now.*; limit 5;"):
        check_steps(make_job(best(5)).plan, saved.steps, "checkpoint 1", allow_dropped=False)
    with pytest.raises(ResumeError, match=r"MaxFn\(max\(n bigint\)\).*now.*SumFn\(sum\(n bigint\)\)"):
        check_steps(make_job(best(2, "SUM(n)")).plan, saved.steps, "checkpoint 1", allow_dropped=False)


def test_state_that_was_saved_without_what_a_query_computes_fits_queries_of_its_kind() -> None:
    saved = saved_by(make_job(ranked_and_averaged(2, "n")).plan)
    bare = tuple(replace(each, state=re.sub(r"Fn\(.*\); keys .* by", "Fn by", each.state)) for each in saved.steps)
    assert sum("of FirstFn by" in each.state or "of AggregateFn by" in each.state for each in bare) >= 2
    check_steps(make_job(ranked_and_averaged(5, "n + 1")).plan, bare, "checkpoint 1", allow_dropped=False)
    exchanged = tuple(replace(each, state=each.state.replace("FirstFn", "AggregateFn")) for each in bare)
    with pytest.raises(ResumeError, match="of AggregateFn by"):
        check_steps(make_job(ranked_and_averaged(2, "n")).plan, exchanged, "checkpoint 1", allow_dropped=False)


def test_state_that_no_step_claims_is_refused_unless_it_may_be_dropped() -> None:
    saved = manifest_of(make_job(stateful(Count())))
    with pytest.raises(ResumeError, match=r"'count'.*--allow_dropped_state"):
        resumed(make_job(stateful(Count(), label="tally")), saved, "checkpoint 1")
    allowed = make_job(stateful(Count(), label="tally"), allow_dropped_state=True)
    tally = next(step for step in allowed.plan.steps if step.label == "tally")
    assert TaskId(tally.stage, 0) not in resumed(allowed, saved, "checkpoint 1").restore


def test_the_number_of_key_groups_is_fixed_by_the_first_checkpoint() -> None:
    saved = manifest_of(make_job(stateful(Count())))
    with pytest.raises(ResumeError, match="--max_parallelism 128"):
        resumed(make_job(stateful(Count()), max_parallelism=64), saved, "checkpoint 1")


def test_a_pipeline_without_the_sink_of_pending_output_is_refused() -> None:
    saved = manifest_of(make_job(count_words_to_text()), prepared="x")

    def without(p: tg.Pipeline) -> None:
        words = p | "words" >> tg.Create(["a"])
        words | "pairs" >> tg.Map(lambda word: (word, 1)) | "sum" >> tg.CombinePerKey(sum)

    with pytest.raises(ResumeError, match="output of 'write/Write' that may not be committed"):
        resumed(make_job(without, allow_dropped_state=True), saved, "checkpoint 1")


def test_a_step_that_writes_elsewhere_is_refused_while_its_output_is_pending() -> None:
    saved = manifest_of(make_job(count_words_to_text("before")), prepared="x")
    elsewhere = make_job(count_words_to_text("after"))
    with pytest.raises(ResumeError) as caught:
        resumed(elsewhere, saved, "checkpoint 1")
    assert str(caught.value) == (
        "checkpoint 1 holds output of 'write/Write' that may not be committed yet. It was written for the sink 'text "
        "before-SSSSS-of-NNNNN', and the step has the sink 'text after-SSSSS-of-NNNNN' now, which does not find it. "
        "Nothing is lost: resume the job with the former sink, stop it, and resume it with the new one then"
    )
    assert resumed(make_job(count_words_to_text("before")), saved, "checkpoint 1").commits
    older = replace(saved, commits=tuple(replace(commit, sink="") for commit in saved.commits))
    assert resumed(elsewhere, older, "checkpoint 1").commits
    nothing = replace(saved, commits=tuple(replace(commit, committables=()) for commit in saved.commits))
    assert resumed(elsewhere, nothing, "checkpoint 1").commits


def test_what_is_resumed_is_told_in_numbers() -> None:
    def told(*ids: str) -> str:
        return _summary(Resume("checkpoint 1", progress=(SplitProgress("words", (), tuple((id, 0) for id in ids)),)))

    assert told("a") == ": 0 tasks restore 0 bytes of state, 1 split is resumed"
    assert told("a", "b") == ": 0 tasks restore 0 bytes of state, 2 splits are resumed"


def looping(label: str = "loop", reads: str = "more") -> Callable[[tg.Pipeline], Any]:
    def write(p: tg.Pipeline) -> None:
        more = p | reads >> tg.Create([1])
        p | "numbers" >> tg.Create([1]) | label >> tg.Iterate(lambda n: (n, more) | tg.Flatten(), rounds=2)

    return write


def test_what_a_loop_has_gathered_is_state_under_its_label() -> None:
    saved = manifest_of(make_job(looping()))
    assert resumed(make_job(looping()), saved, "checkpoint 1").restore
    with pytest.raises(ResumeError, match=r"claims: 'loop' .stateful iterate, a loop over 'numbers', which reads"):
        resumed(make_job(looping(label="other")), saved, "checkpoint 1")
    with pytest.raises(ResumeError, match=r"which reads 'more', and the step is now .* which reads 'most': give"):
        resumed(make_job(looping(reads="most")), saved, "checkpoint 1")


def test_a_loop_with_a_numbered_label_is_refused() -> None:
    def write(p: tg.Pipeline) -> None:
        numbers = p | "numbers" >> tg.Create([1])
        for n in (1, 2):
            numbers | tg.Iterate(lambda numbers: numbers | tg.Map(abs), rounds=n)

    with pytest.raises(ResumeError, match=r"'Iterate.*' at .*test_recovery.*name it"):
        check_names(make_job(write).plan)


def test_progress_that_does_not_fit_its_splits_is_an_error() -> None:
    job = make_job(stateful(Count()))
    saved = manifest_of(job)
    damaged = replace(saved, tasks=tuple(replace(t, splits=tuple(t.splits)) for t in saved.tasks), lists={"words": ()})
    part = replace(damaged.tasks[0], splits=(SplitProgress("words", ("nowhere",)),))
    with pytest.raises(ManifestError, match="'nowhere'"):
        resumed(job, replace(damaged, tasks=(part, *damaged.tasks[1:])), "checkpoint 1")


def test_a_stateful_step_with_a_numbered_label_is_refused() -> None:
    def write(p: tg.Pipeline) -> None:
        pairs = p | "words" >> tg.Create([("a", 1)])
        pairs | tg.ParDo(Count())
        pairs | tg.ParDo(Count())

    with pytest.raises(ResumeError, match=r"'.*' at .*test_recovery.*name it"):
        check_names(make_job(write).plan)
    check_names(make_job(stateful(Count())).plan)


# -- opening a directory


def with_checkpoints_in(job: Job, folder: Path) -> Job:
    return replace(job, settings=replace(job.settings, checkpoints=CheckpointSettings(directory=str(folder))))


def checkpointed(job: Job, folder: Path) -> LocalStorage:
    """A directory with one checkpoint of a job."""
    opened = open_job(with_checkpoints_in(job, folder), folder / "unused", "test")
    storage = LocalStorage(folder)
    harness = CoordinatorHarness(opened.job, opened.resume, opened.epoch)
    harness.ready()
    harness.wait(10)
    (store,) = actions_of_type(harness.acknowledge(1, prepared="x"), Store)
    made = loads(store.data)
    data = b"0123456789"
    from zlib import crc32

    from tidegate.runners.checkpoint.manifest_json import dumps

    def with_actual_sizes(part: Any) -> Any:
        files = tuple((name, len(data), crc32(data)) for name, _, _ in part.handle.files)
        return replace(part, handle=replace(part.handle, files=files))

    made = replace(made, tasks=tuple(map(with_actual_sizes, made.tasks)))
    for name, _, _ in made.files():
        storage.write(name, data)
    storage.write(made.name, dumps(made))
    harness.handle(Stored(1))
    return storage


def test_a_run_resumes_from_the_last_checkpoint_in_its_directory(tmp_path: Path) -> None:
    job = make_job(stateful(Count()))
    checkpointed(replace(job, run="first"), tmp_path)
    opened = open_job(with_checkpoints_in(replace(job, run="second"), tmp_path), tmp_path / "unused", "test")
    assert opened.resume is not None
    assert opened.resume.origin == f"checkpoint 1 in {tmp_path}"
    assert opened.resume.next == 3  # the previous process may still write checkpoint 2
    assert (opened.job.run, opened.epoch, opened.fenced()) == ("first", 2, "")


def test_the_previous_run_on_a_directory_is_fenced_off(tmp_path: Path) -> None:
    job = with_checkpoints_in(make_job(stateful(Count())), tmp_path)
    first = open_job(job, tmp_path / "unused", "test")
    assert first.fenced() == ""
    second = open_job(job, tmp_path / "unused", "test")
    assert "another run has taken over" in first.fenced()
    assert second.fenced() == ""


def test_a_process_that_was_presumed_dead_cannot_remove_the_prepared_output_of_its_successor(tmp_path: Path) -> None:
    job = with_checkpoints_in(make_job(count_words_to_text(str(tmp_path / "out"))), tmp_path / "checkpoints")
    first, second = (open_job(job, tmp_path / "unused", "test").job for _ in range(2))
    assert second.run == first.run
    node = next(step for step in job.plan.steps if step.is_sink).tail
    assert isinstance(node, Write)
    sink: Sink[str] = node.sink.load()
    stale: list[Any] = []
    pieces: list[Any] = []
    for process, prepared in ((first, stale), (second, pieces)):
        attempt = sink.attempt(process.output_run, 0)
        attempt.write([process.output_run])
        prepared += attempt.prepare()
    for run in first.output_runs(1):  # it was about to, when the other took over
        sink.abort(run)
    sink.commit(second.output_run, pieces, 1)
    (path,) = tmp_path.glob("out-*")
    assert path.read_text() == f"{second.output_run}\n"
    assert first.output_run in second.output_runs(1)


def test_output_that_a_process_wrote_late_is_removed_by_the_process_after_its_successor(tmp_path: Path) -> None:
    job = make_job(count_words_to_text(str(tmp_path / "out")))
    saved = replace(manifest_of(job), epoch=2)
    node = next(step for step in job.plan.steps if step.is_sink).tail
    assert isinstance(node, Write)
    sink: Sink[str] = node.sink.load()
    attempt = sink.attempt(job.output_run, 0)  # by the first process, after the second had removed its output
    attempt.write(["late"])
    attempt.prepare()
    third = replace(job, epoch=3)
    (abort,) = messages_sent(
        CoordinatorHarness(third, resumed(third, saved, "checkpoint 1"), epoch=3).ready(), AbortOutput
    )
    for run in abort.runs:
        sink.abort(run)
    assert list(tmp_path.iterdir()) == []


def test_epochs_are_claimed_in_ascending_order(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    assert [claim_epoch(storage, "me") for _ in range(3)] == [1, 2, 3]
    assert superseded(storage, 3, "x") == ""
    assert "its epoch is 3, this one's 2" in superseded(storage, 2, "x")


def finished(folder: Path) -> Job:
    """A job that has finished in a directory and is submitted again."""
    job = replace(make_job(stateful(Count())), parts={"step 'count'": "1", "option --output": "2"})
    counted = MetricCells({MetricKey("count", "mine", "seen"): 7})
    checkpointed(job, folder).write("job.json", record(job, "finished", counted))
    return replace(job, id="second", run="second")


def contents(folder: Path) -> dict[str, bytes]:
    return {name: LocalStorage(folder).read(name) for name in LocalStorage(folder).list("")}


def test_a_finished_job_is_left_alone_and_its_metrics_are_returned(tmp_path: Path) -> None:
    job = finished(tmp_path)
    before = contents(tmp_path)
    opened = open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    assert opened.over is not None
    assert opened.over.counters == {MetricKey("count", "mine", "seen"): 7}
    assert opened.notes == (f"the job in {tmp_path} has finished: nothing is left to do; --begin_anew runs it again",)
    assert contents(tmp_path) == before


def test_a_finished_job_of_a_version_that_did_not_record_its_fingerprint_is_refused(tmp_path: Path) -> None:
    job = finished(tmp_path)
    fields = json.loads(record(replace(job, id="first"), "finished")) | {"tidegate": 1}
    for later in ("parts", "digest", "metrics"):
        del fields[later]
    LocalStorage(tmp_path).write("job.json", json.dumps(fields).encode())
    message = "has finished, and the version of Tidegate that ran it did not record its fingerprint.*--begin_anew"
    with pytest.raises(ResumeError, match=message):
        open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")


def test_a_finished_job_has_the_output_runs_of_all_its_processes(tmp_path: Path) -> None:
    job = finished(tmp_path)
    epochs = [claim_epoch(LocalStorage(tmp_path), "one of them") for _ in range(3)]
    opened = open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    assert opened.job.output_runs(epochs[-1])[-3:] == tuple(f"run.{epoch}" for epoch in epochs)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"step 'count'": "9", "option --output": "2"}, "step 'count' has changed"),
        ({"step 'count'": "1", "option --output": "9"}, "option --output has changed"),
        ({"step 'count'": "1", "option --output": "2", "step 'b'": "3"}, "step 'b' is new"),
        ({"option --output": "2"}, "step 'count' is gone"),
        ({"step 'count'": "9", "the version of Python": "3.99"}, "the version of Python is 3.99, and was None"),
    ],
)
def test_a_job_that_differs_from_the_finished_one_is_refused_and_the_difference_is_named(
    tmp_path: Path, parts: dict[str, str], message: str
) -> None:
    job = replace(finished(tmp_path), parts=parts)
    before = contents(tmp_path)
    with pytest.raises(ResumeError, match=f"this one is not the same: {message}. Give another"):
        open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    assert contents(tmp_path) == before


def test_a_finished_job_runs_again_on_request_and_so_does_its_next_process_after_a_crash(tmp_path: Path) -> None:
    job = finished(tmp_path)
    job = replace(job, parts={}, settings=replace(job.settings, begin_anew=True))
    for epoch in (2, 3):
        opened = open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
        assert (opened.resume, opened.over, opened.job.run, opened.epoch) == (None, None, "second", epoch)


def test_a_job_whose_process_died_after_recording_the_end_resumes_in_order_to_end_again(tmp_path: Path) -> None:
    job = make_job(stateful(Count()))
    checkpointed(job, tmp_path).write("job.json", record(job, "finished"))
    opened = open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    assert opened.resume is not None
    assert opened.notes == ()


def test_the_directory_of_another_pipeline_is_refused_and_its_owner_is_not_fenced_off(tmp_path: Path) -> None:
    owner = open_job(with_checkpoints_in(make_job(stateful(Count())), tmp_path), tmp_path / "unused", "test")

    def other(p: tg.Pipeline) -> None:
        numbers = p | "numbers" >> tg.Create([("a", 1)])
        numbers | "another" >> tg.ParDo(Count())

    with pytest.raises(ResumeError, match="another pipeline"):
        open_job(with_checkpoints_in(make_job(other), tmp_path), tmp_path / "unused", "test")
    assert owner.fenced() == ""


def test_incompatible_state_is_refused_before_the_owner_is_fenced_off(tmp_path: Path) -> None:
    job = make_job(stateful(Count()))
    checkpointed(job, tmp_path)
    owner = open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    with pytest.raises(ResumeError, match="seen: bag"):
        open_job(with_checkpoints_in(make_job(stateful(CountOther())), tmp_path), tmp_path / "unused", "test")
    assert owner.fenced() == ""


def test_files_of_incomplete_checkpoints_are_deleted_once_the_next_is_complete(tmp_path: Path) -> None:
    job = make_job(stateful(Count()))
    storage = checkpointed(job, tmp_path)
    storage.write("chk-000002/0.0.1.state", b"left")
    (tmp_path / "chk-000002" / ".0.1.1.state.77.beef.part").write_bytes(b"half")
    opened = open_job(with_checkpoints_in(job, tmp_path), tmp_path / "unused", "test")
    assert storage.list("chk-000002") == ["chk-000002/0.0.1.state"]
    harness = CoordinatorHarness(opened.job, opened.resume, opened.epoch, opened.first, opened.leftovers)
    harness.abort_output(harness.ready())
    harness.wait(10)
    harness.acknowledge(3)
    (delete,) = actions_of_type(harness.handle(Stored(3)), Delete)
    assert {"chk-000002/.0.1.1.state.77.beef.part", "chk-000002/0.0.1.state"} < set(delete.names)


def test_a_job_without_a_checkpoint_directory_stores_checkpoints_in_its_run_directory(tmp_path: Path) -> None:
    opened = open_job(make_job(stateful(Count())), tmp_path, "test")
    assert opened.storage is not None
    opened.storage.write("chk-000001/a", b"")
    assert (tmp_path / "checkpoints" / "chk-000001" / "a").exists()


def test_a_bounded_job_takes_no_checkpoints_and_reports_unused_flags(tmp_path: Path) -> None:
    opened = open_job(
        with_checkpoints_in(make_job(stateful(Count()), batch=True), tmp_path), tmp_path / "unused", "test"
    )
    assert opened.storage is None
    assert "--checkpoint_dir is not used" in opened.notes[0]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("with_directory", [False, True], ids=["without a directory", "into a new directory"])
def test_a_job_starts_from_a_copy_of_a_savepoint(tmp_path: Path, with_directory: bool) -> None:
    saved = tmp_path / "saved"
    job = make_job(stateful(Count()))
    checkpointed(replace(job, run="first"), saved)
    later = replace(job, run="second", settings=replace(job.settings, from_savepoint=str(saved)))
    if with_directory:
        settings = replace(later.settings, checkpoints=CheckpointSettings(directory=str(tmp_path / "own")))
        later = replace(later, settings=settings)
    opened = open_job(later, tmp_path / "run", "test")
    assert opened.resume is not None
    assert opened.resume.origin == f"savepoint {saved}"
    assert opened.job.run == "second"
    assert opened.storage is not None
    for parts in opened.resume.restore.values():
        for part in parts:
            assert opened.storage.read(part.handle.files[0][0]) == b"0123456789"
    if with_directory:  # after a crash it resumes from its own checkpoints, and reports that the flag is not used
        again = open_job(later, tmp_path / "run", "test")
        assert again.resume is not None
        assert again.resume.origin.startswith("checkpoint 1 in")
        assert "--from_savepoint is not used" in again.notes[0]


def test_a_missing_savepoint_is_refused(tmp_path: Path) -> None:
    job = make_job(stateful(Count()), from_savepoint=str(tmp_path / "nothing"))
    with pytest.raises(ResumeError, match="there is no savepoint in"):
        open_job(job, tmp_path / "run", "test")


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_path_that_cannot_be_a_directory_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=rf"checkpoints can't be kept in .*{name}: Not a directory"):
        open_job(with_checkpoints_in(make_job(stateful(Count())), tmp_path / name), tmp_path / "unused", "test")
