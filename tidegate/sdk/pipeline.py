"""`Pipeline` and `PCollection`, to which authors apply transforms.

Applying a transform appends nodes to the portable pipeline at once; nothing runs before `run()`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast, overload

from tidegate.sdk.errors import (
    BuildError,
    ExpandError,
    PicklingError,
    RunError,
    TidegateError,
    TidegateWarning,
    error_text,
)
from tidegate.sdk.interactive_hook import interactive
from tidegate.sdk.notebook import current_execution
from tidegate.sdk.options.defaults import DefaultOptions
from tidegate.sdk.options.script import (
    being_loaded,
    called_by_script,
    discard_stdout,
    reader_is_gone,
    replace_traceback,
)
from tidegate.sdk.portable import model as nodes
from tidegate.sdk.portable.seal import interrupt_message, located, seal, this_environment, warn_if_idle
from tidegate.sdk.run_settings import RunSettings
from tidegate.sdk.runner import Enough, PipelineResult, Runner, RunOptions
from tidegate.sdk.steps.applied_function import AppliedFunction, checked_function
from tidegate.sdk.steps.applied_steps import AppliedStep, AppliedSteps
from tidegate.sdk.steps.builder import Body, StepBuilder
from tidegate.sdk.steps.lookup import output_of, step_of
from tidegate.sdk.steps.pvalue import Applier, PValue
from tidegate.sdk.steps.transform import PTransform, Transform
from tidegate.sdk.typehints import hints
from tidegate.sdk.user_code.frames import author_frames, caller, raised_at, trim_refusals
from tidegate.sdk.user_code.never_run import PipelineUsage
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy

if TYPE_CHECKING:
    from types import TracebackType

    from tidegate.sdk.options.model import PipelineOptions
    from tidegate.sdk.time import Duration, DurationLike

T = TypeVar("T", covariant=True)
R = TypeVar("R")


class Pipeline(Applier):
    """A pipeline under construction.

    `runner` is a name, a Runner, or None to use the one in the options (`direct` by default). `options` are
    PipelineOptions, a mapping, or a list of flags. Without options, a pipeline created in the script itself reads the
    flags on the script's command line, including `--runner`; any other pipeline uses the defaults. As a context
    manager, the pipeline runs when the block ends without an exception.
    """

    def __init__(
        self,
        runner: str | Runner | None = None,
        options: PipelineOptions | DefaultOptions | Mapping[str, Any] | Sequence[str] | None = None,
        *,
        name: str = "pipeline",
    ) -> None:
        self.name = name
        self._settings = RunSettings(runner, options)
        self._steps = AppliedSteps()
        usage = None
        if being_loaded() is None and called_by_script():
            trim_refusals()
            usage = PipelineUsage(name, caller())
            usage.watch(self)
        self._builder = StepBuilder(self._steps, usage)
        self._result: PipelineResult | None = None
        self._nodes_run: tuple[nodes.Node, ...] | None = None

    @property
    def options(self) -> RunOptions:
        """The options as a model; if none were given, plain defaults, which avoid importing the model."""
        return self._settings.options

    @property
    def checks_types(self) -> bool:
        """Whether a step's input type is checked against the type it takes; `--type_check=off` disables this."""
        return self._settings.of_run.type_check != "off"

    @property
    def allows_unsafe_triggers(self) -> bool:
        """Whether triggers that may finish early and drop data are accepted: `--allow_unsafe_triggers`."""
        return self._settings.of_run.allow_unsafe_triggers

    @property
    def runner(self) -> str | Runner | None:
        """The runner it was created with, or its name; None if the options choose it."""
        return self._settings.runner

    @property
    def has_run(self) -> bool:
        """Whether a run has been started; `result` then returns it."""
        return self._result is not None

    @property
    def result(self) -> PipelineResult:
        """The last run, which may still be running. BuildError if there was none."""
        if self._result is None:
            raise BuildError("this pipeline has no result: it has not run. Call run(), or leave its `with` block")
        return self._result

    def has_been_run(self, result: PipelineResult) -> None:
        """Set the pipeline's `result` to a run that a command has started."""
        self._result = result

    @overload
    def __or__(self, transform: PTransform[Pipeline, R]) -> R: ...
    @overload
    def __or__(self, transform: Callable[[Pipeline], R]) -> R: ...
    def __or__(self, transform: Any) -> Any:
        return self.apply(transform, self)

    def apply(self, transform: Any, input: Any) -> Any:
        """Apply a PTransform, or a function from PCollection to PCollection, to `input`."""
        if not isinstance(transform, Transform):
            transform = AppliedFunction(checked_function(transform, caller()))
        builder, nodes_before = self._builder, len(self._steps.nodes)
        step = builder.begin(transform, input, caller())
        builder.enter(step)
        try:
            result = transform.expand(input)
            if type(transform) is AppliedFunction and len(self._steps.nodes) == nodes_before:
                transform.check_result(result)
        except BaseException as error:
            added = len(self._steps.nodes) != nodes_before
            builder.remove([step])  # so that its label is free again
            match error:
                case BuildError():
                    # The traceback is dropped, so the message names the refused line inside an author's `expand`.
                    inside = raised_at(error.__traceback__)
                    raise located(error, step.path, step.where, inside).with_traceback(None) from error.__cause__
                case Exception() if not isinstance(error, (TidegateError, TidegateWarning)):
                    advice = "" if added or type(transform) is not AppliedFunction else transform.advice_on(error)
                    trace = author_frames(error.__traceback__)
                    raise _expand_error(error, step, advice) from error.with_traceback(trace)
            raise
        finally:
            builder.leave()
        self._steps.results[step.path] = result
        return result

    def run(self) -> PipelineResult:
        """Check, plan and run the pipeline. On `direct`, a bounded pipeline has finished when this returns."""
        __tracebackhide__ = True  # for pytest
        return self.run_until(None)

    def run_until(self, enough: Enough | None) -> PipelineResult:
        """Like `run`, but a runner that supports it ends the run early, once `enough` is satisfied."""
        __tracebackhide__ = True  # for pytest
        PipelineUsage.used = True
        if (script := being_loaded()) is not None:
            return cast(PipelineResult, script.intercept(self))
        self._builder.remove_steps_of_earlier_runs(current_execution())
        options = self._settings.of_run
        runner = self._settings.chosen_runner()
        try:
            self._settings.check_flags()
            before, runner.enough = runner.enough, enough
            try:
                sealed = self.sealed()
                if runner.drops_unread:
                    warn_if_idle(sealed)
                self._result = runner.run(sealed, options)
                self._nodes_run = tuple(self._steps.nodes)
            finally:
                runner.enough = before
        except TidegateError as error:
            if isinstance(error, RunError):
                self._nodes_run = tuple(self._steps.nodes)
            # The message names the author's line; Tidegate's frames would only obscure it.
            if called_by_script() and isinstance(error.__cause__, BrokenPipeError) and reader_is_gone():
                discard_stdout()
                replace_traceback(error)  # `python script.py | head` needs no traceback
            raise error.with_traceback(None) from error.__cause__
        except KeyboardInterrupt as error:
            if called_by_script():
                replace_traceback(error, *interrupt_message(self.portable()))
            raise
        return self._result

    @contextmanager
    def running_on(self, runner: Runner) -> Iterator[None]:
        """A context in which the pipeline runs on `runner` instead of its configured one."""
        configured, self._settings.runner = self._settings.runner, runner
        try:
            yield
        finally:
            self._settings.runner = configured

    def leading_to(
        self, pcoll: PCollection[T], runner: str | Runner | None = None, run_for: Duration | None = None
    ) -> PCollection[T]:
        """The collection in a new pipeline that has only the steps upstream of it, and the same options.

        A run of it neither reads nor overwrites the state of this pipeline's runs. `runner` and `run_for` override
        this pipeline's."""
        PipelineUsage.used = True
        leading = self._builder.leading_to(pcoll.id)
        part = Pipeline(options=self.options, name=self.name)
        part._settings = self._settings.for_preview(runner, run_for)
        made = {out.collection for node in leading for out in node.outputs}
        part._builder.steps = part._steps = AppliedSteps(
            leading,
            {id: data for id, data in self._steps.collections.items() if id in made},
            {path: AppliedStep(path, step.where) for path, step in self._steps.by_path.items()},
        )
        return PCollection(part, pcoll.id, pcoll.tag, pcoll.element_type, pcoll.windowing, pcoll.is_bounded)

    def unread(self) -> list[PCollection[Any]]:
        """The collections that no step reads."""
        return [
            PCollection(self, data.id, out.tag, Any, data.windowing, data.bounded) for out, data in self._steps.unread()
        ]

    def sealed(self, *, values: bool = False) -> nodes.Pipeline:
        """The portable pipeline with the author's code pickled, and with `values` the elements of `Create` as well.

        Raises PicklingError, naming step and variable, when something can't be pickled.
        """
        if not self._steps.nodes:
            raise BuildError("this pipeline has no steps: apply one, such as `pipeline | tg.Create([1, 2, 3])`")
        return seal(self.portable(), values=values)

    def portable(self) -> nodes.Pipeline:
        """The portable pipeline in its present form, with the author's code still live."""
        PipelineUsage.used = True
        return nodes.Pipeline(
            tuple(self._steps.nodes), tuple(self._steps.collections.values()), this_environment(), name=self.name
        )

    def __repr__(self) -> str:
        steps = "1 step" if len(self._steps.nodes) == 1 else f"{len(self._steps.nodes)} steps"
        run = "not run" if self._result is None else f"run: {self._result.state.value}"
        return f"<Pipeline {self.name!r}: {steps}, {run}>"

    def _repr_html_(self) -> str:
        return interactive().pipeline_html(self)

    def __getitem__(self, label: str) -> PCollection[Any]:
        """The output of the step with that label path, or whose path ends in it: `p["count"].head(3)`.

        If the step has several outputs, the main one; `p["parse:bad"]` is its output `bad`. BuildError, listing the
        labels, if there is no such step, or if the step returns no collection, or several without a main one."""
        return cast(PCollection[Any], output_of(self._steps.results, label))

    def __delitem__(self, label: str) -> None:
        """Remove the step with that label, and every step downstream of it, from the pipeline: `del p["count"]`.

        BuildError if there is no such step, or if it is a part of another."""
        step = step_of(self._steps, label)
        if step.outer is not None:
            raise BuildError(
                f"{step.path!r} is a part of the step {step.outermost.path!r}, which can only be removed as one: "
                f"write del p[{step.outermost.path!r}]"
            )
        self._builder.remove(self._steps.with_derived([step]))

    __iter__: ClassVar[None] = None
    """A pipeline is not iterable, although it has `[label]`."""

    if not TYPE_CHECKING:  # otherwise type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            from tidegate.sdk import advice

            raise advice.no_attribute(self, name, advice.PIPELINE_METHODS)

    def __reduce__(self) -> NoReturn:
        raise PicklingError("a Pipeline can't be used inside a function: it exists only in the program that builds it")

    def __enter__(self) -> Self:
        if self._settings.wants_help:
            self.run()  # prints the help, before the steps can fail
        self._nodes_run = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        PipelineUsage.used = True
        if kind is not None:
            return
        if not self._ran_in_block():
            self.run()
        if self._result is not None:
            self._result.wait_until_finish()

    def _ran_in_block(self) -> bool:
        """Whether the author ran the pipeline inside its `with` block, so that it need not run again at the end.

        BuildError if steps were added after that run: it lacks them, and another run would repeat the others.
        """
        if self._nodes_run is None:
            return False
        run = {id(node) for node in self._nodes_run}
        added = next((node for node in self._steps.nodes if id(node) not in run), None)
        if added is not None:
            raise _not_run(self.name, added)
        return True

    def add(
        self,
        make: Callable[..., nodes.Node],
        outputs: Sequence[PCollection[Any]],
        inputs: Iterable[str] = (),
        **parts: Any,
    ) -> None:
        """Append the node of the primitive being applied; `outputs` are its PCollections, the main one first."""
        self._builder.add(make, outputs, inputs, **parts)

    @property
    def step(self) -> str:
        """The full label of the step being applied."""
        return self._builder.current.path

    def claim(self, written: Hashable, name: str) -> None:
        """Record that the current step writes `written`, called `name` in messages; BuildError if another step does."""
        self._builder.claim(written, name)

    def collection(
        self,
        tag: str = nodes.MAIN,
        *,
        element_type: Any = Any,
        windowing: WindowingStrategy = GLOBAL_DEFAULT,
        bounded: bool = True,
    ) -> PCollection[Any]:
        """A new PCollection on output `tag` of the primitive being applied."""
        path = self.step
        id = path if tag == nodes.MAIN else f"{path}:{tag}"
        return PCollection(self, id, tag, element_type, windowing, bounded)

    def retype(self, pcoll: PCollection[Any], element_type: Any) -> None:
        """Set a collection's element type, as `with_output_types` does."""
        pcoll.element_type = element_type
        self._steps.collections[pcoll.id] = pcoll.as_data()

    def drop_scratch(self, pcolls: Iterable[PCollection[Any]]) -> None:
        """In a notebook or at a prompt, remove the steps applied in the same expression that computes `pcolls`."""
        self._builder.drop_scratch(pcolls)


