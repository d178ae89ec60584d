"""Runs as their authors see them: real processes, from the script to its output."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.counting_job import (
    ReportLog,
    elements_out,
    follow_until,
    job_options,
    start_job,
    windowed_counts,
)
from tidegate.runners.streaming.client.job_client import JobClient
from tidegate.runners.streaming.model.exit_status import signal_name
from tidegate.runners.streaming.network.framing import Link, pair
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.sdk.errors import BuildError, PicklingError, RunError, UnsupportedError, UserCodeError
from tidegate.sdk.runner import PipelineState
from tidegate.testing import TestPipeline


def script(tmp_path: Path, text: str, *args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run a script as its author would."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return subprocess.run(
        [sys.executable, str(path), *args],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        check=False,
        **kwargs,
    )


HEAD = "import sys\nimport tidegate as tg\n"


def test_a_bounded_run_has_ended_when_run_returns_and_has_metrics() -> None:
    p = tg.Pipeline(runner="streaming")
    _ = (
        p
        | tg.Create(["a b", "b"])
        | "split" >> tg.FlatMap(str.split)
        | tg.Map(lambda w: (w, 1))
        | tg.CombinePerKey(sum)
    )
    result = p.run()
    assert result.state is PipelineState.DONE
    assert result.wait_until_finish(0) is PipelineState.DONE
    assert result.cancel() is PipelineState.DONE
    assert result.metrics().counter("elements_out", step="split") == 3


def test_functions_print_to_the_output_of_the_script(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        HEAD + "print('before')\n"
        "with tg.Pipeline(runner='streaming') as p:\n"
        "    p | tg.Create(range(3)) | tg.Map(lambda n: print('number', n) or print('noted', n, file=sys.stderr))\n"
        "print('after')\n",
    )
    first, *middle, last = done.stdout.splitlines()
    assert (first, sorted(middle), last) == ("before", ["number 0", "number 1", "number 2"], "after")
    assert sorted(done.stderr.splitlines()) == ["noted 0", "noted 1", "noted 2"]


def test_classes_of_the_script_and_of_modules_beside_it_cross_exchanges(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("class Word:\n    def __init__(self, text):\n        self.text = text\n")
    done = script(
        tmp_path,
        HEAD
        + """
from dataclasses import dataclass
import beside

@dataclass(frozen=True)
class Key:
    letter: str

def main(argument):
    return argument

with tg.Pipeline(runner="streaming", options=["--runner=streaming", "--workers=3"]) as p:
    words = p | tg.Create([beside.Word(w) for w in ("apple", "avocado", "beet")]) | tg.Reshuffle()
    keyed = words | tg.Map(lambda w: (Key(w.text[0]), main(w))) | tg.GroupByKey()
    keyed | tg.Map(lambda kv: print(type(kv[0]).__name__, kv[0].letter, sorted(w.text for w in kv[1])))
