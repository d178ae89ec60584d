"""Options: what a run is told from outside, read from flags, checked by pydantic.

An author subclasses `PipelineOptions` for the flags of a pipeline; a runner subclasses `RunnerOptions` for its own.
`options_for` joins the two for one run, `from_args` reads a command line into the result. One parser serves scripts and
the `tidegate` command, so that a flag means the same and fails with the same words everywhere.
"""

from __future__ import annotations

import difflib
import json
import keyword
import os
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from tidegate.sdk.errors import OptionsError, shorten
from tidegate.sdk.runner import find_runner, runner_names
from tidegate.sdk.time import SECOND, Duration

M = TypeVar("M", bound="PipelineOptions")


@dataclass(frozen=True, slots=True)
class _Kind:
    """How a type looks on a command line. `read` turns the texts given, in order, into what pydantic validates."""

    takes: str
    metavar: str
    example: str
    read: Callable[[Sequence[str]], object]
    is_bool: bool = False
    multiple: bool = False


def _last(texts: Sequence[str]) -> object:
    return texts[-1]


# --- durations and sizes -------------------------------------------------------------------------------------------

_DURATION_UNITS: Final = {
    "d": 86_400 * SECOND, "h": 3_600 * SECOND, "m": 60 * SECOND, "s": SECOND, "ms": 1_000, "us": 1,
}  # fmt: skip
_DURATION: Final = re.compile(r"([+-]?)((?:[0-9]+(?:\.[0-9]+)?(?:ms|us|[smhd]))+|[0-9]+(?:\.[0-9]+)?)", re.IGNORECASE)
_DURATION_PART: Final = re.compile(r"([0-9.]+)([a-z]*)", re.IGNORECASE)
_SIZE_UNITS: Final = {
    letter + suffix: base**power
    for power, letter in enumerate(("", "k", "m", "g", "t", "p"))
    for suffix, base in (("", 1000), ("b", 1000), ("i", 1024), ("ib", 1024))
    if letter or suffix in ("", "b")
}
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([a-z]*)", re.IGNORECASE)


def parse_duration(text: str) -> Duration:
    """`500ms`, `10s`, `5m`, `2h`, `1d`, `1h30m`; a plain number is seconds. ValueError for anything else."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{shorten(text)} is not a duration such as 500ms, 10s, 5m, 2h or 1d")
    parts = _DURATION_PART.findall(match[2].lower())
    micros = round(sum(Decimal(number) * _DURATION_UNITS[unit or "s"] for number, unit in parts))
    return Duration(micros=-micros if match[1] == "-" else micros)


def format_duration(duration: Duration) -> str:
    """The shortest exact text that `parse_duration` reads back: `90s`, `5m`, `1500ms`."""
    micros = duration.micros
    for unit, size in _DURATION_UNITS.items():
        if micros and micros % size == 0:
            return f"{micros // size}{unit}"
    return "0s"


def parse_size(text: str) -> int:
    """Bytes: `256MB`, `4GiB`, `512k`, `1.5G`; a plain number is bytes. ValueError for anything else.

    As in the SI and IEC 80000-13, k, M, G, T, P and KB, MB… are powers of 1000; Ki, Mi… and KiB, MiB… powers of 1024.
    Upper and lower case mean the same.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _SIZE_UNITS.get(match[2].lower())
    if match is None or unit is None:
        raise ValueError(f"{shorten(text)} is not a size such as 512k, 256MB or 4GiB")
    size: int = round(Decimal(match[1]) * unit)
    return size


