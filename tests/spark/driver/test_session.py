"""Missing requirements are reported before Spark starts, and Spark's UI describes a run."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import tidegate as tg
from tidegate.cli import app
from tidegate.runners.spark.driver import session
from tidegate.runners.spark.plan.options import SparkOptions
from tidegate.sdk.errors import OptionsError, UnsupportedError

LEAST = "it needs Java 17 or newer"


@pytest.mark.parametrize(
    ("package", "version", "message"),
    [
        ("pyspark", "4.0.1", "PySpark 4.0.1 lacks repartitionById, 4.1 has it: pip install -U 'tidegate[spark]'"),
        ("pyspark", "3.5.7", "PySpark 3.5.7 lacks repartitionById, 4.1 has it: pip install -U 'tidegate[spark]'"),
        ("pandas", "3.0.0", "PySpark does not work with pandas 3.0.0: pip install 'pandas<3'"),
        ("pyspark", "", "pyspark is not installed: pip install 'tidegate[spark]'"),
        ("pyarrow", "", "pyarrow is not installed: pip install 'tidegate[spark]'"),
        ("pandas", "", "pandas is not installed: pip install 'tidegate[spark]'"),
    ],
)
def test_the_error_of_a_missing_or_incompatible_package_says_what_to_install(
    package: str, version: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = session._version
    monkeypatch.setattr(session, "_version", lambda name: version if name == package else installed(name))
    assert message in session.missing(java=False)
    with pytest.raises(UnsupportedError, match="the spark runner can't run here: "):
        session.require_installed(java=False)


def test_the_error_of_a_missing_package_of_streams_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = session._version
    monkeypatch.setattr(session, "_version", lambda name: "" if name == "protobuf" else installed(name))
    session.require_installed(java=False)
    with pytest.raises(UnsupportedError, match=r"protobuf is not installed: pip install 'tidegate\[spark\]'"):
        session.require_installed(java=False, stream=True)


def test_the_extra_has_what_is_required() -> None:
    """Other extras of the tests' environment bring more."""
    extras = metadata.metadata("tidegate").get_all("Requires-Dist") or []
    names = {re.split(r"[\s<>=;\[]", each)[0] for each in extras if re.search(r"extra == .spark.", each)}
    assert names >= {*session._ALWAYS, *session._OF_STREAMS}


