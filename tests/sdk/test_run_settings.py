"""The runner and the options of a pipeline's runs, without the options' model where flags only choose a runner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tidegate as tg
from tidegate.sdk.options.defaults import DEFAULTS
from tidegate.sdk.options.model import PipelineOptions
from tidegate.sdk.options.registry import only_chosen
from tidegate.sdk.run_settings import RunSettings


@pytest.mark.parametrize("flags", [["--runner", "direct"], ["--runner=direct"]])
def test_flags_that_only_choose_a_runner_run_with_the_defaults_and_are_options_all_the_same(flags: list[str]) -> None:
    settings = RunSettings(None, flags)
    assert settings.of_run == DEFAULTS
    with tg.Pipeline(options=flags) as pipeline:
        pipeline | tg.Create([1]) | tg.Map(print)
    assert pipeline.options == PipelineOptions.from_args(flags)
    assert type(pipeline.options) is PipelineOptions


@pytest.mark.parametrize("name", ["direct", "streaming", "spark"])
def test_the_defaults_know_the_runner_that_flags_choose(name: str) -> None:
    assert RunSettings(None, ["--runner", name]).of_run == replace(DEFAULTS, runner=name)


@pytest.mark.parametrize(
    "options",
    [[], ["--runner"], ["--runner", "stream"], ["--runner=direct", "--mode=streaming"], "--runner=direct", {}, None],
    ids=repr,
)
def test_other_options_are_read_by_the_model(options: Any) -> None:
    assert only_chosen(options) is None


def test_a_runner_beside_flags_that_choose_another_one_wins() -> None:
    settings = RunSettings("streaming", ["--runner", "direct"])
    assert settings.chosen_runner().name == "streaming"
    assert isinstance(settings.of_run, PipelineOptions)


def test_a_list_of_flags_that_changes_after_a_step_does_not_change_the_run() -> None:
    flags = ["--runner", "direct"]
    pipeline = tg.Pipeline(options=flags)
    _ = pipeline | tg.Create([1]) | tg.Map(str)
    flags[1] = "streaming"
    flags.append("--bogus")
    assert pipeline.run().state is tg.PipelineState.DONE
    assert pipeline.options == PipelineOptions.from_args(["--runner", "direct"])