def _duration(value: object) -> Duration:
    try:
        return parse_duration(value) if isinstance(value, str) else Duration.of(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise PydanticCustomError("duration_parsing", "not a duration") from None


def _size(value: object) -> object:
    try:
        return parse_size(value) if isinstance(value, str) else value
    except ValueError:
        raise PydanticCustomError("size_parsing", "not a size") from None


def _timedelta_text(texts: Sequence[str]) -> object:
    """A `timedelta` flag reads durations like all others; pydantic keeps its ISO forms (`PT5M`)."""
    try:
        return timedelta(microseconds=parse_duration(texts[-1]).micros)
    except ValueError:
        return texts[-1]


_DURATION_KIND: Final = _Kind("a duration", "DURATION", "10s", _last)
_SIZE_KIND: Final = _Kind("a size", "SIZE", "256MB", _last)

DurationOption: TypeAlias = Annotated[
    Duration, PlainValidator(_duration), PlainSerializer(format_duration, when_used="json"), _DURATION_KIND
]
"""A `Duration` written `500ms`, `10s`, `5m`, `2h` or `1d`; a number is seconds."""

SizeOption: TypeAlias = Annotated[int, BeforeValidator(_size), Field(ge=0), _SIZE_KIND]
"""A number of bytes, written `512k`, `256MB` or `4GiB` (see `parse_size`)."""


# --- the models ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _OnlyOn:
    """Marks a common flag that just one runner obeys: given to another it is refused, never ignored."""

    runner: str


# Names of flags that would hide what every model has.
_RESERVED: Final = frozenset({"help", "from_args", "from_known_args", "from_mapping", "view_as", "dump", "load"})


class PipelineOptions(BaseModel):
    """The flags every run has. Subclass it for a pipeline's own:

        class WordCount(tg.PipelineOptions):
            input: str
            limit: int = Field(10, description="how many words to print")

        options = WordCount.from_args()

    Frozen. Whatever doesn't fit (an unknown name, a value of another type, a missing one) raises OptionsError, from
    `from_args` and from the constructor alike.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, populate_by_name=True, loc_by_alias=False,
        ser_json_inf_nan="strings",
    )  # fmt: skip

    runner: str = Field("direct", description="which runner runs the pipeline")
    checks: Annotated[Literal["sample", "all", "off"], _OnlyOn("direct")] = Field(
        "sample",
        description="direct runner: check that steps leave their elements alone: for the first of each step and a thin "
        "sample after them, for all (which also tries CombineFns in other groupings), or not at all",
    )
    memory_budget: SizeOption | None = Field(
        None,
        description="what grouping may hold in memory before it spills to disk; a quarter of the machine's if none",
    )
    temp_dir: Path | None = Field(None, description="where spilled data goes; the system's temporary directory if none")
    type_check: Literal["build", "runtime", "off"] = Field(
        "build", description="check element types where steps meet; runtime also checks the elements"
    )
    allow_unsafe_triggers: bool = Field(False, description="accept triggers that may finish early and drop data")
    mode: Literal["batch", "streaming"] = Field(
        "batch",
        description="streaming treats bounded input as a stream: watermarks as the source gives them, early panes",
    )
    run_for: DurationOption | None = Field(None, description="stop an unbounded pipeline after this long")
    progress: Literal["auto", "on", "off"] = Field(
        "auto", description="show progress on stderr; auto does so on a terminal only"
    )

    # The author's and the runner's model this class was joined from, by which a pickled instance finds it again.
    _joined: ClassVar[tuple[type[PipelineOptions], str, type[PipelineOptions]] | None] = None

    @field_validator("memory_budget", "run_for")
    @classmethod
    def _more_than_nothing(cls, value: int | Duration | None) -> int | Duration | None:
        if value is not None and value <= type(value)(0):
            raise ValueError("must be more than 0")
        return value

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = _explain(error, type(self), str(values.get("runner", _runner_default(type(self)))))
            raise OptionsError("\n".join(problems.values())) from None

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        common = PipelineOptions.model_fields
        for name, field in cls.model_fields.items():
            if name in _RESERVED:
                raise OptionsError(f"{cls.__name__}.{name}: the name is taken by PipelineOptions; choose another")
            if name in common and field.annotation != common[name].annotation:
                raise OptionsError(
                    f"{cls.__name__}.{name}: {_spelling(name)} is a common flag and keeps its type; "
                    "give it another default, or choose another name"
                )

    @classmethod
    def from_args(cls, argv: Sequence[str] | None = None, **defaults: Any) -> Self:
        """The options that a command line gives (`sys.argv[1:]` if None), with `defaults` for what it leaves out.

        Flags of the chosen `--runner` are accepted beside those of `cls`; the result is then an instance of a subclass
        of `cls`. Of a flag given twice the last counts, lists gather. `--help` prints the flags and exits.
        Raises OptionsError that tells of every flag refused.
        """
        tokens = _tokens(argv)
        runner = _chosen_runner(cls, tokens, defaults)
        model = options_for(runner, cls)
        given = _parse(model, runner, tokens)
        if any(chunk[0] in ("--help", "-h") for chunk in given.rest):
            print(help_text(model))
            raise SystemExit(0)
        strange = [line for chunk in given.rest for line in _strange(chunk, model, runner, given)]
        return _build(model, runner, given, defaults, strange)

    @classmethod
    def from_known_args(cls, argv: Sequence[str] | None = None, **defaults: Any) -> tuple[Self, list[str]]:
        """Like `from_args`, but what isn't a flag of this run is handed back in order, for the script's own parser."""
        tokens = _tokens(argv)
        runner = _chosen_runner(cls, tokens, defaults)
        model = options_for(runner, cls)
        given = _parse(model, runner, tokens)
        return _build(model, runner, given, defaults, ()), [token for chunk in given.rest for token in chunk]

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Options from flags by name, those of the runner they name among them; OptionsError if they don't fit."""
        known = values.keys() <= cls.model_fields.keys()
        model = cls if known else options_for(str(values.get("runner", _runner_default(cls))), cls)
        return model(**values)

    def view_as(self, model: type[M]) -> M:
        """The same options as another model sees them: shared fields carried over, others at their defaults.

        A runner reads its own flags with it from options that know nothing of them. OptionsError if `model` requires
        a flag that these options don't have.
        """
        if isinstance(self, model):
            return self
        return model(**{name: getattr(self, name) for name in type(self).model_fields if name in model.model_fields})

    def dump(self) -> str:
        """JSON text that `load` reads back to equal options. OptionsError if a value doesn't survive the way."""
        try:
            text = self.model_dump_json()
            again = type(self).load(text)
        except (ValueError, OptionsError) as error:
            raise OptionsError(f"{type(self).__name__} can't be written as JSON: {error}") from None
        for name in type(self).model_fields:
            if getattr(again, name) != getattr(self, name):
                raise OptionsError(
                    f"{_spelling(name)}: {shorten(getattr(self, name))} doesn't survive being written as JSON"
                )
        return text

    @classmethod
    def load(cls, text: str) -> Self:
        """Options from what `dump` wrote, the flags of its runner among them; OptionsError if they don't fit."""
        try:
            values = json.loads(text)
        except ValueError as error:
            raise OptionsError(f"these options are no JSON: {error}") from None
        if not isinstance(values, dict):
            raise OptionsError(f"options are a JSON object of flags, not {shorten(values)}")
        return cls.from_mapping(values)

    def __reduce__(self) -> tuple[object, ...]:
        return _blank, self._joined or (type(self), None, None), self.__getstate__()


class RunnerOptions(PipelineOptions):
    """The base of a runner's own flags. A runner's model redeclares `runner` with its name as the default:

    class SparkOptions(RunnerOptions):
        runner: str = "spark"
        spark_master: str = Field("local[*]", description="where Spark runs")
    """


def options_for(runner: str, author: type[M]) -> type[M]:
    """A subclass of `author` (or itself) with the flags of `runner` too, and `runner` as default of `--runner`.

    OptionsError if there is no such runner, or if both declare the same flag.
    """
    joined: Any = _join(_author(author), runner, _runner_model(runner))
    return joined  # type: ignore[no-any-return]


def default_memory_budget() -> int:
    """Bytes: a quarter of what this machine, or the control group the process is confined to, has."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            total = min(total, int(Path(path).read_text()))
        except (OSError, ValueError):  # not Linux, another cgroup version, or "max": no limit there
            continue
    return total // 4


# --- joining an author's model with a runner's ---------------------------------------------------------------------


@cache
def _join(author: type[PipelineOptions], runner: str, model: type[PipelineOptions]) -> type[PipelineOptions]:
    for whole in (author, model):
        if issubclass(whole, author) and issubclass(whole, model) and _runner_default(whole) == runner:
            return whole
    bases = (author,) if issubclass(author, model) else (model,) if issubclass(model, author) else (author, model)
    if len(bases) == 2:
        same = {
            name
            for base in author.__mro__
            if issubclass(base, PipelineOptions) and issubclass(model, base)
            for name in base.model_fields
        }
        for name in author.model_fields:
            if name in model.model_fields and name not in same:
                raise OptionsError(
                    f"{author.__name__}.{name}: {_spelling(name)} is a flag of the {runner} runner; choose another name"
                )
    about = PipelineOptions.model_fields["runner"].description
    joined: Any = create_model(
        author.__name__,
        __base__=bases,
        __module__=author.__module__,
        __doc__=author.__doc__,
        runner=(str, Field(runner, description=about)),
    )
    joined._joined = (author, runner, model)
    return joined  # type: ignore[no-any-return]


def _author(model: type[PipelineOptions]) -> type[PipelineOptions]:
    """The model an author wrote, also of one that is already joined with a runner's."""
    joined = vars(model).get("_joined")
    return joined[0] if joined else model


def _blank(author: type[PipelineOptions], runner: str | None, model: type[PipelineOptions] | None) -> PipelineOptions:
    """What unpickling fills: a joined class has no name to be imported by, so it is joined anew."""
    cls = author if runner is None or model is None else _join(author, runner, model)
    return cls.__new__(cls)


def _runner_default(model: type[PipelineOptions]) -> str:
    return str(model.model_fields["runner"].default)


def _runner_model(runner: str) -> type[PipelineOptions]:
    names = runner_names()
    if runner not in names:
        near = difflib.get_close_matches(runner, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise OptionsError(f"unknown runner {shorten(runner)}: {hint}--runner takes one of {', '.join(names)}")
    try:
        return find_runner(runner).options_model() or PipelineOptions
    except Exception as error:  # whatever the import of a plugin may raise
        raise OptionsError(f"the {runner} runner can't be loaded: {error}") from error


def _foreign_flags(runner: str) -> dict[str, list[str]]:
    """The flags that other runners obey: field name -> their names."""
    foreign: dict[str, list[str]] = {}
    for name, only in _ONLY_ON.items():
        if only != runner:
            foreign[name] = [only]
    for other in sorted(runner_names()):
        try:
            names = _own_fields(_runner_model(other))
        except OptionsError:  # a broken plugin must not hide what is wrong with the flags
            continue
        if other != runner:
            for name in names:
                foreign.setdefault(name, []).append(other)
    return foreign


def _own_fields(model: type[PipelineOptions]) -> set[str]:
    return model.model_fields.keys() - PipelineOptions.model_fields.keys()


_ONLY_ON: Final = {
    name: mark.runner
    for name, field in PipelineOptions.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, _OnlyOn)
}


# --- reading a command line ----------------------------------------------------------------------------------------

_SHORT: Final = re.compile("-[A-Za-z]")
_BOOL_WORDS: Final = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})