def test_the_error_of_missing_packages_for_connect_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = session._version
    monkeypatch.setattr(session, "_version", lambda name: "" if name == "grpcio" else installed(name))
    with pytest.raises(UnsupportedError, match=r"grpcio is not installed: pip install 'tidegate\[connect\]'"):
        session.get_session(SparkOptions(spark_remote="sc://127.0.0.1:1"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"spark_remote": "sc://127.0.0.1:{closed}/;user_id=x"},
            "nothing answers at --spark_remote .*: Connection refused",
        ),
        (
            {"spark_remote": "127.0.0.1:15002"},
            "--spark_remote takes a URL such as sc://host:15002, not '127.0.0.1:15002'",
        ),
        ({"spark_remote": "sc://host:port"}, "takes a URL such as sc://host:15002"),
        ({"spark_master": "spark://127.0.0.1:{closed}"}, "nothing answers at --spark_master .*: Connection refused"),
        ({"spark_master": "spark://host"}, "--spark_master takes a URL such as spark://host:7077"),
        ({"worker_python": "/no/python"}, "--worker_python /no/python: there is no such interpreter"),
    ],
)
def test_addresses_and_interpreters_that_do_not_exist_are_refused_before_spark_starts(
    options: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacks = session.missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    for name in ("grpc_proxy", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setattr(session, "_author_session", lambda: None)
    monkeypatch.setattr(session, "_created", [])
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = str(bound.getsockname()[1])
    with pytest.raises(OptionsError, match=message):
        session.get_session(SparkOptions(**{name: text.replace("{closed}", port) for name, text in options.items()}))


def test_sparks_error_about_a_flag_is_reported_without_a_trace(tmp_path: Path) -> None:
    lacks = session.missing()
    if lacks:
        pytest.skip("; ".join(lacks))
    script = tmp_path / "script.py"
    script.write_text(
        "import tidegate as tg\n\ndef pipeline():\n    p = tg.Pipeline()\n    p | tg.Create([1])\n    return p\n"
    )
    command = [sys.executable, "-m", "tidegate", "run", str(script), "--runner", "spark", "--spark_master", "nonsense"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    note, error = [line for line in done.stderr.splitlines() if line][-2:]
    assert "Master must either be yarn or start with spark, k8s, or local" in note
    assert error.startswith(
        "error: Spark does not start with --spark_master nonsense and its settings: its Java process has ended"
    )


def test_a_package_that_spark_submit_provides_has_a_version_although_it_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "brought.py").write_text("__version__ = '4.2.0'")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("brought")
    assert (session._version("brought"), session._version("not_there_at_all")) == ("4.2.0", "")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ('openjdk version "11.0.2" 2019-01-15', f"{LEAST}, and .*/java is version 11: set JAVA_HOME to a newer"),
        ('java version "1.8.0_291"', f"{LEAST}, and .*/java is version 1: "),
        (None, f"{LEAST}, and finds no java: install a JDK, or set JAVA_HOME"),
        ('openjdk version "21" 2023-09-19', None),
    ],
    ids=["11", "8", "none", "21"],
)
def test_doctor_and_run_report_a_java_that_is_missing_or_too_old(
    answer: str | None, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    if answer is not None:
        java = tmp_path / "bin" / "java"
        java.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
        java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    doctor = CliRunner().invoke(app, ["doctor"]).output
    if message is None:
        assert LEAST not in doctor
        return
    (line,) = [line for line in doctor.splitlines() if line.strip().startswith("spark ") and "ready" in line]
    for text in (line, "; ".join(session.missing())):
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(text)


def test_a_server_that_is_too_old_is_refused_by_its_version() -> None:
    class Old:
        version = "4.0.1"

    with pytest.raises(UnsupportedError, match=r"can't run on Spark 4.0.1, .* it needs Spark 4.1 or newer"):
        session.require_supported(Old())


def test_sparks_ui_names_the_authors_steps(flags: list[str], spark_session: Any) -> None:
    p = tg.Pipeline(options=flags, name="named run")
    total = tg.AsSingleton(p | tg.Create([1, 2]) | "doubled" >> tg.Map(lambda x: 2 * x) | tg.CombineGlobally(sum))
    _ = p | "others" >> tg.Create([3]) | "shares" >> tg.Map(lambda x, total: x / total, total)
    spark_session.sparkContext.setJobDescription("the author's own")
    p.run()
    assert spark_session.sparkContext.getLocalProperty("spark.job.description") == "the author's own"
    spark_session.sparkContext.setLocalProperty("spark.job.description", None)
    executions = spark_session._jsparkSession.sharedState().statusStore().executionsList()
    first, second = (executions.apply(executions.size() - back) for back in (2, 1))
    assert first.description().startswith("named run: Create, doubled, CombineGlobally(sum)")
    assert second.description() == "named run: others, shares"
    assert "Create + doubled + CombineGlobally(sum)(" in first.physicalPlanDescription()
    assert "others + shares(" in second.physicalPlanDescription()


SOCKETS = """
import os, stat, sys
import tidegate as tg
from tidegate.runners.spark.driver import session
from tidegate.runners.spark.plan.options import SparkOptions

spark = session.get_session(SparkOptions(spark_master="local[1]"))
folder = spark.conf.get("spark.python.unix.domain.socket.dir")
with tg.Pipeline(options=["--runner", "spark", "--spark_master", "local[1]"]) as p:
    p | tg.Create([1, 2]) | tg.Map(lambda n: n + 1) | tg.CombineGlobally(sum) | tg.io.WriteToText(sys.argv[1])
print(oct(stat.S_IMODE(os.stat(folder).st_mode)), len(os.listdir(folder)) > 1)
with tg.Pipeline(options=["--runner", "spark", "--spark_master", "local[2]"]) as p:  # another session in the same JVM
    p | tg.Create([1, 2]) | tg.CombineGlobally(max) | tg.io.WriteToText(sys.argv[1] + "-again")
session.stop()
print(os.path.exists(folder))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no Unix sockets that Java opens")
def test_workers_of_our_session_use_sockets_that_only_this_user_can_open(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SOCKETS, str(tmp_path / "out")]
    completed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert completed.stdout.splitlines() == ["0o700 True", "False"]
    assert "".join(path.read_text() for path in sorted(tmp_path.glob("out*"))) == "5\n2\n"
    assert completed.stderr == ""


def test_a_temporary_folder_whose_path_is_too_long_for_sockets_leaves_the_settings_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    settings = {"spark.ui.enabled": "false"}
    assert session.with_local_workers(settings) == settings
    assert list(long.iterdir()) == []
