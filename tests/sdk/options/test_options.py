"""Options: the values of flags, and the messages about refused ones."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import Field, field_validator, model_validator

import tidegate as tg
from tidegate.sdk.errors import OptionsError
from tidegate.sdk.options import registry
from tidegate.sdk.options.defaults import DEFAULTS, default_memory_budget
from tidegate.sdk.options.model import PipelineOptions, RunnerOptions, flags, help_text, options_for
from tidegate.sdk.options.option_types import DurationOption, SizeOption
from tidegate.sdk.runner import Runner
from tidegate.sdk.time import Duration

ROOT = Path(__file__).parents[3]


class Colour(Enum):
    RED = 1
    BLUE = 2


class WordCount(PipelineOptions):
    """Counts words."""

    input: str = Field(description="what to read")
    limit: int = Field(10, gt=0, description="how many words to print")


class Everything(PipelineOptions):
    names: list[str] = Field([])
    numbers: tuple[int, ...] | None = None
    pairs: dict[str, str] = Field({})
    gap: DurationOption = Duration(10)
    patience: timedelta = timedelta(0)
    big: SizeOption = 256_000_000
    colour: Colour = Colour.RED
    level: Literal[1, 2] = 1
    verbose: bool = False
    sure: bool | None = None
    out: Path | None = None
    either: int | Literal["auto"] = "auto"
    rate: float | None = 0.5
    from_: str = "here"


class StreamOptions(RunnerOptions):
    runner: str = "stream"
    workers: int = Field(2, gt=0, description="how many processes")


class ClusterOptions(RunnerOptions):
    runner: str = "cluster"
    workers: int = 4
    master: str = "local"


class NoRunner(Runner):
    """Declares options and runs nothing."""

    model: type[PipelineOptions] | None = None

    @classmethod
    def options_model(cls) -> type[PipelineOptions] | None:
        return cls.model

    def check(self, pipeline: Any, options: Any) -> list[str]:
        raise NotImplementedError

    def plan(self, pipeline: Any, options: Any) -> Any:
        raise NotImplementedError

    def run(self, pipeline: Any, options: Any) -> Any:
        raise NotImplementedError


class Stream(NoRunner):
    model = StreamOptions


class Cluster(NoRunner):
    model = ClusterOptions


@pytest.fixture(autouse=True)
def three_runners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        registry,
        "BUILT_IN",
        {"direct": f"{__name__}:NoRunner", "stream": f"{__name__}:Stream", "cluster": f"{__name__}:Cluster"},
    )


def refusal(model: type[PipelineOptions], *argv: str, **defaults: Any) -> str:
    with pytest.raises(OptionsError) as caught:
        model.from_args(argv, **defaults)
    return str(caught.value)


# Accepted flags.


@pytest.mark.parametrize(
    ("argv", "name", "value"),
    [
        (["--names", "a", "--names=b,c"], "names", ["a", "b", "c"]),
        (["--names", '["a,b"]'], "names", ["a,b"]),
        (["--names", "[a-z]"], "names", ["[a-z]"]),
        (["--names="], "names", []),
        (["--numbers", "1, 2"], "numbers", (1, 2)),
        (["--numbers", "none"], "numbers", None),
        (["--pairs", "a=b,c", "--pairs=d=e=f"], "pairs", {"a": "b,c", "d": "e=f"}),
        (["--gap", "1h30m"], "gap", Duration(5400)),
        (["--gap", "-5s"], "gap", Duration(-5)),
        (["--gap", "0.25"], "gap", Duration(0.25)),
        (["--patience", "500ms"], "patience", timedelta(milliseconds=500)),
        (["--patience", "PT5M"], "patience", timedelta(minutes=5)),
        (["--big", "1.5GiB"], "big", 3 * 2**29),
        (["--colour", "BLUE"], "colour", Colour.BLUE),
        (["--colour", "2"], "colour", Colour.BLUE),
        (["--level", "2"], "level", 2),
        (["--verbose"], "verbose", True),
        (["--verbose", "--no-verbose"], "verbose", False),
        (["--verbose=YES"], "verbose", True),
        (["--no_sure"], "sure", False),
        (["--sure=none"], "sure", None),
        (["--out", "-"], "out", Path("-")),
        (["--either", "7"], "either", 7),
        (["--either", "auto"], "either", "auto"),
        (["--rate", "-1e-3"], "rate", -0.001),
        (["--rate", "none"], "rate", None),
        (["--from", "there"], "from_", "there"),
        (["--from=--there"], "from_", "--there"),
        (["--memory-budget", "256MB"], "memory_budget", 256_000_000),
        (["--memory_budget=256MiB"], "memory_budget", 256 * 2**20),
        (["--run-for=5m"], "run_for", Duration(300)),
        (["--level", "1", "--level", "2"], "level", 2),
    ],
)
def test_a_flag_is_read_according_to_its_type(argv: Sequence[str], name: str, value: object) -> None:
    read = getattr(Everything.from_args(argv), name)
    assert read == value
    assert type(read) is type(value)


def test_without_arguments_the_command_line_of_the_script_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["script.py", "--input", "x"])
    assert WordCount.from_args().input == "x"


def test_arguments_win_over_a_scripts_defaults_and_those_over_the_models() -> None:
    options = WordCount.from_args(["--limit", "3"], input="x", limit=5, mode="streaming")
    assert (options.limit, options.input, options.mode, options.checks) == (3, "x", "streaming", "sample")


def test_a_flag_named_no_x_wins_over_the_negation_of_x() -> None:
    class Cached(PipelineOptions):
        no_cache: bool = False
        cache: bool = True

    options = Cached.from_args(["--no-cache"])
    assert (options.no_cache, options.cache) == (True, True)


def test_constructor_values_may_be_written_like_flags() -> None:
    options = Everything(gap="5m", big="1kB", memory_budget="1GB")  # type: ignore[arg-type]
    assert (options.gap, options.big, options.memory_budget) == (Duration(300), 1000, 10**9)


def test_known_args_leave_the_rest_in_order() -> None:
    options, rest = WordCount.from_known_args(
        ["a", "--input", "b", "--foo", "1", "-v", "--limit=2", "--", "--limit", "9"]
    )
    assert (options.input, options.limit) == ("b", 2)
    assert rest == ["a", "--foo", "1", "-v", "--", "--limit", "9"]


# Refused flags and their messages.


def test_an_unknown_flag_is_refused_with_the_most_similar_name() -> None:
    assert refusal(WordCount, "--input", "x", "--limt", "5") == "unknown flag --limt: did you mean --limit?"
    assert (
        refusal(WordCount, "--input", "x", "--memory-buget=1")
        == "unknown flag --memory-buget: did you mean --memory_budget?"
    )
    assert refusal(WordCount, "--input", "x", "--zzz") == "unknown flag --zzz; --help lists those there are"


def test_an_unknown_flag_similar_to_another_runners_names_that_runner() -> None:
    assert refusal(WordCount, "--input=x", "--mastr=y") == (
        "unknown flag --mastr: did you mean --master (a flag of the cluster runner)?"
    )


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--limit", "ten"], "--limit takes a whole number, not 'ten', for example --limit 10"),
        (["--limit", "0"], "--limit can't be '0': should be greater than 0, for example --limit 10"),
        (["--limit"], "--limit needs a value: it takes a whole number, for example --limit 10"),
        (["--mode", "stream"], "--mode takes one of batch, streaming, not 'stream', for example --mode batch"),
        (["--run_for", "soon"], "--run_for takes a duration, not 'soon', for example --run_for 10s"),
        (["--run_for", "-5s"], "--run_for can't be '-5s': must be more than 0, for example --run_for 10s"),
        (["--memory_budget", "lots"], "--memory_budget takes a size, not 'lots', for example --memory_budget 256MB"),
        (
            ["--memory_budget", "0"],
            "--memory_budget can't be '0': must be more than 0, for example --memory_budget 256MB",
        ),
        (
            ["--allow_unsafe_triggers=maybe"],
            "--allow_unsafe_triggers takes true or false, not 'maybe', for example --allow_unsafe_triggers=true",
        ),
        (
            ["--allow_unsafe_triggers", "true"],
            "--allow_unsafe_triggers takes no separate value: write --allow_unsafe_triggers=true",
        ),
        (
            ["--no-allow-unsafe-triggers=yes"],
            "--no_allow_unsafe_triggers takes no value: write --allow_unsafe_triggers=yes",
        ),
        (["-limit", "3"], "unknown flag -limit: flags start with two dashes, as in --limit"),
        (["-x"], "unknown flag -x: flags start with two dashes; --help lists them"),
        (
            ["b"],
            "unexpected argument 'b': every value belongs to a flag; write it as --name VALUE; --help lists the flags",
        ),
    ],
)
def test_a_value_that_a_flag_cannot_take_is_refused_with_an_example(argv: Sequence[str], message: str) -> None:
    assert refusal(WordCount, "--input", "x", *argv) == message


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--numbers", "1,x"], "--numbers takes a list, each a whole number, not 'x', for example --numbers 10"),
        (["--pairs", "a"], "--pairs takes pairs key=value, not 'a', for example --pairs key=TEXT"),
        (["--colour", "GREEN"], "--colour takes one of RED, BLUE, not 'GREEN', for example --colour RED"),
        (["--level", "3"], "--level takes one of 1, 2, not '3', for example --level 1"),
        (["--either", "q"], "--either takes a whole number or one of auto, not 'q', for example --either 10"),
        (["--big", "-1"], "--big takes a size, not '-1', for example --big 256MB"),
        (["--patience", "soon"], "--patience takes a duration, not 'soon', for example --patience 10s"),
    ],
)
def test_every_kind_of_flag_describes_its_values(argv: Sequence[str], message: str) -> None:
    assert refusal(Everything, *argv) == message


def test_the_message_about_a_value_with_two_dashes_suggests_an_equals_sign() -> None:
    assert refusal(WordCount, "--input", "--there").splitlines()[1] == (
        "--input needs a value: it takes text, for example --input TEXT; "
        "a value that starts with two dashes is written --input=--there"
    )


def test_a_missing_required_flag_is_named() -> None:
    assert refusal(WordCount) == "--input is required: it takes text, for example --input TEXT"


def test_a_positional_argument_is_refused_with_the_flag_it_may_belong_to() -> None:
    assert refusal(WordCount, "data.txt").splitlines() == [
        "unexpected argument 'data.txt': every value belongs to a flag; did you mean --input data.txt?",
        "--input is required: it takes text, for example --input TEXT",
    ]


def test_all_errors_are_reported_together() -> None:
    assert refusal(WordCount, "--inptu", "x", "--limit", "ten").splitlines() == [
        "unknown flag --inptu: did you mean --input?",
        "--input is required: it takes text, for example --input TEXT",
        "--limit takes a whole number, not 'ten', for example --limit 10",
    ]


def test_a_flag_whose_type_is_not_defined_is_named() -> None:
    class Flags(PipelineOptions):
        first: int = 0
        out: list[Nowhere] | None = None  # type: ignore[name-defined]  # noqa: F821

    message = (
        r"Flags\.out: an annotation names 'Nowhere', which is not defined in [\w.]*test_options: "
        "define or import it at the top of the module, and not only for type checkers"
    )
    for use in (Flags, lambda: Flags.from_args([]), lambda: Flags.from_mapping({})):
        with pytest.raises(OptionsError, match=f"^{message}$"):
            use()


def test_a_flag_whose_type_is_defined_below_its_class_is_read() -> None:
    assert Early.from_args(["--how", "fast"]).how is How.FAST


class Early(PipelineOptions):
    how: How = "slow"  # type: ignore[assignment]


class How(Enum):
    SLOW = "slow"
    FAST = "fast"


def test_another_runners_flag_is_refused_by_that_runners_name() -> None:
    assert refusal(WordCount, "--input", "x", "--master", "m") == (
        "--master is a flag of the cluster runner, but this run is on direct: "
        "add --runner cluster, or leave the flag out"
    )
    assert refusal(WordCount, "--input", "x", "--workers", "3") == (
        "--workers is a flag of the cluster and stream runners, but this run is on direct: "
        "add --runner cluster or --runner stream, or leave the flag out"
    )
    assert refusal(WordCount, "--input", "x", "--runner", "stream", "--checks", "all") == (
        "--checks is a flag of the direct runner, but this run is on stream: add --runner direct, or leave the flag out"
    )


def test_an_unknown_runner_is_refused_with_the_most_similar_name() -> None:
    assert refusal(WordCount, "--input=x", "--runner", "steram") == (
        "unknown runner 'steram': did you mean stream? --runner takes one of direct, stream, cluster"
    )


def test_the_constructor_refuses_with_the_same_messages() -> None:
    with pytest.raises(OptionsError) as caught:
        WordCount(inptu="x", limit="ten")  # type: ignore[call-arg, arg-type]
    assert str(caught.value).splitlines() == [
        "--input is required: it takes text, for example --input TEXT",
        "--limit takes a whole number, not 'ten', for example --limit 10",
        "unknown flag --inptu: did you mean --input?",
    ]


def test_messages_of_an_authors_validators_are_shown() -> None:
    class Checked(PipelineOptions):
        low: int = 0
        high: int = 1

        @field_validator("low")
        @classmethod
        def _even(cls, low: int) -> int:
            if low % 2:
                raise ValueError("must be even")
            return low

        @model_validator(mode="after")
        def _ordered(self) -> Checked:
            if self.low > self.high:
                raise ValueError("--low is above --high")
            return self

    assert refusal(Checked, "--low", "3") == "--low can't be '3': must be even, for example --low 10"
    assert refusal(Checked, "--low", "4") == "--low is above --high"


def test_a_string_is_refused_as_a_list_of_flags() -> None:
    with pytest.raises(
        OptionsError, match=r"^flags are a list of strings, not one string: shlex\.split\('--limit 3'\)$"
    ):
        WordCount.from_args("--limit 3")


def test_options_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        PipelineOptions().mode = "streaming"


@pytest.mark.filterwarnings("ignore:Field name:UserWarning")
@pytest.mark.parametrize("name", ["help", "dump", "view_as"])
def test_a_field_with_a_reserved_name_is_refused(name: str) -> None:
    with pytest.raises(OptionsError, match=rf"^Bad\.{name}: the name is taken by PipelineOptions; choose another$"):
        type("Bad", (PipelineOptions,), {"__annotations__": {name: str}, "__module__": __name__})


def test_a_common_flag_may_be_given_another_default_but_no_other_type() -> None:
    class Streaming(PipelineOptions):
        mode: Literal["batch", "streaming"] = "streaming"

    assert Streaming.from_args([]).mode == "streaming"
    with pytest.raises(OptionsError, match="--mode is a common flag and keeps its type"):

        class Wrong(PipelineOptions):
            mode: int = 3


# Options of runners.


def test_the_flags_of_the_chosen_runner_are_added_to_the_authors() -> None:
    options = WordCount.from_args(["--workers", "3", "--input", "x", "--runner", "stream"])
    assert isinstance(options, WordCount)
    assert isinstance(options, StreamOptions)
    assert (options.runner, options.workers, options.input) == ("stream", 3, "x")
    assert type(WordCount.from_args(["--input", "x"])) is WordCount


def test_options_with_a_runners_flags_default_to_that_runner() -> None:
    assert options_for("stream", WordCount)(input="x").runner == "stream"
    assert options_for("stream", PipelineOptions) is StreamOptions
    assert options_for("stream", WordCount) is options_for("stream", WordCount)


def test_choosing_another_runner_replaces_the_flags_of_the_first() -> None:
    joined = options_for("stream", WordCount)
    assert issubclass(options_for("cluster", joined), ClusterOptions)
    assert options_for("direct", joined) is WordCount


def test_a_scripts_default_for_another_runner_is_kept_for_that_runner() -> None:
    assert WordCount.from_args(["--runner", "direct"], input="x", runner="stream", workers=7).runner == "direct"
    assert WordCount.from_args([], input="x", runner="stream", workers=7).workers == 7  # type: ignore[attr-defined]


def test_a_default_for_an_unknown_flag_is_refused() -> None:
    assert refusal(WordCount, "--input", "x", limt=1) == "unknown flag --limt: did you mean --limit?"


def test_an_author_cannot_redeclare_a_flag_of_the_runner() -> None:
    class Clash(PipelineOptions):
        workers: str = "me"

    assert Clash.from_args([]).workers == "me"
    assert refusal(Clash, "--runner", "stream") == (
        "Clash.workers: --workers is a flag of the stream runner; choose another name"
    )


def test_a_runner_that_cannot_be_loaded_hides_no_other_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry.BUILT_IN, "broken", "no_such_module:Runner")
    assert refusal(WordCount, "--input", "x", "--limt", "5") == "unknown flag --limt: did you mean --limit?"
    assert refusal(WordCount, "--input", "x", "--runner", "broken") == (
        "the broken runner can't be loaded: No module named 'no_such_module'"
    )


def test_options_can_be_viewed_as_another_model() -> None:
    options = WordCount(input="x", mode="streaming")
    assert options.view_as(StreamOptions).workers == 2
    assert options.view_as(StreamOptions).mode == "streaming"
    assert options.view_as(PipelineOptions) is options
    with pytest.raises(OptionsError, match="--input is required"):
        PipelineOptions().view_as(WordCount)


# Serialization.


def test_options_survive_json_and_pickle() -> None:
    argv = ["--names=a,b", "--pairs=a=b", "--gap=90s", "--patience=1500ms", "--colour=BLUE", "--out=x", "--run_for=5m"]
    for runner in ("direct", "stream"):
        options = Everything.from_args([*argv, "--runner", runner])
        assert Everything.load(options.dump()) == options
        assert pickle.loads(pickle.dumps(options)) == options
        assert copy.deepcopy(options) == options


def test_a_value_that_json_cannot_represent_is_refused_when_written() -> None:
    class Anything(PipelineOptions):
        value: Any = None

    with pytest.raises(OptionsError, match=r"^--value: \(1, 2\) doesn't survive being written as JSON$"):
        Anything(value=(1, 2)).dump()
    with pytest.raises(OptionsError, match=r"^Anything can't be written as JSON: "):
        Anything(value=object()).dump()


@pytest.mark.parametrize("text", ["{", "[1]", '{"limt": 1}', '{"input": 1}', ""])
def test_json_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(OptionsError):
        WordCount.load(text)


def test_a_mapping_may_contain_flags_of_the_runner_it_names() -> None:
    options = PipelineOptions.from_mapping({"runner": "stream", "workers": 3})
    assert isinstance(options, StreamOptions)
    assert options.workers == 3


# Without options.


def test_the_default_options_equal_the_defaults_of_the_model() -> None:
    model = PipelineOptions()
    assert {field.name: getattr(DEFAULTS, field.name) for field in fields(DEFAULTS)} == dict(model)


def test_the_default_options_viewed_as_a_model_are_its_defaults() -> None:
    assert DEFAULTS.view_as(StreamOptions) == StreamOptions()
    with pytest.raises(OptionsError, match="--input is required"):
        DEFAULTS.view_as(WordCount)


def test_a_run_without_options_does_not_import_pydantic() -> None:
    script = (
        "import sys, tidegate as tg\n"
        "with tg.Pipeline() as pipeline:\n"
        "    pipeline | tg.Create([tg.TimestampedValue(1, 5)]) | tg.WindowInto(tg.FixedWindows(60)) | tg.Map(print)\n"
        "print('pydantic' in sys.modules)\n"
    )
    completed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (completed.stdout, completed.stderr) == ("1\nFalse\n", "")


def test_the_default_memory_budget_is_plausible() -> None:
    assert 2**20 < default_memory_budget() < 2**50


# Help.


def test_flags_list_the_authors_then_the_common_then_the_runners() -> None:
    listed = flags(options_for("stream", WordCount))
    assert [flag.name for flag in listed if flag.group == "author"] == ["input", "limit"]
    assert [flag.name for flag in listed if flag.group == "runner"] == ["workers"]
    assert [flag.group for flag in listed] == ["author"] * 2 + ["common"] * len(PipelineOptions.model_fields) + [
        "runner"
    ]
    unsafe = next(flag for flag in listed if flag.name == "allow_unsafe_triggers")
    assert unsafe.kind.is_bool
    assert unsafe.aliases == (
        "--allow-unsafe-triggers", "--no_allow_unsafe_triggers", "--no-allow-unsafe-triggers",
    )  # fmt: skip


def test_help_shows_groups_types_defaults_and_descriptions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exited:
        WordCount.from_args(["--runner=stream", "--help"])
    assert exited.value.code == 0
    output = capsys.readouterr().out.splitlines()
    assert output[:5] == [
        "Counts words.",
        "",
        "Flags of WordCount:",
        "  --input TEXT                what to read (required)",
        "  --limit INT                 how many words to print (default: 10)",
    ]
    assert "Common flags:" in output
    assert output[output.index("Flags of the stream runner:") + 1] == (
        "  --workers INT               how many processes (default: 2)"
    )
    assert max(map(len, output)) <= 100


def test_help_shows_defaults_in_the_form_of_flags() -> None:
    text = help_text(Everything)
    for line in ("--gap DURATION              (default: 10s)", "--big SIZE                  (default: 256MB)"):
        assert line in text
    assert "--colour RED|BLUE           (default: RED)" in text


def test_flags_of_the_runner_named_on_the_command_line_are_accepted() -> None:
    flags = tg.Pipeline(runner="stream", options=["--workers", "3"]).options
    assert (flags.runner, flags.workers) == ("stream", 3)  # type: ignore[union-attr]
    assert tg.Pipeline(runner="stream", options={"workers": 2}).options.runner == "stream"