@dataclass(frozen=True, slots=True)
class _Given:
    """What a command line gives: values by field, what is wrong by field, and in order what is no flag of this run."""

    values: dict[str, object]
    problems: dict[str, str]
    rest: list[list[str]]


def _tokens(argv: Sequence[str] | None) -> list[str]:
    if isinstance(argv, str):
        raise OptionsError(f"flags are a list of strings, not one string: shlex.split({shorten(argv)})")
    return list(sys.argv[1:] if argv is None else argv)


def _chosen_runner(model: type[PipelineOptions], tokens: Sequence[str], defaults: Mapping[str, object]) -> str:
    """`--runner` decides which flags there are, so it is looked for first; a value never starts with two dashes."""
    runner = str(defaults.get("runner", _runner_default(model)))
    for token, following in zip(tokens, [*tokens[1:], "--"]):
        if token == "--":
            break
        if token == "--runner" and not following.startswith("--"):
            runner = following
        elif token.startswith("--runner="):
            runner = token.removeprefix("--runner=")
    return runner


def _parse(model: type[PipelineOptions], runner: str, tokens: Sequence[str]) -> _Given:
    names = _names(model, runner)
    kinds = {name: _field_kind(field) for name, field in model.model_fields.items()}
    texts: dict[str, list[str]] = {}
    problems: dict[str, str] = {}
    rest: list[list[str]] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        at += 1
        if token == "--":
            rest.append(list(tokens[at - 1 :]))
            break
        spelled, equals, text = token[2:].partition("=")
        following = tokens[at] if not equals and at < len(tokens) and not tokens[at].startswith("--") else None
        if not token.startswith("--"):
            swallow = _SHORT.match(token) is not None and following is not None
            rest.append([token, *tokens[at : at + swallow]])
            at += swallow
            continue
        match names.get(spelled.replace("-", "_")):
            case None:
                rest.append([token] if following is None else [token, following])
                at += following is not None
            case name, True if equals:
                problems[name] = f"{_negated(name)} takes no value: write {_spelling(name)}={text}"
            case name, negated if kinds[name].is_bool:
                if following is not None and following.lower() in _BOOL_WORDS:
                    problems[name] = f"{_spelling(name)} takes no separate value: write {_spelling(name)}={following}"
                    at += 1
                texts.setdefault(name, []).append(text if equals else "false" if negated else "true")
            case name, _:
                if equals or following is not None:
                    texts.setdefault(name, []).append(text if following is None else following)
                    at += following is not None
                else:
                    problems[name] = _needs_value(model, name)
                    if at < len(tokens) and tokens[at][2:].partition("=")[0].replace("-", "_") not in names:
                        problems[name] += (
                            f"; a value that starts with two dashes is written {_spelling(name)}={tokens[at]}"
                        )
    return _Given({name: kinds[name].read(given) for name, given in texts.items()}, problems, rest)


