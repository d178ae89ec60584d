"""A standalone cluster: a master and two workers on different hosts, whose Python has no Tidegate.

In each stage, author code kills its executor by SIGKILL once, and the output is still correct and complete. In the
test of speculation, the first attempt of a task waits for the copy that Spark starts, and both write.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.spark.daemons import spark_home
from tests.support.spark.small_jvms import jvm_options
from tests.support.spark.standalone import Standalone

WITHOUT_TIDEGATE = """
import os, sys
sys.path[:] = [path for path in sys.path if path and not os.path.exists(os.path.join(path, "tidegate"))]
"""


@dataclass(frozen=True)
class Cluster:
    """The master's address, and an interpreter for the workers without Tidegate installed."""

    master: str
    python: Path

    def submit(self, script: str, folder: Path, *arguments: str, conf: tuple[str, ...] = ()) -> None:
        """Run a script by `spark-submit`, with the flags for it in `sys.argv[2:]` after `folder`."""
        (folder / "script.py").write_text(script)
        command = [str(spark_home() / "bin" / "spark-submit"), "--master", self.master, "--driver-memory", "512m"]
        settings = [
            "spark.executor.memory=512m", f"spark.executor.extraJavaOptions={jvm_options()}", "spark.ui.enabled=false",
            "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1", *conf,
        ]  # fmt: skip
        flags = ["--runner", "spark", "--worker_python", str(self.python), "--spark_partitions", "3"]
        done = subprocess.run(
            [
                *command,
                *(part for setting in settings for part in ("--conf", setting)),
                *("script.py", str(folder), *flags, *arguments),
            ],
            capture_output=True, text=True, check=False, cwd=folder, timeout=600,
            env={
                **os.environ,
                "SPARK_HOME": str(spark_home()),
                "PYSPARK_DRIVER_PYTHON": sys.executable,
                "PYTHONPATH": str(Path(__file__).resolve().parents[3]),
            },
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, spark_cluster: Standalone) -> Cluster:
    home = tmp_path_factory.mktemp("without-tidegate")
    (home / "sitecustomize.py").write_text(WITHOUT_TIDEGATE)
    python = home / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{home}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    return Cluster(spark_cluster.master, python)


def written(folder: Path) -> list[str]:
    """The sorted lines of the files in a folder; checks that it contains nothing else, and no file twice."""
    paths = sorted(folder.iterdir())
    assert [path.name for path in paths] == [f"out-{n:05d}-of-{len(paths):05d}" for n in range(len(paths))]
    return sorted(line for path in paths for line in path.read_text().splitlines())