class PCollection(PValue, Generic[T]):
    """A collection that will exist when the pipeline runs. `pcoll | Map(f)` applies a step to it."""

    pipeline: Pipeline

    @overload
    def __or__(self, transform: PTransform[PCollection[T], R]) -> R: ...
    @overload
    def __or__(self, transform: Callable[[PCollection[T]], R]) -> R: ...
    def __or__(self, transform: Any) -> Any:
        return self.pipeline.apply(transform, self)

    def collect(
        self,
        *,
        limit: int | None = 1_000_000,
        include_window_info: bool = False,
        runner: str | Runner | None = None,
        run_for: DurationLike | None = None,
    ) -> list[T]:
        """Run the steps upstream of this collection and return all its elements, in the order the runner emits them.

        No sink is written. With `include_window_info`, the result has a `WindowedValue` for each element and window.
        `runner` overrides the pipeline's. For an unbounded collection, the result is what arrives within `run_for`
        (s). RunError if there are more than `limit` elements (None: no limit).
        """
        __tracebackhide__ = True
        try:
            return interactive().collect(
                self, limit=limit, include_window_info=include_window_info, runner=runner, run_for=run_for
            )
        finally:
            self.pipeline.drop_scratch([self])

    def head(
        self,
        n: int = 10,
        *,
        include_window_info: bool = False,
        runner: str | Runner | None = None,
        run_for: DurationLike | None = None,
    ) -> list[T]:
        """Like `collect`, for the first `n` elements that the run emits. If the runner can, it then stops reading."""
        __tracebackhide__ = True
        try:
            return interactive().head(self, n, include_window_info=include_window_info, runner=runner, run_for=run_for)
        finally:
            self.pipeline.drop_scratch([self])

    if not TYPE_CHECKING:  # otherwise type checkers would accept every attribute

        def __getattr__(self, name: str) -> Any:
            from tidegate.sdk import advice

            raise advice.no_attribute(self, name, advice.COLLECTION_METHODS)

    def __iter__(self) -> Iterator[T]:
        raise BuildError(
            f"{self._named} can't be iterated: it exists only while the pipeline runs. "
            "Apply a transform, such as tg.Map(print). To get several collections from a step, add "
            ".with_exception_handling() or .with_outputs(...) to it"
        )

    def __bool__(self) -> NoReturn:
        raise BuildError(
            f"{self._named} is neither true nor false: its contents are known only while the pipeline runs. To test "
            "whether a variable holds a collection, write `is not None`; to drop elements, tg.Filter(...)"
        )

    def __len__(self) -> NoReturn:
        raise BuildError(
            f"{self._named} has no length: its contents are known only while the pipeline runs. "
            "To count its elements, write `pcoll | tg.combiners.Count.Globally()`"
        )

    def __contains__(self, element: object) -> NoReturn:
        raise BuildError(
            f"{self._named} can't be searched with `in`: its contents are known only while the pipeline runs. "
            "Apply tg.Filter(...), or pass it as a side input"
        )

    def __reduce__(self) -> NoReturn:
        raise PicklingError(
            f"{self._named} can't be used inside a function: it exists only while the pipeline runs. "
            "Pass its values as a side input, such as tg.Map(f, tg.AsList(pcoll))"
        )

    @property
    def _named(self) -> str:
        return f"PCollection({self.id!r})"

    def __repr__(self) -> str:
        facts = ["bounded" if self.is_bounded else "unbounded"]
        if self.windowing != GLOBAL_DEFAULT:
            from tidegate.sdk.drawing.graph import describe

            facts.append(describe(self.windowing.assigner))
        elements = "" if self.element_type is Any else f" of {hints.type_name(self.element_type)}"
        return f"<PCollection {self.id!r}{elements}: {', '.join(facts)}>"

    def _repr_html_(self) -> str:
        return interactive().collection_html(self)