def _names(model: type[PipelineOptions], runner: str) -> dict[str, tuple[str, bool]]:
    """How flags are written, `-` as `_` and without the dashes in front -> (field, whether negated)."""
    names = {}
    for name, field in model.model_fields.items():
        if _ONLY_ON.get(name, runner) == runner:
            if _field_kind(field).is_bool:
                names[_negated(name)[2:]] = (name, True)
            names[_spelling(name)[2:]] = (name, False)
    # A flag of one's own called no_x wins over the negation of x.
    return names | {_spelling(name)[2:]: (name, False) for name, _ in names.values()}


def _build(model: type[M], runner: str, given: _Given, defaults: Mapping[str, object], strange: Sequence[str]) -> M:
    """The options, or one OptionsError that tells of everything wrong."""
    foreign = _foreign_flags(runner) if defaults.keys() - model.model_fields.keys() else {}
    # A script's default for a flag of another runner waits for the run that chooses that runner.
    fitting = {name: value for name, value in defaults.items() if name in model.model_fields or name not in foreign}
    options = model.__new__(model)
    problems = dict(given.problems)
    try:
        BaseModel.__init__(options, **(fitting | given.values | {"runner": runner}))
    except ValidationError as error:
        problems = _explain(error, model, runner) | problems
    if strange or problems:
        raise OptionsError("\n".join([*strange, *problems.values()]))
    return options