SCRIPT = '''
import os, pathlib, signal, sys
import tidegate as tg, tidegate.io
from pyspark.sql import SparkSession
from tidegate.runners.spark import clear_artifacts

root, kills, flags = sys.argv[1], int(sys.argv.pop()), sys.argv[2:]
os.environ["PYSPARK_PYTHON"] = flags[flags.index("--worker_python") + 1]
context = SparkSession.builder.getOrCreate().sparkContext

def executor():
    """The process of this task's executor: the parent of the daemon that forked this one."""
    stat = pathlib.Path(f"/proc/{os.getppid()}/stat").read_text()
    return int(stat.rsplit(")", 1)[1].split()[1])

def die_once(element, here, stage, mark):
    """Kill this task's executor."""
    if here == stage:
        try:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return element
        os.kill(executor(), signal.SIGKILL)
    return element

def part(name):
    folder = f"{root}/{name}"
    os.mkdir(folder)
    return folder

# -- Tidegate is sent, and any executor may die

folder = part("killed")

def home(_):
    """The place from which the worker imports Tidegate."""
    import tidegate
    return tidegate.__file__

with tg.Pipeline(options=flags) as p:
    _ = p | tg.Create(range(9)) | tg.Reshuffle() | tg.Map(home) | tg.io.WriteToText(f"{folder}/homes/out")

for name, stage in [(f"{stage}{n}", stage) for n in range(kills) for stage in ("map", "middle", "result")]:
    mark = f"{folder}/{name}-died"
    with tg.Pipeline(options=flags) as p:
        numbers = p | tg.Create(range(4000)) | "map" >> tg.Map(die_once, "map", stage, mark)
        sums = numbers | "pair" >> tg.Map(lambda x: (x % 50, x)) | tg.CombinePerKey(sum)
        again = sums | "middle" >> tg.Map(die_once, "middle", stage, mark) | tg.MapTuple(lambda k, v: (k % 5, v))
        lines = again | tg.GroupByKey() | "result" >> tg.Map(die_once, "result", stage, mark)
        _ = lines | tg.Map(lambda pair: f"{pair[0]} {sum(pair[1])}") | tg.io.WriteToText(f"{folder}/{name}/out")

# -- persisted partitions

folder = part("persisted")
rdd = context.parallelize(range(4000), 3).map(lambda x: (x % 50, x)).persist()
assert rdd.count() == 4000
for name, stage in [(f"{stage}{n}", stage) for n in range(kills) for stage in ("map", "result")]:
    mark = f"{folder}/{name}-died"
    with tg.Pipeline(options=flags) as p:
        pairs = p | tg.io.ReadFromSpark(rdd) | "map" >> tg.Map(die_once, "map", stage, mark)
        groups = pairs | tg.MapTuple(lambda k, v: (k % 5, v)) | tg.GroupByKey()
        lines = groups | "result" >> tg.Map(die_once, "result", stage, mark)
        _ = lines | tg.Map(lambda pair: f"{pair[0]} {sum(pair[1])}") | tg.io.WriteToText(f"{folder}/{name}/out")

# -- rounds, whose results are lost, or in a reliable checkpoint every ten rounds

def run_rounds(folder, rounds):
    """An executor dies in the last round but one."""
    mark = f"{folder}/died"

    def step(before):
        def plus_one(pair, number=tg.DoFn.RoundParam):
            die_once(None, number, rounds - 1 if pair[0] == 7 else None, mark)
            tg.Metrics.counter("mine", "calls").inc()
            return pair[0], pair[1] + 1

        summed = (before, constant) | tg.Flatten() | tg.CombinePerKey(sum)
        new = summed | "plus one" >> tg.Map(plus_one).with_output_types(tuple[int, int])
        return tg.Round(new, out={"seen": new | tg.Map(lambda pair, number=tg.DoFn.RoundParam: f"{number}: {pair}")})

    with tg.Pipeline(options=flags) as p:
        constant = p | "constant" >> tg.Create([(key, 1) for key in range(8)]).with_output_types(tuple[int, int])
        start = p | tg.Create([(key, 0) for key in range(8)]).with_output_types(tuple[int, int])
        loop = start | tg.Iterate(step, rounds=rounds)
        _ = loop.result | tg.Map(str) | "result" >> tg.io.WriteToText(f"{folder}/result/out")
        _ = loop.out["seen"] | "seen" >> tg.io.WriteToText(f"{folder}/seen/out")
    metrics = p.result.metrics()
    calls = [metrics.by_round("Iterate/plus one")[number].counter("calls") for number in range(1, rounds + 1)]
    assert (metrics.counter("rounds"), calls) == (rounds, [8] * rounds), (metrics.counter("rounds"), calls)

run_rounds(part("rounds"), 5)
context.setCheckpointDir(f"{root}/checkpoints")
run_rounds(part("reliable-rounds"), 13)

# -- executors that join after a run

folder = part("later")

def run(name):
    with tg.Pipeline(options=flags) as p:
        values = p | tg.Create([(n % 5, f"{n:030}") for n in range(60_000)])
        names = p | "names" >> tg.Create([(n, f"{n:0300}") for n in range(5_000)])
        sized = values | tg.MapTuple(lambda k, v, names: (k, len(v) + len(names[k])), tg.AsDict(names))
        counted = sized | tg.CombinePerKey(sum) | tg.Map(lambda pair: f"{pair[0]} {pair[1]}")
        _ = counted | tg.io.WriteToText(f"{folder}/{name}/out")

def kill_all():
    """Everything that has been sent to executors is lost; those that come instead fetch what Spark knows of."""
    for pid in set(context.parallelize(range(8), 8).map(lambda _: executor()).collect()):
        os.kill(pid, signal.SIGKILL)

run("before")
kill_all()
own = context.parallelize(range(100), 4).map(lambda n: n + 1).sum()
run("after")
freed = clear_artifacts(SparkSession.builder.getOrCreate())
kill_all()
run("cleared")
left = sum(url.rpartition("/")[2].startswith("tidegate-") for url in context.listFiles)
pathlib.Path(folder, "told").write_text(f"{own} {freed > 2 << 20} {left}")
'''
SUMS = sorted(f"{key} {sum(x for x in range(4000) if x % 5 == key)}" for key in range(5))


