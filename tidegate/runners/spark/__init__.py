"""The Spark runner: pipelines on PySpark. The engine runs in Spark's Python workers; blocks travel as rows."""

from tidegate.runners.spark.plan.artifacts import clear_artifacts
from tidegate.runners.spark.runner import SparkRunner

__all__ = ["SparkRunner", "clear_artifacts"]
