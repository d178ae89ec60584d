"""Random pipelines of expressions and SQL that Spark computes itself have the results of the direct runner."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import tidegate as tg
from tests.support.sql.random_regions import Draw, write_tables
from tidegate.runners.spark.catalyst.regions import with_regions
from tidegate.sdk.errors import UserCodeError
from tidegate.sdk.portable.model import Read


class Case:
    """A pipeline that reads the tables in one of several ways, which are the same on both runners."""

    def __init__(self, seed: str, folder: Path, frame: Any) -> None:
        draw = random.Random(seed)
        self.drawn = Draw(draw).pipeline()
        self.folder, self.frame = folder, frame
        self.by_step, self.of_frame = draw.random() < 0.5, draw.random() < 0.3

    def rows(self, runner: str) -> tg.PCollection[Any]:
        p = tg.Pipeline(runner)
        others = p | "others" >> tg.ReadFromParquet(self.folder / "others.parquet", timestamp=lambda row: row.at)
        if self.by_step:
            plain = p | tg.ReadFromParquet(self.folder / "events.parquet")
            stamped = tg.Map(lambda row: tg.TimestampedValue(row, row.at)).with_output_types(plain.element_type)
            return self.drawn.of(plain | stamped, others)
        if self.of_frame and runner == "spark":
            return self.drawn.of(p | tg.io.ReadFromSpark(self.frame, timestamp=lambda row: row.at), others)
        return self.drawn.of(
            p | tg.ReadFromParquet(self.folder / "events.parquet", timestamp=lambda row: row.at), others
        )

    def reason(self) -> str:
        """Why workers compute a step; "" if Spark computes all of them."""
        regions = with_regions((self.rows("spark") | tg.Map(print)).pipeline.sealed())
        reasons = [each.reason for each in regions.decisions if each.choice == "workers"]
        left = [node.label for node in regions.pipeline.nodes if not isinstance(node, Read)]
        return next(iter(reasons), "" if len(left) == 1 else f"workers compute {left[0]}")

    def results(self, runner: str) -> list[str]:
        """The results with their windows, in an order of their own; or the error."""
        try:
            found = self.rows(runner).collect(include_window_info=True)
        except UserCodeError as error:
            return [str(error).splitlines()[0].partition("]")[0]]
        return sorted(map(shown, found))


def shown(result: Any) -> str:
    """A result with its windows, in which the two zeros are one, as in groups."""
    return repr(result).replace("=-0.0", "=0.0")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regions")
    write_tables(folder)
    return folder


def test_random_regions_have_the_results_of_the_direct_runner(
    spark_session: Any, no_workers: None, folder: Path, pytestconfig: pytest.Config
) -> None:
    frame = spark_session.createDataFrame(pq.read_table(folder / "events.parquet"))
    seed, count = pytestconfig.getoption("--streaming-seed"), pytestconfig.getoption("--regions")
    compared, different, left_out = 0, [], {}
    number = 0
    while compared < count:
        number += 1
        case = Case(f"{seed}/{number}", folder, frame)
        reason = case.reason()
        if reason:
            left_out[number] = reason
            continue
        compared += 1
        expected, found = case.results("direct"), case.results("spark")
        if found != expected:
            different.append((number, case.drawn.text, expected, found))
    assert different == []
    assert len(left_out) < number / 2, left_out