@pytest.fixture(scope="module")
def application(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """The folder of an application that runs all parts of the script, since each start takes long."""
    folder = tmp_path_factory.mktemp("application")
    cluster.submit(SCRIPT, folder, str(request.config.getoption("--spark-kills")))
    return folder


def check_killed(folder: Path, stages: tuple[str, ...], kills: int) -> None:
    names = [f"{stage}{n}" for stage in stages for n in range(kills)]
    for name in names:
        assert written(folder / name) == SUMS
    assert sorted(path.name for path in folder.glob("*-died")) == sorted(f"{name}-died" for name in names)


def test_tidegate_is_sent_to_workers_without_it_and_any_executor_may_die(
    application: Path, request: pytest.FixtureRequest
) -> None:
    homes = written(application / "killed" / "homes")
    assert len(homes) == 9
    assert all(".zip/tidegate/" in home for home in homes)
    check_killed(application / "killed", ("map", "middle", "result"), request.config.getoption("--spark-kills"))


def test_persisted_partitions_of_a_dead_executor_are_recomputed(
    application: Path, request: pytest.FixtureRequest
) -> None:
    check_killed(application / "persisted", ("map", "result"), request.config.getoption("--spark-kills"))


@pytest.mark.parametrize(("part", "rounds"), [("rounds", 5), ("reliable-rounds", 13)])
def test_rounds_whose_results_a_dead_executor_had_run_again(application: Path, part: str, rounds: int) -> None:
    folder = application / part
    assert (folder / "died").exists()
    assert written(folder / "result") == sorted(f"({key}, {2 * rounds})" for key in range(8))
    seen = [f"{number}: ({key}, {2 * number})" for number in range(1, rounds + 1) for key in range(8)]
    assert written(folder / "seen") == sorted(seen)


def test_executors_that_join_after_a_run_work_for_the_next_run_and_for_the_authors_job(application: Path) -> None:
    sums = sorted(f"{key} {12_000 * 330}" for key in range(5))
    for name in ("before", "after", "cleared"):
        assert written(application / "later" / name) == sums
    told = (application / "later" / "told").read_text()
    assert told == "5050 True 3"  # the values, the side input, and Tidegate itself


COPIED = '''
import os, sys
import tidegate as tg, tidegate.io

folder, flags = sys.argv[1], sys.argv[2:]

def first_waits(key):
    """In the task with key 0: the first attempt waits until the second is here, which is then as far as it is."""
    if key == 0:
        try:
            os.close(os.open(f"{folder}/first", os.O_CREAT | os.O_EXCL))
            open(f"{folder}/pipe", "rb").close()
        except FileExistsError:
            open(f"{folder}/pipe", "wb").close()
            os.close(os.open(f"{folder}/second", os.O_CREAT | os.O_EXCL))
    return key

with tg.Pipeline(options=flags) as p:
    keys = p | tg.Create(range(300)) | tg.Map(lambda x: (x, 1)) | tg.GroupByKey() | tg.Map(lambda pair: pair[0])
    _ = keys | tg.Map(first_waits) | tg.Map(str) | tg.io.WriteToText(f"{folder}/written/out")
'''


def test_a_speculative_task_does_not_duplicate_output(cluster: Cluster, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    speculation = {
        "": "true",
        ".interval": "100ms",
        ".quantile": "0.5",
        ".multiplier": "1.1",
        ".minTaskRuntime": "100ms",
    }
    cluster.submit(
        COPIED, tmp_path, conf=tuple(f"spark.speculation{name}={value}" for name, value in speculation.items())
    )
    assert (tmp_path / "second").exists()
    assert written(tmp_path / "written") == sorted(map(str, range(300)))
