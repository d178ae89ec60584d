"""Tests of connectors over several runners: those on Spark share the session of all tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _shared_spark_session(request: pytest.FixtureRequest) -> None:
    """A run on Spark would otherwise start a session of its own, and stop the one that other tests use."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("runner") == "spark":
        request.getfixturevalue("spark_session")
