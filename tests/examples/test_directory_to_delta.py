"""The example that follows a directory into Delta tables is compared with a loop over the same lines."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from tests.support.delta_tables import rows_of
from tests.support.example_scripts import DATA, EXAMPLES, ROOT, load_example
from tests.support.streaming.child_processes import lines_until

directory_to_delta = load_example("directory_to_delta")
LOGS = sorted((DATA / "logs").glob("*.jsonl"))


def requests(logs: list[Path]) -> tuple[list[dict[str, Any]], int]:
    """The requests in some logs, and the number of lines that are no requests."""
    found, broken = [], 0
    for line in (line for path in logs for line in path.read_text().splitlines()):
        try:
            record = json.loads(line)
            at = datetime.fromisoformat(record["at"]).astimezone(UTC)
            if type(record["status"]) is not int or not record["at"].endswith("Z"):
                raise TypeError(line)
            found.append({"day": at.date(), "at": at, "path": record["path"], "status": record["status"]})
        except (ValueError, KeyError, TypeError):
            broken += 1
    return found, broken


def ordered(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: [str(value) for value in row.values()])


@pytest.mark.parametrize(
    "runner", ["direct", "streaming", pytest.param("spark", marks=pytest.mark.xdist_group("spark"))]
)
def test_the_rows_of_the_tables_equal_those_of_a_loop(
    tmp_path: Path, runner: str, request: pytest.FixtureRequest
) -> None:
    if runner == "spark":
        request.getfixturevalue("spark_session")
    options = directory_to_delta.TableOptions(
        input=str(DATA / "logs" / "*.jsonl"), output=str(tmp_path), follow=False, runner=runner
    )
    directory_to_delta.pipeline(options).run().wait_until_finish()
    expected, broken = requests(LOGS)
    assert ordered(rows_of(tmp_path / "requests")) == ordered(expected)
    assert len(rows_of(tmp_path / "broken")) == broken > 0
    minutes = Counter(row["at"].replace(second=0, microsecond=0) for row in expected)
    failed = Counter(row["at"].replace(second=0, microsecond=0) for row in expected if row["status"] >= 500)
    assert ordered(rows_of(tmp_path / "minutes")) == ordered(
        [{"minute": at, "requests": count, "failed": failed[at]} for at, count in minutes.items()]
    )


def test_a_resumed_run_reads_only_new_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    flags = ["--input", f"{tmp_path}/in/*.jsonl", "--output", tmp_path, "--runner", "streaming"]
    flags += ["--checkpoint_dir", tmp_path / "chk", "--checkpoint_interval", "0.2", "--metrics_file", "/dev/stdout"]
    table = tmp_path / "requests"
    for count, path in enumerate(LOGS, start=1):
        shutil.copy2(path, tmp_path / "in")
        expected = requests(LOGS[:count])[0]
        with subprocess.Popen(
            [sys.executable, EXAMPLES / "directory_to_delta.py", *flags],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as run:
            lines_until(run, lambda: DeltaTable.is_deltatable(str(table)) and len(rows_of(table)) >= len(expected))  # noqa: B023
            run.send_signal(signal.SIGTERM)
            run.communicate()
        assert ordered(rows_of(table)) == ordered(expected)
