"""The Spark runner: bounded pipelines on PySpark. Blocks travel as rows; the engine runs in Spark's Python workers."""

from tidegate.runners.spark.plan.artifacts import clear_artifacts
from tidegate.runners.spark.runner import SparkRunner

__all__ = ["SparkRunner", "clear_artifacts"]