def capture(pipeline: Pipeline, variables: Sequence[PCollection[Any]], build: Callable[[], R]) -> tuple[R, Body]:
    """The result of `build`, and the steps that it applies to loop variables, which leave the pipeline."""
    return pipeline._builder.capture(variables, build)


def in_loop(pipeline: Pipeline) -> bool:
    """Whether the body of a loop is being built."""
    return pipeline._builder.in_loop


def are_bounded(pipeline: Pipeline, ids: Iterable[str]) -> bool:
    """Whether all of these collections end."""
    return all(pipeline._steps.collections[id].bounded for id in ids)


def _not_run(pipeline: str, added: nodes.Node) -> BuildError:
    """The error for a step that was added after the pipeline was run inside its `with` block."""
    return BuildError(
        f"the pipeline {pipeline!r} was run inside its `with` block, and the step {added.label!r}, applied at "
        f"{added.where}, was added after that, so it has not run. The pipeline runs when the block ends: leave "
        "out run(); to see elements inside the block, use collect(), head(n) or tg.show(...)"
    )


def _expand_error(error: Exception, step: AppliedStep, advice: str) -> ExpandError:
    message = f"{type(error).__name__}: {error_text(error)}" + (advice and f". {advice}")
    raised = located(ExpandError(message), step.path, step.where)
    raised.args = (f"{raised}\n  while the pipeline was being built",)
    return raised
