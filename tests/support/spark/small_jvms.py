"""JVMs that live for seconds: they compile little, and share an archive of the classes that Spark loads.

Half of the time that such a JVM needs is spent on loading and verifying classes. An archive of them, which one JVM
writes and the others map into their memory, saves that (class data sharing). A JVM that finds no archive, or one that
isn't its own, does without.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final
from zlib import crc32

from tests.support.spark.daemons import spark_home

_SMALL: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData"
"""Thorough compilation and parallel garbage collection don't pay off within minutes."""
_QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""A JVM with another class path would print that it can't use the archive."""
_ARCHIVE: Final = "TIDEGATE_TEST_SPARK_CLASSES"
"""The variable with the archive's path, for the child processes too."""

_USUAL: Final = """
import tidegate as tg

with tg.Pipeline(options=["--runner", "spark", "--spark_master", "local[2]", "--spark_partitions", "2"]) as p:
    numbers = p | tg.Create(range(100)) | tg.Reshuffle()
    shares = numbers | tg.Map(lambda n, total: (n % 5, n / total), tg.AsSingleton(numbers | tg.CombineGlobally(sum)))
    groups = shares | tg.GroupByKey() | tg.MapTuple(lambda key, parts: (key, sum(parts)))
    _ = groups | "frame" >> tg.ToDataFrame("key int, share double")
p.result.dataframe("frame").orderBy("key").show()
"""
"""A script that loads the classes which most runs load."""


def jvm_options() -> str:
    """The options of a JVM that lives for seconds or minutes, as the settings of Spark have them."""
    archive = os.environ.get(_ARCHIVE)
    return f'{_SMALL} {_QUIET} "-XX:SharedArchiveFile={archive}"' if archive else _SMALL


def environment(folder: Path | None) -> dict[str, str]:
    """Variables that make the drivers of child processes small. The archive is in `folder`; None: there is none."""
    without = f"{_SMALL} -Dspark.ui.enabled=false"
    java = shutil.which(os.path.join(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java")
    if folder is None or java is None:
        return {"SPARK_SUBMIT_OPTS": without}
    of = [os.path.realpath(java), os.stat(java).st_mtime_ns, str(spark_home()), spark_home().stat().st_mtime_ns, _USUAL]
    archive = folder / f"{crc32(repr(of).encode()):08x}.jsa"
    return {
        _ARCHIVE: str(archive),
        "SPARK_SUBMIT_OPTS": f'{without} {_QUIET} "-XX:SharedArchiveFile={archive}"',
    }


def archive_classes() -> None:
    """Write the archive, unless there is one; another process that is writing it is waited for."""
    if _ARCHIVE not in os.environ:
        return
    archive = Path(os.environ[_ARCHIVE])
    with archive.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if archive.exists():
            return
        unfinished = archive.with_suffix(".unfinished")  # a JVM that maps a part of an archive crashes
        options = f'{_SMALL} {_QUIET} -Dspark.ui.enabled=false "-XX:ArchiveClassesAtExit={unfinished}"'
        subprocess.run(  # the JVM has the other ends of the pipes: this ends when the JVM has
            [sys.executable, "-c", _USUAL],
            env={**os.environ, "SPARK_SUBMIT_OPTS": options},
            cwd=archive.parent,
            capture_output=True,
            check=True,
            timeout=600,
        )
        if unfinished.exists():
            unfinished.replace(archive)