# --- saying what is wrong ------------------------------------------------------------------------------------------


def _explain(error: ValidationError, model: type[PipelineOptions], runner: str) -> dict[str, str]:
    """One line for each field that pydantic refused."""
    problems: dict[str, str] = {}
    for fault in error.errors(include_url=False):
        name = str(fault["loc"][0]) if fault["loc"] else ""
        if name not in problems:
            problems[name] = _fault(model, runner, name, fault["type"], fault["msg"], fault["input"])
    return problems


def _fault(model: type[PipelineOptions], runner: str, name: str, kind: str, message: str, given: object) -> str:
    message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ").removeprefix("Input ")
    if kind == "extra_forbidden" and name not in model.model_fields:
        return _unknown(model, runner, name)
    if name not in model.model_fields:
        return message
    takes, spelled = _field_kind(model.model_fields[name]).takes, _spelling(name)
    if kind == "missing":
        return f"{spelled} is required: it takes {takes}{_example(model, name)}"
    if kind.endswith(("_type", "_parsing", "_from_float", "literal_error")) or kind == "enum":
        return f"{spelled} takes {takes}, not {shorten(given)}{_example(model, name)}"
    return f"{spelled} can't be {shorten(given)}: {message}{_example(model, name)}"


def _example(model: type[PipelineOptions], name: str) -> str:
    """`, for example --limit 10`: the first example that the field itself accepts, or nothing."""
    field = model.model_fields[name]
    kind = _field_kind(field)
    for text in [*(_text(example, kind) for example in field.examples or ()), kind.example]:
        try:
            BaseModel.__init__(model.__new__(model), **{name: kind.read([text])})
        except ValidationError as error:
            if any(fault["loc"][:1] == (name,) for fault in error.errors()):
                continue
        return f", for example {_spelling(name)}{'=' if kind.is_bool else ' '}{text}"
    return ""