""",
    )
    assert done.stderr == ""
    assert sorted(done.stdout.splitlines()) == ["Key a ['apple', 'avocado']", "Key b ['beet']"]


def test_a_run_without_options_imports_neither_pydantic_nor_numpy(tmp_path: Path) -> None:
    done = script(
        tmp_path,
        HEAD + "with tg.Pipeline(runner='streaming') as p:\n"
        "    p | tg.Create([1]) | tg.Map(lambda n: print(n, 'pydantic' in sys.modules, 'numpy' in sys.modules))\n"
        "print('pydantic' in sys.modules)\n",
    )
    assert done.stdout.splitlines() == ["1 False False", "False"]


def test_the_authors_error_is_raised_with_step_and_element_and_no_frames_of_the_engine() -> None:
    p = tg.Pipeline(runner="streaming")
    _ = p | tg.Create([1, 2, 0]) | tg.Reshuffle() | "divide" >> tg.Map(lambda n: 1 // n)
    with pytest.raises(UserCodeError, match="ZeroDivisionError") as caught:
        p.run()
    assert (caught.value.step, caught.value.element) == ("divide", "0")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    engine = Path(tg.__file__).parent / "runners"
    assert not [frame for frame in caught.traceback if Path(frame.path).is_relative_to(engine)]


def test_an_element_that_cannot_be_pickled_is_an_error_that_names_the_step() -> None:
    import threading

    p = tg.Pipeline(runner="streaming")
    _ = p | tg.Create(range(9)) | "made" >> tg.Map(lambda n: (n, threading.Lock())) | tg.Reshuffle() | tg.Map(print)
    with pytest.raises((PicklingError, RunError), match=r"lock[\s\S]*made"):
        p.run()


def test_a_value_that_cannot_be_pickled_is_refused_by_step_before_anything_runs() -> None:
    import threading

    p = TestPipeline("streaming")  # it forks no job
    _ = p | "locks" >> tg.Create([threading.Lock()]) | tg.Map(print)
    with pytest.raises(PicklingError, match="locks"):
        p.run()


def test_a_stateful_step_without_a_name_is_refused_where_checkpoints_are_taken(tmp_path: Path) -> None:
    p = tg.Pipeline(runner="streaming", options=job_options(f"--checkpoint_dir={tmp_path}"))
    for _ in range(2):
        _ = counted_without_names(p)
    with pytest.raises(BuildError, match="name it"):
        p.run()


def counted_without_names(p: tg.Pipeline) -> Any:
    from tests.support.streaming.counting_job import CountingSource

    numbers = p | tg.Read(CountingSource()) | tg.WindowInto(tg.FixedWindows(100)) | tg.Map(lambda n: (n, 1))
    return numbers | tg.GroupByKey()


def test_an_unbounded_run_reports_metrics_while_it_runs_and_can_be_cancelled() -> None:
    p = tg.Pipeline(runner="streaming", options=job_options())
    windowed_counts(p)
    result: Any = p.run()
    assert result.state is PipelineState.RUNNING
    while not result.metrics().counter("elements_out", step="count"):
        assert result.wait_until_finish(0.05) is PipelineState.RUNNING
    assert result.cancel() is PipelineState.CANCELLED
    assert result.wait_until_finish() is PipelineState.CANCELLED
    assert result._job._process.wait() == 0


def test_a_run_takes_a_savepoint_and_continues(tmp_path: Path) -> None:
    p = tg.Pipeline(runner="streaming", options=job_options())
    windowed_counts(p)
    result: Any = p.run()
    result.savepoint(str(tmp_path / "saved"))
    assert list((tmp_path / "saved").glob("chk-*/manifest.json"))
    assert result.state is PipelineState.RUNNING
    with pytest.raises(RunError, match="the savepoint in /proc/no/savepoint failed: "):
        result.savepoint("/proc/no/savepoint")
    result.cancel()
    with pytest.raises(RunError, match="the run ended before it was complete"):
        result.savepoint(str(tmp_path / "another"))


def test_a_run_with_a_duration_ends_by_itself() -> None:
    p = tg.Pipeline(runner="streaming", options=job_options("--run_for=2s"))
    windowed_counts(p)
    result = p.run()
    assert result.wait_until_finish() is PipelineState.DONE
    assert result.metrics().counter("elements_out", step="numbers") > 0


INTERRUPTED = """
import sys
import tidegate as tg
from tests.support.streaming.counting_job import windowed_counts

