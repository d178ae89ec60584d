"""The summary at the end of a run, which is printed only to a terminal, and the profile of the steps."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tidegate as tg
from tidegate.cli import progress
from tidegate.cli.progress import StepProfiler
from tidegate.sdk.time import Timestamp

ROOT = Path(__file__).parents[2]

SCRIPT = """\
import tidegate as tg

with tg.Pipeline(name="numbers") as p:
    good, bad = p | "make" >> tg.Create(["1", "2", "x", "4"]) | "parse" >> tg.Map(int).with_exception_handling()
    good | "text" >> tg.Map(str) | tg.io.WriteToText("out/good")
    bad | "bad" >> tg.Map(lambda letter: str(letter[0])) | tg.Map(print)
"""


def on_a_terminal(folder: Path, *args: str) -> str:
    """Run the command with a terminal as stderr, and return its text."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal:
        process = subprocess.Popen(
            [sys.executable, "-c", "from tidegate.cli import main; main()", *args],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=terminal,
        )
    text = b""
    while True:
        try:
            part = os.read(ours, 1024)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        text += part
    os.close(ours)
    process.communicate(timeout=60)
    assert process.returncode == 0, text
    return text.decode().replace("\r", "")


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_a_run_on_a_terminal_ends_with_a_summary(tmp_path: Path, runner: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    text = on_a_terminal(tmp_path, "run", "script.py", "--runner", runner)
    lines = text[text.index("numbers: done in") :].splitlines()
    assert re.fullmatch(r"numbers: done in \d+\.\d s, 4 elements in", lines[0])
    assert lines[1:] == [
        "  wrote 3 elements to out/good-00000-of-00001 (WriteToText/Write)",
        "  dead letters: 1 (parse)",
    ]


def test_no_summary_is_printed_with_progress_off_or_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    assert on_a_terminal(tmp_path, "run", "script.py", "--progress", "off") == ""
    done = subprocess.run(
        [sys.executable, "-c", "from tidegate.cli import main; main()", "run", "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""


def stderr_lines(folder: Path, *flags: str) -> list[str]:
    """Run the command with a pipe as stderr and `--progress on`, and return its text."""
    done = subprocess.run(
        [sys.executable, "-m", "tidegate", "run", "script.py", "--progress", "on", *flags],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_requested_progress_ends_with_the_summary_even_without_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    progress_line, *lines = stderr_lines(tmp_path)
    assert progress_line.startswith("numbers: 0:0")
    assert lines[0].startswith("numbers: done in ")
    assert lines[1:] == [
        "  wrote 3 elements to out/good-00000-of-00001 (WriteToText/Write)",
        "  dead letters: 1 (parse)",
    ]


WINDOWS = """\
import tidegate as tg

with tg.Pipeline(name="days") as p:
    stamped = p | tg.Create([1, 2, 86_401, 172_801]) | tg.Map(lambda n: tg.TimestampedValue(n, n))
    days = stamped | tg.WindowInto(tg.FixedWindows(86_400)) | "text" >> tg.Map(str)
    days | "by day" >> tg.io.WriteToText("out/{window:%d}/day")
    days | "long" >> tg.io.WriteToText("out/" + "x" * 200, num_shards=2)
"""


@pytest.mark.parametrize(
    "runner", ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]
)
def test_the_summary_names_existing_files(tmp_path: Path, runner: str) -> None:
    (tmp_path / "script.py").write_text(WINDOWS)
    lines = stderr_lines(tmp_path, "--runner", runner)
    by_day, long = lines[-2:]
    found = re.fullmatch(r"  wrote 4 elements to (\d+) files, such as (\S+) \(by day/.*\)", by_day)
    assert found is not None, lines
    assert int(found[1]) == len(list(tmp_path.glob("out/*/day-*"))) >= 3
    assert (tmp_path / found[2]).is_file()
    shortened = re.fullmatch(
        r"  wrote 4 elements to 2 files, such as (out/x+)…(x+-00001-of-00002) \(long/Write\)", long
    )
    assert shortened is not None, lines
    assert len(long) < 200


def test_the_summary_of_a_stream_counts_all_files_that_checkpoints_have_committed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import tidegate as tg\n\n"
        "with tg.Pipeline(name='live') as p:\n"
        "    ticks = p | tg.PeriodicImpulse(0.01) | tg.WindowInto(tg.FixedWindows(0.25)) | 'text' >> tg.Map(str)\n"
        "    ticks | tg.io.WriteToText('out/{window:%H%M%S.%f}')\n"
    )
    flags = ["--checkpoint_dir", "checkpoints", "--checkpoint_interval", "200ms", "--run_for", "2s"]
    lines = stderr_lines(tmp_path, "--runner", "streaming", *flags)
    found = re.fullmatch(r"  wrote \d+ elements to (\d+) files, such as (\S+) \(.*\)", lines[-1])
    assert found is not None, lines
    files = [path for path in tmp_path.glob("out/*") if path.is_file()]
    assert int(found[1]) == len(files) > 1
    assert (tmp_path / found[2]) in files


def sample_profile(number: int) -> int:
    """Take a sample while a step is working, as the thread of a display does."""
    import threading

    from tidegate.cli import progress

    thread = threading.Thread(target=vars(progress)["sampler"])
    thread.start()
    thread.join()
    return number


def test_the_slow_step_is_found_inside_a_fused_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = StepProfiler()
    monkeypatch.setattr(progress, "sampler", profiler.sample, raising=False)  # found by import: functions are pickled
    p = tg.Pipeline()
    _ = (
        p
        | tg.Create(range(20))
        | "quick" >> tg.Map(lambda x: x + 1)
        | "slow" >> tg.Map(sample_profile)
        | "last" >> tg.Map(str)
    )
    p.run().wait_until_finish()
    assert profiler.slowest() == "'slow' (100%)"


def test_the_start_of_spark_is_reported(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import tidegate as tg\nfrom tidegate.runners.spark import SparkRunner\n"
        "p = tg.Pipeline()\np | tg.Create([1]) | tg.Map(print)\n"
        "runner = SparkRunner()\nrunner.tell = lambda words: print('told:', words)\n"
        "runner.run(p.sealed(), p.options)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAVA_HOME": str(tmp_path)},  # no Java, so that it ends here
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == "told: starting Spark…\n", done.stderr


@pytest.mark.parametrize("runner", [["--runner=direct"], ["--runner=streaming", "--workers=2"]])
def test_the_metrics_of_a_live_run_have_its_watermark(runner: list[str]) -> None:
    p = tg.Pipeline(options=runner)  # one of two workers has nothing to read
    ticks = p | tg.PeriodicImpulse(0.02) | tg.WindowInto(tg.FixedWindows(1))
    _ = ticks | "ones" >> tg.Map(lambda tick: ("k", 1)) | "count" >> tg.CombinePerKey(sum) | tg.Map(str)
    result = p.run()
    try:
        found: list[Timestamp] = []
        while len(set(found)) < 3 and not result.state.ended:
            result.wait_until_finish(0.05)
            found += [metric.value for metric in result.metrics().query("watermark", step="ones")]
        (lag,) = (metric.value for metric in result.metrics().query("watermark_lag", step="ones"))
    finally:
        result.cancel()
    assert tg.Timestamp.of(1_700_000_000) < found[0] < found[-1] < tg.MAX_TIMESTAMP
    assert -60 < lag < 3600