def _needs_value(model: type[PipelineOptions], name: str) -> str:
    takes = _field_kind(model.model_fields[name]).takes
    return f"{_spelling(name)} needs a value: it takes {takes}{_example(model, name)}"


def _strange(chunk: Sequence[str], model: type[PipelineOptions], runner: str, given: _Given) -> list[str]:
    """What to say of something on the command line that is no flag of this run."""
    first = chunk[0]
    if first == "--":
        return [_positional(text, model, given) for text in chunk[1:]]
    if first.startswith("--"):
        return [_unknown(model, runner, first[2:].partition("=")[0])]
    if _SHORT.match(first):
        known = _names(model, runner).get(first[1:].partition("=")[0].replace("-", "_"))
        hint = f", as in -{first}" if known else "; --help lists them"
        return [f"unknown flag {first}: flags start with two dashes{hint}"]
    return [_positional(first, model, given)]


def _positional(text: str, model: type[PipelineOptions], given: _Given) -> str:
    open_flags = (flag for flag in flags(model) if flag.required and flag.name not in given.values)
    flag = next((flag for flag in open_flags if flag.metavar in ("TEXT", "PATH")), None)
    hint = f"did you mean {flag.spelling} {text}?" if flag else "write it as --name VALUE; --help lists the flags"
    return f"unexpected argument {shorten(text)}: every value belongs to a flag; {hint}"


def _unknown(model: type[PipelineOptions], runner: str, spelled: str) -> str:
    foreign = {_spelling(name)[2:]: runners for name, runners in _foreign_flags(runner).items()}
    plain = spelled.replace("-", "_")
    if owners := foreign.get(plain) or foreign.get(plain.removeprefix("no_")):
        choices = " or ".join(f"--runner {owner}" for owner in owners)
        return (
            f"--{spelled} is a flag of the {' and '.join(owners)} runner{'s' if len(owners) > 1 else ''}, "
            f"but this run is on {runner}: add {choices}, or leave the flag out"
        )
    own = _names(model, runner)
    near = difflib.get_close_matches(plain.lower(), [*own, "help", *foreign], n=1)
    if not near:
        return f"unknown flag --{spelled}; --help lists those there are"
    whose = f" (a flag of the {foreign[near[0]][0]} runner)" if near[0] not in {*own, "help"} else ""
    return f"unknown flag --{spelled}: did you mean --{near[0]}{whose}?"


# --- flags, as parser and help see them ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Flag:
    """One flag of a model. `name` is the field; `spelling` (`--memory_budget`) and `aliases` are how it is written."""

    name: str
    spelling: str
    aliases: tuple[str, ...]
    takes: str
    metavar: str
    default: str | None
    required: bool
    is_bool: bool
    multiple: bool
    help: str
    group: Literal["author", "common", "runner"]


def flags(model: type[PipelineOptions]) -> list[Flag]:
    """All flags of a model, in the order it declares them: the author's, the common ones, the runner's."""
    try:
        own = _own_fields(_runner_model(_runner_default(model)))
    except OptionsError:  # options of a runner that isn't installed can be listed all the same
        own = set()
    found = [_flag(model, name, field, own) for name, field in model.model_fields.items()]
    order = ("author", "common", "runner")
    return sorted(found, key=lambda flag: order.index(flag.group))


def help_text(model: type[PipelineOptions], width: int = 100) -> str:
    """What `--help` prints: every flag by group with what it takes, what it is for, and its default."""
    author = _author(model)
    titles = {
        "author": f"Flags of {author.__name__}",
        "common": "Common flags",
        "runner": f"Flags of the {_runner_default(model)} runner",
    }
    about = "" if author is PipelineOptions or not author.__doc__ else textwrap.dedent(author.__doc__).strip()
    lines = [about, ""] if about else []
    every = flags(model)
    for group, title in titles.items():
        members = [flag for flag in every if flag.group == group]
        if members:
            lines += [f"{title}:", *(line for flag in members for line in _help_lines(flag, width)), ""]
    lines.append("Flags may be written with - or _, as --name VALUE or --name=VALUE.")
    return "\n".join(lines)


