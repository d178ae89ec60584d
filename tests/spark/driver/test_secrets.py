"""Secrets on Spark: the session's configuration and the JVM's properties, which Spark's page shows, have none."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

import tidegate as tg
from tidegate.testing import TestPipeline, assert_that, equal_to

VALUE = "flood-tide-at-dusk-815"


def test_neither_the_configuration_nor_the_environment_that_spark_shows_has_the_secret(
    spark_session: Any, flags: list[str]
) -> None:
    secret = SecretStr(VALUE)
    p = TestPipeline(options=flags)
    found = p | tg.Create([1, 2]) | tg.Reshuffle() | tg.Map(lambda n: (n, len(secret.get_secret_value())))
    assert_that(found, equal_to([(1, len(VALUE)), (2, len(VALUE))]))
    p.run()
    context = spark_session.sparkContext
    jvm = context._jvm
    shown = {
        "the configuration": str(context.getConf().getAll()),
        "the properties of the JVM": str(jvm.System.getProperties()),
        "the environment of the JVM": str(jvm.System.getenv()),
        "the environment of workers": str(context.environment),
        "the settings of queries": str(spark_session.sql("SET -v").collect()),
    }
    assert [name for name, text in shown.items() if VALUE in text] == []
