"""Speculative tasks, with which a stream's state and output might be those of different attempts."""

from __future__ import annotations

import pytest

from tidegate.runners.spark.streaming.driver.start import refuse_speculation
from tidegate.sdk.errors import OptionsError


def test_speculative_tasks_are_refused_by_name() -> None:
    conf = pytest.importorskip("pyspark").SparkConf(loadDefaults=False)
    refuse_speculation(conf)
    refuse_speculation(conf.set("spark.speculation", "false"))
    with pytest.raises(OptionsError, match=r"spark\.speculation=true"):
        refuse_speculation(conf.set("spark.speculation", "true"))
