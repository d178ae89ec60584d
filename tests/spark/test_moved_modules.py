"""Pipelines that were compiled before modules moved run on Spark: see `streaming/fixtures/make_flat_modules.py`."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ARCHIVE = Path(__file__).parents[1] / "streaming" / "fixtures" / "flat-modules.tar.xz"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="compiled code is of one version of Python")
def test_a_pipeline_compiled_before_modules_moved_runs(flags: list[str], tmp_path: Path) -> None:
    with tarfile.open(ARCHIVE) as archive:
        archive.extract("jobs/sinks.json", tmp_path, filter="data")
    # Its files have relative names, and the workers of the shared session have another working directory.
    settings = ["--spark_conf", "spark.driver.memory=512m"]
    call = "import sys; from tidegate.cli import main; sys.exit(main())"
    subprocess.run([sys.executable, "-c", call, "run", "jobs/sinks.json", *flags, *settings], cwd=tmp_path, check=True)
    for sink in ("one", "to-", "own/"):
        written = [line for path in tmp_path.glob(f"out/{sink}*") for line in path.read_text().splitlines()]
        assert sorted(written) == ["a", "b", "c"]