p = tg.Pipeline(runner="streaming", options=["--runner=streaming", "--workers=2", *sys.argv[1:]])
windowed_counts(p) | tg.Map(lambda kv: print("fired", flush=True))
print(p.run().wait_until_finish())
"""


def test_ctrl_c_stops_a_run_cleanly_and_the_next_run_reports_that_it_resumes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(INTERRUPTED)
    import_paths = os.pathsep.join([*(p for p in sys.path if p), str(Path(__file__).parents[3])])
    stderr = []
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, str(tmp_path / "script.py"), f"--checkpoint_dir={tmp_path / 'checkpoints'}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": import_paths},
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "fired\n"
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all processes of the group
            output, errors = process.communicate()
        assert output.splitlines()[-1] == "PipelineState.CANCELLED"
        assert "Traceback" not in errors
        stderr.append(errors)
    assert "resuming" not in stderr[0]
    assert "resuming from checkpoint" in stderr[1]


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def kill_job(job: Any) -> None:
    os.kill(job._process.pid, signal.SIGKILL)


def kill_worker(job: Any) -> None:
    os.kill(children(job._process.pid)[0], signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
@pytest.mark.parametrize("kill", [kill_job, kill_worker])
def test_a_killed_process_is_replaced_and_the_job_resumes_from_its_last_checkpoint(
    tmp_path: Path, kill: Callable[[Any], None]
) -> None:
    p = tg.Pipeline()
    windowed_counts(p)
    log = ReportLog()
    flags = ["--checkpoint_interval=50ms", "--restart_delay=10ms", f"--checkpoint_dir={tmp_path / 'checkpoints'}"]
    job = start_job(p, *flags, on_report=log)
    directory = job.submitted.directory
    try:
        follow_until(job, lambda: bool(log.checkpoints) and elements_out(job, "count") > 0)
        kill(job)
        follow_until(job, lambda: any("resuming from checkpoint" in text for text in log.texts))
        before = max(log.checkpoints)
        follow_until(job, lambda: max(log.checkpoints) > before)
    finally:
        job.close()
    # The workers of a killed process may still write to its directory.
    assert (job.submitted.directory != directory) == (kill is kill_job)
    assert not Path(job.submitted.directory).exists()


def test_a_savepoint_fails_when_the_process_that_takes_it_dies(tmp_path: Path) -> None:
    p = tg.Pipeline()
    windowed_counts(p)
    log = ReportLog()
    job = start_job(p, "--checkpoint_interval=50ms", f"--checkpoint_dir={tmp_path / 'checkpoints'}", on_report=log)
    try:
        follow_until(job, lambda: bool(log.checkpoints))
        os.kill(job._process.pid, signal.SIGSTOP)
        job.send(coordinator_io.TakeSavepoint(str(tmp_path / "saved")))
        kill_job(job)
        follow_until(job, lambda: any("resuming from checkpoint" in text for text in log.texts))
    finally:
        job.close()
    (report,) = [r for r in log.all if isinstance(r, coordinator_io.CheckpointReport) and r.savepoint]
    assert report.error == "the job's process has died before the savepoint was complete"


def test_a_job_without_checkpoint_directory_fails_when_its_process_is_killed() -> None:
    p = tg.Pipeline()
    windowed_counts(p)
    job = start_job(p)
    try:
        follow_until(job, lambda: elements_out(job, "count") > 0)
        kill_job(job)
        job.wait()
        assert job.state == "failed"
        assert "killed by SIGKILL" in str(job.error)
    finally:
        job.close()
    assert not Path(job.submitted.directory).exists()


def test_the_error_of_a_job_names_the_realtime_signal_that_killed_its_process() -> None:
    p = tg.Pipeline()
    windowed_counts(p)
    job = start_job(p)
    try:
        follow_until(job, lambda: elements_out(job, "count") > 0)
        os.kill(job._process.pid, signal.SIGRTMIN + 1)
        job.wait()
        assert str(job.error) == "the job's process has died (killed by SIGRTMIN+1), and its workers with it"
    finally:
        job.close()


@pytest.mark.parametrize("number", sorted(signal.valid_signals()))
def test_every_signal_has_a_name(number: int) -> None:
    assert re.fullmatch(r"SIG[A-Z]+\d*([+]\d+)?|signal \d+", signal_name(number))


STUB_PROCESS = """
import os, pickle, socket, sys
sys.path[:] = sys.argv[3:]
from tidegate.runners.streaming.protocol import coordinator_io
from tidegate.runners.streaming.process.main import first_message
from tidegate.runners.streaming.network.framing import CONTROL, Link

sock = socket.socket(fileno=int(sys.argv[1]))
client = Link(sock)
first_message(client)
client.post(CONTROL, [pickle.dumps(coordinator_io.Report("running", "first words"))])
client.wait_until_sent()
exec(sys.argv[2])
"""


def start_stub(monkeypatch: pytest.MonkeyPatch, lines: str, hold: int) -> JobClient:
    """Start a job whose process sends a report, runs these lines, and exits when the pipe's other end is closed."""

    def start_process(*_: object) -> tuple[subprocess.Popen[bytes], Link]:
        ours, theirs = pair()
        program = f"{lines}\nos.read({hold}, 1)"
        command = [sys.executable, "-c", STUB_PROCESS, str(theirs.fileno()), program, *sys.path]
        with theirs:
            return subprocess.Popen(command, pass_fds=[theirs.fileno(), hold]), Link(ours)

    monkeypatch.setattr("tidegate.runners.streaming.client.job_client._start_process", start_process)
    p = tg.Pipeline()
    windowed_counts(p)
    return start_job(p)