def _help_lines(flag: Flag, width: int) -> list[str]:
    head = f"  {flag.spelling} {flag.metavar}".rstrip()
    if flag.is_bool and (negated := next((alias for alias in flag.aliases if alias == _negated(flag.name)), None)):
        head += f" | {negated}"
    note = "required" if flag.required else f"default: {flag.default}" if flag.default else ""
    if flag.multiple:
        note = "may be repeated" + (f"; {note}" if note else "")
    text = " ".join(part for part in (flag.help.strip(), f"({note})" if note else "") if part)
    column = 30
    body = textwrap.wrap(text, width - column) or [""]
    if len(head) < column - 1:
        body[0] = head.ljust(column) + body[0]
        return [body[0], *(" " * column + line for line in body[1:])]
    return [head, *(" " * column + line for line in body if line)]


def _flag(model: type[PipelineOptions], name: str, field: FieldInfo, runner_fields: set[str]) -> Flag:
    kind = _field_kind(field)
    spellings = [_spelling(name)]
    if kind.is_bool and _negated(name)[2:] not in model.model_fields:
        spellings.append(_negated(name))
    every = dict.fromkeys(text for plain in spellings for text in (plain, "--" + plain[2:].replace("_", "-")))
    return Flag(
        name=name,
        spelling=spellings[0],
        aliases=tuple(every)[1:],
        takes=kind.takes,
        metavar=kind.metavar,
        default=None if field.is_required() or field.default_factory else _text(field.default, kind),
        required=field.is_required(),
        is_bool=kind.is_bool,
        multiple=kind.multiple,
        help=field.description or "",
        group="common" if name in PipelineOptions.model_fields else "runner" if name in runner_fields else "author",
    )


def _spelling(name: str) -> str:
    """`--name`; a field called after a keyword, `from_`, is `--from`."""
    return "--" + (name[:-1] if name.endswith("_") and keyword.iskeyword(name[:-1]) else name)


def _negated(name: str) -> str:
    return "--no_" + _spelling(name)[2:]


