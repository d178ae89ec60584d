"""The start of a local master's Python processes, which import PySpark from where it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark.daemons import spark_home
from tidegate.runners.spark.worker import site


def test_archives_are_left_out_if_their_packages_are_installed_beside_them(tmp_path: Path) -> None:
    for package in ("pyspark/python/lib", "py4j", "other"):
        (tmp_path / "site" / package).mkdir(parents=True)
    inside = tmp_path / "site/pyspark/python/lib"
    archives = [str(inside / "pyspark.zip"), str(inside / "py4j-0.10-src.zip")]
    others = [
        str(inside / "absent.zip"),
        str(tmp_path / "spark/python/lib/pyspark.zip"),
        str(tmp_path / "site/other.zip"),
    ]
    installed = str(tmp_path / "site")
    assert site.without_archives([*archives, *others, installed]) == [*others, installed]
    assert site.without_archives([*archives, *others]) == [*archives, *others]


def test_a_lost_connection_is_no_traceback_but_other_errors_are() -> None:
    printed: list[str] = []
    print_exc = site.unless_connection_is_lost(lambda: printed.append("printed"))
    for error in (BrokenPipeError(), ConnectionResetError(), ValueError()):
        try:
            raise error
        except Exception:
            print_exc()
    assert printed == ["printed"]


def test_the_hook_for_other_exceptions_leaves_out_a_lost_connection() -> None:
    reported: list[BaseException] = []
    handle = site.for_other_exceptions(lambda kind, error, trace: reported.append(error))
    errors = [BrokenPipeError(), ConnectionResetError(), ValueError()]
    for error in errors:
        handle(type(error), error, None)
    assert reported == errors[2:]


def test_a_process_imports_the_installed_pyspark_and_runs_the_hidden_customization(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    own, other, hidden = (tmp_path / name for name in ("own", "other", "hidden"))
    for folder in (own, other):  # as a driver and its workers have copies of their own
        folder.mkdir()
        (folder / "sitecustomize.py").write_bytes(Path(site.__file__).read_bytes())
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys; sys.hidden = True")
    archives = sorted((spark_home() / "python" / "lib").glob("*.zip"))
    path = os.pathsep.join(map(str, [*archives, own, other, hidden]))
    program = "import pyspark, py4j, sys; print(pyspark.__file__, py4j.__file__, sys.hidden, sep='\\n')"
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found, py4j, ran = done.stdout.splitlines()
    assert Path(found).parent == spark_home()
    assert ".zip" not in py4j
    assert ran == "True"
    assert done.stderr == ""