def test_a_job_ends_with_its_process_and_waiting_for_it_can_time_out_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold, release = os.pipe()
    finish = 'client.post(CONTROL, [pickle.dumps(coordinator_io.Finish("finished"))])\nclient.wait_until_sent()'
    job = start_stub(monkeypatch, finish, hold)
    log = ReportLog()
    job.on_report = log
    while job._finish is None:
        job.link.wait(60)
        job.receive()
    assert job._process.returncode is None
    assert (job.ended, log.all) == (False, [coordinator_io.Report("running", "first words")])
    assert not job.wait(0.01)
    os.close(release)
    assert job.wait()
    assert (job.state, log.all[-1]) == ("finished", coordinator_io.Finish("finished"))
    assert job._process.wait() == 0
    job.close()
    os.close(hold)


def test_a_job_process_that_sends_an_invalid_message_is_killed_and_the_job_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hold, release = os.pipe()
    job = start_stub(monkeypatch, "client.wait_until_sent(); sock.send(b'no frame at all')", hold)
    log = ReportLog()
    job.on_report = log
    job.wait()
    assert log.all == [coordinator_io.Report("running", "first words"), coordinator_io.Finish("failed")]
    assert str(job.error) == (
        "the job's process has died (killed because it sent an invalid message: a frame has the unknown kind 110), "
        "and its workers with it"
    )
    job.close()
    os.close(hold)
    os.close(release)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc")
def test_a_job_without_checkpoint_directory_recovers_from_a_killed_worker() -> None:
    p = tg.Pipeline()
    windowed_counts(p)
    log = ReportLog()
    job = start_job(p, "--checkpoint_interval=50ms", "--restart_delay=10ms", on_report=log)
    try:
        follow_until(job, lambda: bool(log.checkpoints))
        kill_worker(job)
        follow_until(job, lambda: any("killed by SIGKILL" in text and "resuming" in text for text in log.texts))
        last = max(log.checkpoints)
        follow_until(job, lambda: max(log.checkpoints) > last)
    finally:
        job.close()
    assert not Path(job.submitted.directory).exists()


def test_metrics_go_to_a_file_as_json_lines(tmp_path: Path) -> None:
    import json

    p = tg.Pipeline()
    windowed_counts(p)
    path = tmp_path / "metrics.jsonl"
    log = ReportLog()
    flags = [f"--metrics_file={path}", "--metrics_interval=10ms", "--checkpoint_interval=50ms"]
    job = start_job(p, *flags, on_report=log)
    try:
        follow_until(job, lambda: len(log.checkpoints) > 1 and elements_out(job, "count") > 0 and len(job.tasks) == 4)
    finally:
        job.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert {line["job"] for line in lines} == {job.submitted.job.id}
    tasks = [line for line in lines if line["kind"] == "task"]
    assert {line["task"] for line in tasks} == {"0.0", "0.1", "1.0", "1.1"}
    assert sum(line["records_out"] for line in tasks if "count" in line["steps"]) > 0
    assert all(0.99 < line["busy"] + line["idle"] + line["backpressured"] < 1.01 for line in tasks[4:])
    assert all(line["duration"] >= 0 and line["bytes"] > 0 for line in lines if line["kind"] == "checkpoint")
    assert any(line["watermark"] and line["watermark"].startswith("1970-01-01T00:") for line in tasks)


def test_a_backend_without_its_package_is_refused_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "rocksdict", None)
    p = tg.Pipeline(runner="streaming", options=job_options("--state_backend=rocksdb"))
    p | tg.Create([1]) | tg.Map(print)
    with pytest.raises(UnsupportedError, match=r"pip install 'tidegate\[rocksdb\]'"):
        p.run()


UNPICKLABLE_STATE = """
import threading

class Keeps(tg.DoFn):
    LAST = tg.ValueStateSpec("last")

    def process(self, pair, last=tg.DoFn.StateParam(LAST)):
        last.write(threading.Lock())
        yield pair

flags = ["--runner", "streaming", "--mode", "streaming", "--checkpoint_interval", "10ms", "--restart_strategy", "none"]
with tg.Pipeline(options=[*flags, *sys.argv[1:]]) as p:
    p | tg.Create([(n % 9000, n) for n in range(1_000_000)]) | "keep" >> tg.ParDo(Keeps())
"""


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_state_that_cannot_be_pickled_names_its_step(tmp_path: Path, backend: str) -> None:
    done = script(tmp_path, HEAD + UNPICKLABLE_STATE, "--state_backend", backend)
    assert done.returncode == 1
    assert "PicklingError: the state of this step can't be pickled" in done.stderr
    assert "cannot pickle '_thread.lock' object" in done.stderr
    assert "in step 'keep', applied at" in done.stderr