def _text(value: object, kind: _Kind) -> str:
    """A default as one would write it."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case Duration():
            return format_duration(value)
        case timedelta():
            return format_duration(Duration.of(value))
        case int() if kind.metavar == "SIZE":
            return _size_text(value)
        case Enum():
            return _choice_text(value)
        case Mapping():
            return ",".join(f"{key}={_text(item, kind)}" for key, item in value.items())
        case list() | tuple() | set() | frozenset():
            return ",".join(_text(item, kind) for item in value)
    return str(value)


def _size_text(size: int) -> str:
    for unit in ("PiB", "PB", "TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "KB"):
        if size and size % _SIZE_UNITS[unit.lower()] == 0:
            return f"{size // _SIZE_UNITS[unit.lower()]}{unit}"
    return str(size)


# --- what types take -----------------------------------------------------------------------------------------------

_SIMPLE: Final[dict[object, _Kind]] = {
    str: _Kind("text", "TEXT", "TEXT", _last),
    Path: _Kind("a path", "PATH", "some/path", _last),
    int: _Kind("a whole number", "INT", "10", _last),
    float: _Kind("a number", "NUMBER", "0.5", _last),
    Decimal: _Kind("a number", "NUMBER", "0.5", _last),
    bool: _Kind("true or false", "", "true", _last, is_bool=True),
    timedelta: _Kind("a duration", "DURATION", "10s", _timedelta_text),
    datetime: _Kind("a date and time", "DATETIME", "2025-01-31T12:00:00Z", _last),
    date: _Kind("a date", "DATE", "2025-01-31", _last),
    bytes: _Kind("text", "TEXT", "TEXT", _last),
}
_LISTS: Final = (list, tuple, set, frozenset, Sequence, Iterable)


def _field_kind(field: FieldInfo) -> _Kind:
    return _marked(field.metadata) or _kind(field.annotation)


def _marked(marks: Iterable[object]) -> _Kind | None:
    return next((mark for mark in marks if isinstance(mark, _Kind)), None)


def _kind(annotation: Any) -> _Kind:
    origin, args = get_origin(annotation), get_args(annotation)
    if alias := getattr(annotation, "__value__", None) or getattr(annotation, "__supertype__", None):
        return _kind(alias)  # `type Name = …` and NewType
    if origin is Annotated:
        return _marked(args[1:]) or _kind(args[0])
    if origin in (Union, types.UnionType):
        return _union_kind([arg for arg in args if arg is not types.NoneType], optional=types.NoneType in args)
    if origin is Literal:
        return _choice_kind(args)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _choice_kind(tuple(annotation))
    if (origin or annotation) in _LISTS:
        members = set(args) - {...}
        return _list_kind(_kind(members.pop()) if len(members) == 1 else _SIMPLE[str])
    if (origin or annotation) in (dict, Mapping):
        return _pairs_kind(_kind(args[1]) if args else _SIMPLE[str])
    return _SIMPLE.get(annotation) or _other_kind(annotation)


def _union_kind(members: Sequence[Any], optional: bool) -> _Kind:
    """The first member that accepts the text; `T | None` takes `none` too where that can't be a text of T's."""
    kinds = [_kind(member) for member in members]
    kind = kinds[0]
    if len(kinds) > 1:
        adapters: list[TypeAdapter[Any]] = [TypeAdapter(member) for member in members]

        def first_accepting(texts: Sequence[str]) -> object:
            for kind, adapter in zip(kinds, adapters, strict=True):
                try:
                    return adapter.validate_python(kind.read(texts))
                except ValidationError:
                    continue
            return texts[-1]

        kind = _Kind(
            takes=" or ".join(dict.fromkeys(kind.takes for kind in kinds)),
            metavar="|".join(dict.fromkeys(kind.metavar or "true|false" for kind in kinds)),
            example=kind.example,
            read=first_accepting,
        )
    if not optional or any(text in kind.metavar for text in ("TEXT", "PATH", "none")):
        return kind
    read = kind.read
    return replace(kind, read=lambda texts: None if texts[-1].lower() == "none" else read(texts))


def _choice_kind(choices: Sequence[object]) -> _Kind:
    by_text = {
        text: choice for choice in choices if isinstance(choice, Enum) for text in (choice.name, str(choice.value))
    }
    names = [_choice_text(choice) for choice in choices]
    by_text |= dict(zip(names, choices, strict=True))  # type: ignore[arg-type]

    def read(texts: Sequence[str]) -> object:
        return by_text.get(texts[-1], texts[-1])

    return _Kind(f"one of {', '.join(names)}", "|".join(names), names[0], read)


def _choice_text(choice: object) -> str:
    """How a choice is written: an enum's member by its value if that is text, else by its name."""
    if isinstance(choice, Enum):
        return choice.value if isinstance(choice.value, str) else choice.name
    return "none" if choice is None else str(choice)


def _list_kind(element: _Kind) -> _Kind:
    """`--tag a --tag b`, `--tag a,b`, or as JSON where an element holds a comma: `--tag '["a,b"]'`."""

    def read(texts: Sequence[str]) -> object:
        items: list[object] = []
        for text in texts:
            if isinstance(listed := _json([text]), list):
                items += listed
            elif text:
                items += [element.read([part.strip()]) for part in text.split(",")]
        return items

    metavar = (element.metavar or "true|false") + ",…"
    return _Kind(f"a list, each {element.takes}", metavar, element.example, read, multiple=True)


def _pairs_kind(value: _Kind) -> _Kind:
    """`--conf key=value`, repeated, or JSON; no commas, which values of settings often hold."""

    def read(texts: Sequence[str]) -> object:
        pairs: dict[object, object] = {}
        for text in texts:
            key, equals, of_key = text.partition("=")
            if isinstance(listed := _json([text]), dict):
                pairs |= listed
            elif equals:
                pairs[key] = value.read([of_key])
            elif text:
                return text
        return pairs

    return _Kind("pairs key=value", "KEY=VALUE", f"key={value.example}", read, multiple=True)


def _other_kind(annotation: Any) -> _Kind:
    """Models, dataclasses and the like are given as JSON, types that pydantic reads from text (UUID, URLs) as that."""
    return _Kind(f"a value of type {getattr(annotation, '__name__', annotation)}", "VALUE", "", _json)


def _json(texts: Sequence[str]) -> object:
    if texts[-1].startswith(("{", "[")):
        try:
            return json.loads(texts[-1])
        except ValueError:
            pass
    return texts[-1]
