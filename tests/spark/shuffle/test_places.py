"""Places have the hashes that Spark computes."""

from __future__ import annotations

from typing import Any

from tidegate.runners.spark.shuffle.places import places, spark_hash


def test_numbers_have_the_hashes_of_spark(spark_session: Any) -> None:
    numbers = [*range(50), 1_000, 123_456, 2**31 - 1]
    frame = spark_session.createDataFrame([(n,) for n in numbers], "n int")
    assert [spark_hash(n) for n in numbers] == [row.h for row in frame.selectExpr("hash(n) AS h").collect()]


def test_there_is_a_place_in_each_partition() -> None:
    for partitions in (1, 2, 3, 7, 200):
        assert [spark_hash(place) % partitions for place in places(partitions)] == list(range(partitions))
