"""`tidegate package`, and its archive on a standalone cluster whose interpreter has no packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.support.spark.daemons import Daemon, spark_home
from tests.support.spark.small_jvms import jvm_options
from tidegate.cli import app
from tidegate.runners.spark.driver.session import missing

ROOT = Path(__file__).resolve().parents[3]
SMALLEST = ["click", "cloudpickle", "pandas", "pyarrow", "pydantic", "rich", "zstandard"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("pex")
    if sys.prefix == sys.base_prefix:
        pytest.skip("only a virtual environment can be packed")
    path = tmp_path_factory.mktemp("package") / "environment.tar.gz"
    done = CliRunner().invoke(app, ["package", *SMALLEST, "-o", str(path)])
    assert done.exit_code == 0, done.output
    assert f"use it with --spark_archive {path}" in done.output
    return path


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, spark_classes: None) -> Iterator[str]:
    """The address of a cluster with one worker."""
    lacks = missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    home = tmp_path_factory.mktemp("cluster")
    environment = {"SPARK_DAEMON_MEMORY": "128m", "SPARK_DAEMON_JAVA_OPTS": jvm_options(), "PYTHONPATH": ""}
    start = spark_home() / "bin" / "spark-class"
    host = ["--host", "127.0.0.1", "--webui-port", "0"]
    daemons = [
        Daemon(home, start, "org.apache.spark.deploy.master.Master", *host, "--port", "0", environment=environment)
    ]
    try:
        url = daemons[0].wait_for("Starting Spark master at (spark://.+)")[1].strip()
        daemons[0].wait_for("New state: ALIVE")
        worker = ["-c", "1", "-m", "1g", "-d", str(home / "work"), url]
        daemons.append(
            Daemon(home, start, "org.apache.spark.deploy.worker.Worker", *host, *worker, environment=environment)
        )
        daemons[1].wait_for("Successfully registered with master")
        yield url
    finally:
        for daemon in daemons:
            daemon.stop()


def run(script: str, folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(script)
    conf = [
        "spark.executor.memory=512m", f"spark.executor.extraJavaOptions={jvm_options()}", "spark.ui.enabled=false",
        "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1",
    ]  # fmt: skip
    settings = [part for pair in conf for part in ("--spark_conf", pair)]
    return subprocess.run(
        [sys.executable, "script.py", "--runner", "spark", "--spark_partitions", "2", *settings, *flags],
        capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


SCRIPT = """
import sys
import tidegate as tg

def seen(x):
    import numpy, pydantic, sys
    return sys.executable, pydantic.__file__

with tg.Pipeline(options=sys.argv[1:]) as p:
    where = p | tg.Create(range(4)) | tg.Map(seen) | tg.MapTuple(lambda python, package: f"{python} {package}")
    where | tg.io.WriteToText(r"OUT/out")
"""


def test_the_archive_has_the_requested_packages_and_their_dependencies_but_no_spark(archive: Path) -> None:
    with tarfile.open(archive) as packed:
        names = packed.getnames()
    packages = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    assert "bin/python" in names
    for name in ("numpy/__init__.py", "pydantic_core/__init__.py", "cloudpickle/__init__.py"):
        assert f"{packages}/{name}" in names
    assert not [name for name in names if name.startswith(f"{packages}/pyspark") or name.endswith(".pyc")]


def test_the_archive_runs_on_workers_without_any_package(archive: Path, master: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    script = SCRIPT.replace("OUT", str(tmp_path / "out"))
    done = run(script, tmp_path, "--spark_master", master, "--spark_archive", str(archive))
    assert done.returncode == 0, done.stderr
    lines = {line for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()}
    for line in lines:
        python, package = line.split()
        assert python.endswith("environment/bin/python")
        assert "/environment/lib/" in package


def test_packages_of_the_archive_are_used_by_the_interpreter_given_by_a_flag(
    archive: Path, master: str, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" "$@"\n')
    interpreter.chmod(0o755)
    script = SCRIPT.replace("OUT", str(tmp_path / "out"))
    flags = ["--spark_master", master, "--spark_archive", str(archive), "--worker_python", str(interpreter)]
    done = run(script, tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    lines = {line for path in (tmp_path / "out").iterdir() for line in path.read_text().splitlines()}
    assert lines
    assert all("/environment/lib/" in line.split()[1] for line in lines)


def test_workers_without_a_package_that_pyspark_needs_are_refused_with_its_name(master: str, tmp_path: Path) -> None:
    interpreter = tmp_path / "python"
    interpreter.write_text(f'#!/bin/sh\nexec "{os.path.realpath(sys.executable)}" -S "$@"\n')
    interpreter.chmod(0o755)
    script = SCRIPT.replace("OUT", str(tmp_path))
    done = run(script, tmp_path, "--spark_master", master, "--worker_python", str(interpreter))
    assert done.returncode != 0
    assert re.search(r"the workers' Python \(.*\) lacks p", done.stderr.splitlines()[-1])
    assert "--spark_archive" in done.stderr.splitlines()[-1]


def test_a_path_that_workers_do_not_share_is_refused_by_step_and_path(
    archive: Path, master: str, tmp_path: Path
) -> None:
    script = SCRIPT.replace("OUT", "relative")
    done = run(script, tmp_path, "--spark_master", master, "--worker_python", sys.executable)
    assert done.returncode != 0
    assert "the folder relative is not there for the worker on" in done.stderr
    assert "in step 'WriteToText/Write'" in done.stderr
    assert not (tmp_path / "relative").exists()


def test_a_missing_archive_is_refused_before_spark_starts(tmp_path: Path) -> None:
    done = run(SCRIPT, tmp_path, "--spark_master", "spark://127.0.0.1:1", "--spark_archive", "nowhere.tar.gz")
    assert done.returncode != 0
    assert "--spark_archive nowhere.tar.gz is not a file; tidegate package makes one" in done.stderr


def test_an_environment_that_is_not_virtual_is_refused_for_packing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    done = CliRunner().invoke(app, ["package", "-o", str(tmp_path / "x.tar.gz")])
    assert done.exit_code == 2
    assert "is not in a virtual environment: create one (python -m venv)" in done.output
    assert not list(tmp_path.iterdir())
