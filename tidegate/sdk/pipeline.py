"""What authors write with: a Pipeline, the PCollections in it, and the PTransforms between them.

Applying a transform appends nodes to the portable pipeline at once; nothing runs before `run()`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NoReturn, Self, TypeVar, cast, overload

from tidegate.sdk.applied_steps import AppliedStep, AppliedSteps
from tidegate.sdk.errors import (
    BuildError,
    ExpandError,
    OptionsError,
    PicklingError,
    RunError,
    TidegateError,
    TidegateWarning,
    TypeCheckError,
    said,
    shorten,
)
from tidegate.sdk.interactive_hook import interactive
from tidegate.sdk.notebook import Execution, current_execution
from tidegate.sdk.options.defaults import DEFAULTS, DefaultOptions, replaced
from tidegate.sdk.options.registry import runner_names
from tidegate.sdk.options.script import (
    being_loaded,
    called_by_script,
    discard_stdout,
    end_in_words,
    reader_is_gone,
    script_flags,
)
from tidegate.sdk.portable import model as nodes
from tidegate.sdk.portable.integrity import reads
from tidegate.sdk.portable.seal import located, seal, this_environment, warned_if_idle, words_of_interrupt
from tidegate.sdk.runner import Enough, PipelineResult, Runner, RunOptions, find_runner
from tidegate.sdk.typehints import compatibility, hints
from tidegate.sdk.user_code.frames import Where, author_frames, caller, calling_instruction, raised_at, trim_refusals
from tidegate.sdk.user_code.keywords import Keywords
from tidegate.sdk.user_code.never_run import Fate
from tidegate.sdk.user_code.user_fn import UserFn, name_of
from tidegate.sdk.user_code.validation import warn
from tidegate.sdk.windowing.strategy import GLOBAL_DEFAULT, WindowingStrategy

if TYPE_CHECKING:
    from types import TracebackType

    from tidegate.sdk.options.model import PipelineOptions, ScriptFlags
    from tidegate.sdk.time import Duration, DurationLike

T = TypeVar("T", covariant=True)
R = TypeVar("R")
In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
A = TypeVar("A")
B = TypeVar("B")


class Pipeline:
    """A pipeline being written.

    `runner` is a name, a Runner, or None for what the options say (`direct` if they say nothing). `options` are
    PipelineOptions, a mapping, or a list of flags. Without options, a pipeline that is made in the script itself obeys
    the flags on the script's command line, `--runner` among them; anywhere else it has the defaults. As a context
    manager it runs when the block ends well.
    """

    def __init__(
        self,
        runner: str | Runner | None = None,
        options: PipelineOptions | DefaultOptions | Mapping[str, Any] | Sequence[str] | None = None,
        *,
        name: str = "pipeline",
    ) -> None:
        self.name = name
        self._runner = runner
        self._options = options
        self._script = _script_flags(runner) if options is None else None
        if self._script is not None:
            self._options = self._script.options
            if self._script.names_runner:
                self._runner = self._script.options.runner
        self._steps = AppliedSteps()
        self._scopes: list[AppliedStep] = [AppliedStep("", Where("", 0))]
        self._result: PipelineResult | None = None
        self._nodes_run: tuple[nodes.Node, ...] | None = None
        self._fate: Fate | None = None
        if being_loaded() is None and called_by_script():
            trim_refusals()
            self._fate = Fate(name, caller())
            self._fate.watch(self)

    @property
    def options(self) -> RunOptions:
        """The options given, as a model; the plain defaults if none were, without the cost of importing the model."""
        if self._options is None:
            return DEFAULTS
        from tidegate.sdk.options.model import PipelineOptions

        # Flags of the runner that was named beside them are flags of this run.
        named = {"runner": self._runner} if isinstance(self._runner, str) else {}
        match self._options:
            case PipelineOptions() | DefaultOptions():
                pass
            case Mapping():
                self._options = PipelineOptions.from_mapping({**named, **self._options})
            case str() | Sequence():
                self._options = PipelineOptions.from_args(self._options, **named)
            case other:
                raise OptionsError(f"options are PipelineOptions, a dict, or a list of flags, not {other!r}")
        return self._options

    @property
    def checks_types(self) -> bool:
        """Whether element types are compared where steps meet; `--type_check=off` says no."""
        return self.options.type_check != "off"

    @property
    def runner(self) -> str | Runner | None:
        """The runner it was made with, or its name; None: the options say."""
        return self._runner

    @property
    def has_run(self) -> bool:
        """Whether a run has been started, which `result` then is."""
        return self._result is not None

    @property
    def result(self) -> PipelineResult:
        """The last run, going on or over. BuildError if there was none."""
        if self._result is None:
            raise BuildError("this pipeline has no result: it has not run. Call run(), or leave its `with` block")
        return self._result

    def has_been_run(self, result: PipelineResult) -> None:
        """Make a run that a command has started the pipeline's `result`."""
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
            transform = _Applied(_callable(transform, caller()))
        scope = self._begin_step(transform, input, caller())
        before = len(self._steps.nodes)
        self._scopes.append(scope)
        try:
            result = transform.expand(input)
            if type(transform) is _Applied and len(self._steps.nodes) == before:
                transform.check_meant(result)
        except BaseException as error:
            added = len(self._steps.nodes) != before
            self._take_out([scope])  # a step that could not be applied leaves nothing behind, not even its label
            match error:
                case BuildError():
                    # With the traceback goes the line inside an `expand` of the author's that was refused.
                    inside = raised_at(error.__traceback__)
                    raise located(error, scope.path, scope.where, inside).with_traceback(None) from error.__cause__
                case Exception() if not isinstance(error, (TidegateError, TidegateWarning)):
                    advice = "" if added or type(transform) is not _Applied else transform.advice_on(error)
                    trace = author_frames(error.__traceback__)
                    raise _expand_error(error, scope, advice) from error.with_traceback(trace)
            raise
        finally:
            self._scopes.pop()
        self._steps.results[scope.path] = result
        return result

    def run(self) -> PipelineResult:
        """Check, plan and run. Bounded pipelines on `direct` have ended when it returns."""
        __tracebackhide__ = True  # for pytest
        return self.run_until(None)

    def run_until(self, enough: Enough | None) -> PipelineResult:
        """The same; where the runner can, it ends the run early when there is enough."""
        __tracebackhide__ = True  # for pytest
        Fate.used = True
        if (script := being_loaded()) is not None:
            return cast(PipelineResult, script.take(self))
        self._replace_own_of_cell(current_execution(), ())
        options = self.options
        runner = self._chosen()
        try:
            if self._script is not None:
                self._script.check(_OWN_FLAGS)
            before, runner.enough = runner.enough, enough
            try:
                sealed = self.sealed()
                self._result = runner.run(warned_if_idle(sealed) if runner.drops_unread else sealed, options)
                self._nodes_run = tuple(self._steps.nodes)
            finally:
                runner.enough = before
        except TidegateError as error:
            if isinstance(error, RunError):
                self._nodes_run = tuple(self._steps.nodes)
            # The message tells where it comes from; Tidegate's own frames would only bury the author's.
            if called_by_script() and isinstance(error.__cause__, BrokenPipeError) and reader_is_gone():
                discard_stdout()
                end_in_words(error)  # `python script.py | head` is no failure to tell of
            raise error.with_traceback(None) from error.__cause__
        except KeyboardInterrupt as error:
            if called_by_script():
                end_in_words(error, *words_of_interrupt(self.portable()))
            raise
        return self._result

    def leading_to(
        self, pcoll: PCollection[T], runner: str | Runner | None = None, run_for: Duration | None = None
    ) -> PCollection[T]:
        """The collection in a pipeline of its own, which has only the steps that lead to it.

        It runs on this pipeline's runner, or on the one that is named, with the same options, but apart from what
        runs of this pipeline keep. `run_for` comes before that of the options.
        """
        Fate.used = True
        part = Pipeline(runner or self._runner, self.options, name=self.name)
        part._script = self._script
        options = part._chosen().apart(self.options)
        part._options = options if run_for is None else replaced(options, run_for=run_for)
        _check_there(pcoll)
        leading = self._steps.leading_to(pcoll.id)
        made = {out.collection for node in leading for out in node.outputs}
        part._steps = AppliedSteps(
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

    def _chosen(self) -> Runner:
        return self._runner if isinstance(self._runner, Runner) else _named(self._runner or self.options.runner)

    def sealed(self, *, values: bool = False) -> nodes.Pipeline:
        """The portable pipeline, the author's code pickled; with `values`, those of Create too.

        Raises PicklingError, naming step and variable, when something can't travel.
        """
        if not self._steps.nodes:
            raise BuildError("this pipeline has no steps: apply one, such as `pipeline | tg.Create([1, 2, 3])`")
        return seal(self.portable(), values=values)

    def portable(self) -> nodes.Pipeline:
        """The portable pipeline as it stands, code still live."""
        Fate.used = True
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
        """The output of the step of that label path, or whose path ends so: `p["count"].head(3)`.

        Of a step with several outputs the main one; `p["parse:bad"]` is its output `bad`. BuildError, with the labels
        there are, if there is no such step, or if it gives no collection, or several without a main one.
        """
        return _output_of(self._steps.results, label)

    def __delitem__(self, label: str) -> None:
        """Take the step of that label out of the pipeline, with every step that reads what it makes, as if none of them
        had been applied: `del p["count"]`. BuildError if there is no such step, or if it is a part of another."""
        step = _step_of(self._steps, label)
        if step.outer is not None:
            raise BuildError(
                f"{step.path!r} is a part of the step {step.outermost.path!r}, which is taken out as a whole: "
                f"write del p[{step.outermost.path!r}]"
            )
        self._take_out(self._steps.with_derived([step]))

    __iter__: ClassVar[None] = None
    """A pipeline is no sequence, although it has `[label]`."""

    if not TYPE_CHECKING:  # else every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            from tidegate.sdk import advice

            raise advice.no_attribute(self, name, advice.PIPELINE_METHODS)

    def __reduce__(self) -> NoReturn:
        raise PicklingError("a Pipeline can't go into a function: it exists only where it is written")

    def __enter__(self) -> Self:
        if self._script is not None and self._script.wants_help:
            self.run()  # which gives help, before anything can go wrong
        self._nodes_run = None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        Fate.used = True
        if kind is not None:
            return
        if not self._ran_in_block():
            self.run()
        if self._result is not None:
            self._result.wait_until_finish()

    def _ran_in_block(self) -> bool:
        """Whether the author has run the pipeline inside its `with` block, at whose end it need not run again then.

        BuildError if steps have been added since: the run that has been lacks them, and another repeats the others.
        """
        if self._nodes_run is None:
            return False
        run = {id(node) for node in self._nodes_run}
        added = next((node for node in self._steps.nodes if id(node) not in run), None)
        if added is not None:
            raise BuildError(
                f"the pipeline {self.name!r} was run inside its `with` block, and the step {added.label!r}, applied at "
                f"{added.where}, was added after that, so it has not run. The pipeline runs when the block ends: leave "
                "out run(); to look at elements inside the block, use collect(), head(n) or tg.show(...)"
            )
        return True

    def add(
        self,
        make: Callable[..., nodes.Node],
        outputs: Iterable[PCollection[Any]],
        inputs: Iterable[str] = (),
        **parts: Any,
    ) -> None:
        """Append the node of the primitive being applied; `outputs` are its PCollections, the main one first."""
        scope = self._scopes[-1]
        outputs = list(outputs)
        node = make(
            label=scope.path,
            where=scope.where,
            composite=self._scopes[-2].path,
            inputs=tuple(inputs),
            outputs=tuple(nodes.Output(out.tag, out.id) for out in outputs),
            numbered=any(s.numbered for s in self._scopes),
            **parts,
        )
        for id in reads(node):
            if id not in self._steps.collections:
                raise BuildError(_gone(id))
        self._steps.nodes.append(node)
        if self._fate is not None:
            self._fate.steps += 1
        for out in outputs:
            self._steps.collections[out.id] = out.as_data()

    @property
    def step(self) -> str:
        """The full label of the step being applied."""
        return self._scopes[-1].path

    def claim(self, written: Hashable, name: str) -> None:
        """Note that the step being applied writes this; `name` is for people. BuildError if another step does."""
        step = self._scopes[-1]
        other = self._steps.claimed.get(written, step)
        if other is not step and self._may_replace(other, step):
            self._replace([other.outermost], (), step.where)
            other = step
        self._steps.claimed[written] = other
        if other is not step:
            raise BuildError(
                f"{name!r} is what the step {other.path!r}, applied at {other.where}, writes: one would overwrite the "
                "other's output. Give this step another name to write to, or write both collections in one step: "
                "`(a, b) | tg.Flatten() | ...`"
            )

    def collection(
        self,
        tag: str = nodes.MAIN,
        *,
        element_type: Any = Any,
        windowing: WindowingStrategy = GLOBAL_DEFAULT,
        bounded: bool = True,
    ) -> PCollection[Any]:
        """A PCollection that the primitive being applied makes, on output `tag`."""
        path = self._scopes[-1].path
        id = path if tag == nodes.MAIN else f"{path}:{tag}"
        return PCollection(self, id, tag, element_type, windowing, bounded)

    def retype(self, pcoll: PCollection[Any], element_type: Any) -> None:
        """Set what a collection holds, as `with_output_types` says."""
        pcoll.element_type = element_type
        self._steps.collections[pcoll.id] = pcoll.as_data()

    def drop_scratch(self, pcolls: Iterable[PCollection[Any]]) -> None:
        """Take out the steps that were applied in the very expression of a look at `pcolls`.

        Nothing can use them later, since nothing holds what they gave. Only in notebooks and at prompts, where a failed
        attempt would otherwise stay; steps that write, or that lead to others, stay there too.
        """
        execution, look = current_execution(), calling_instruction()
        if execution is None or look is None:
            return
        for pcoll in pcolls:
            leading = self._steps.leading_to(pcoll.id)
            scratch = {
                step
                for node in leading
                for step in [self._steps.by_path[node.label].outermost]
                if step.execution == execution and step.at is not None and step.at.in_one_expression_with(look)
            }
            derived = self._steps.with_derived(scratch)
            if set(derived) == scratch and not any(
                isinstance(node, nodes.Write) for node in self._steps.nodes_of(scratch)
            ):
                self._take_out(derived)

    def _begin_step(self, transform: Transform, input: Any, where: Where) -> AppliedStep:
        """The step that is about to be applied, under its own label; what it replaces is taken out."""
        outer = self._scopes[-1] if len(self._scopes) > 1 else None
        execution = current_execution() if outer is None else outer.execution
        inputs = _inputs(input)
        if transform.label is not None:
            _check_label(transform.label)
        name = transform.label or transform.default_label()
        path = label = f"{outer.path}/{name}" if outer is not None else name
        at = calling_instruction() if outer is None and execution is not None else None
        step = AppliedStep(path, where, outer=outer, execution=execution, at=at)
        try:
            for pcoll in inputs:
                _check_there(pcoll)
            if outer is None:
                self._replace_own_of_cell(execution, inputs, where)
            other = self._steps.by_path.get(path)
            if other is not None and transform.label:
                if not self._may_replace(other, step):
                    raise BuildError(f"there is a step {path!r} already: labels are unique, so give this one another")
                self._replace([other.outermost], inputs, where)
        except BuildError as error:
            raise located(error, path, where).with_traceback(None) from error.__cause__
        ordinal = 2
        while path in self._steps.by_path:
            path = f"{label}#{ordinal}"
            ordinal += 1
        step = replace(step, path=path, numbered=path != label)
        self._steps.by_path[path] = step
        return step

    def _may_replace(self, other: AppliedStep, step: AppliedStep) -> bool:
        """Whether a step that collides with another is a later version of it, as a variable assigned anew is."""
        return (
            step.execution is not None
            and other.execution is not None
            and other.execution != step.execution
            and step.outermost not in self._steps.with_derived([other.outermost])
        )

    def _replace_own_of_cell(
        self, execution: Execution | None, inputs: Sequence[PCollection[Any]], where: Where | None = None
    ) -> None:
        """In a cell that is run again, take out the steps that its earlier runs have applied."""
        if execution is None or execution.cell is None:
            return

        def of_earlier_run(step: AppliedStep) -> bool:
            earlier = step.execution
            return earlier is not None and earlier.cell == execution.cell and earlier != execution

        self._replace(self._steps.outermost(of_earlier_run), inputs, where)

    def _replace(
        self, steps: Sequence[AppliedStep], inputs: Sequence[PCollection[Any]], where: Where | None = None
    ) -> None:
        """Take out steps that are applied anew, and those that derive from them; warn of those that won't come back.

        BuildError if the new step is to read what is taken out.
        """
        if not steps:
            return
        gone = self._steps.with_derived(steps)
        made = self._steps.made_by(gone)
        for pcoll in inputs:
            if pcoll.id in made:
                raise BuildError(
                    f"this step takes the place of {steps[0].path!r}, applied at {steps[0].where}, and its input "
                    f"{pcoll.id!r} is what that step, or one after it, made. Run the cell first that gives the input "
                    "its first value, or give what this cell makes a name of its own"
                )
        self._take_out(gone)
        again = {step.execution for step in steps}
        others = [step for step in gone if step.execution not in again]
        if others:
            named = ", ".join(f"{step.path!r} ({step.where})" for step in others)
            warn(f"no longer in the pipeline, because what they read is applied anew: {named}. Run them again", where)

    def _take_out(self, steps: Sequence[AppliedStep]) -> None:
        made = self._steps.made_by(steps)
        for result in self._steps.take_out(steps):
            for pcoll in _collections_in(result):
                pcoll.is_gone = pcoll.is_gone or pcoll.id in made
        if self._fate is not None:
            self._fate.steps = len(self._steps.nodes)


class PCollection(Generic[T]):
    """A collection that will exist when the pipeline runs. `pcoll | Map(f)` makes the next one."""

    def __init__(
        self,
        pipeline: Pipeline,
        id: str,
        tag: str = nodes.MAIN,
        element_type: Any = Any,
        windowing: WindowingStrategy = GLOBAL_DEFAULT,
        bounded: bool = True,
    ) -> None:
        self.pipeline = pipeline
        self.id = id
        self.tag = tag
        self.element_type = element_type
        self.windowing = windowing
        self.is_bounded = bounded
        self.is_gone = False
        """Whether the step that made it has been taken out of the pipeline."""

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
        """Run the steps that lead here, and return all elements, in the order in which the runner gives them.

        No sink is written. `include_window_info` gives a `WindowedValue` for each element and window. `runner` is
        another than the pipeline's. Of an unbounded collection it returns what arrives in `run_for` (s). RunError if
        there are more than `limit` elements (None: no limit).
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
        """The same for the first `n` elements that the run gives; where it can, it stops reading then."""
        __tracebackhide__ = True
        try:
            return interactive().head(self, n, include_window_info=include_window_info, runner=runner, run_for=run_for)
        finally:
            self.pipeline.drop_scratch([self])

    def as_data(self) -> nodes.Collection:
        """This collection in the portable pipeline."""
        return nodes.Collection(self.id, self.is_bounded, self.windowing, type_ref(self.element_type))

    if not TYPE_CHECKING:  # else every name would be an attribute

        def __getattr__(self, name: str) -> Any:
            from tidegate.sdk import advice

            raise advice.no_attribute(self, name, advice.COLLECTION_METHODS)

    def __iter__(self) -> Iterator[T]:
        raise BuildError(
            f"{self._named} can't be iterated: it exists only while the pipeline runs. "
            "Apply a transform, such as tg.Map(print)"
        )

    def __bool__(self) -> NoReturn:
        raise BuildError(
            f"{self._named} is neither true nor false: what is in it is known only while the pipeline runs. To test "
            "whether a variable holds a collection, write `is not None`; to drop elements, tg.Filter(...)"
        )

    def __len__(self) -> NoReturn:
        raise BuildError(
            f"{self._named} has no length: what is in it is known only while the pipeline runs. "
            "To count its elements, write `pcoll | tg.combiners.Count.Globally()`"
        )

    def __contains__(self, element: object) -> NoReturn:
        raise BuildError(
            f"{self._named} can't be searched with `in`: what is in it is known only while the pipeline runs. "
            "Apply tg.Filter(...), or hand it over as a side input"
        )

    def __reduce__(self) -> NoReturn:
        raise PicklingError(
            f"{self._named} can't go into a function: it exists only while the pipeline runs. "
            "Hand its values over as a side input, such as tg.Map(f, tg.AsList(pcoll))"
        )

    @property
    def _named(self) -> str:
        return f"PCollection({self.id!r})"

    def __repr__(self) -> str:
        facts = ["bounded" if self.is_bounded else "unbounded"]
        if self.windowing != GLOBAL_DEFAULT:
            from tidegate.sdk.drawing.graph import spoken

            facts.append(spoken(self.windowing.assigner))
        held = "" if self.element_type is Any else f" of {hints.type_name(self.element_type)}"
        return f"<PCollection {self.id!r}{held}: {', '.join(facts)}>"

    def _repr_html_(self) -> str:
        return interactive().collection_html(self)


class Transform(Keywords):
    """A step under a label. Authors subclass `PTransform`; a step whose type shows best on `__call__`, this."""

    label: str | None = None
    input_type: Any = None
    output_type: Any = None

    def expand(self, input: Any) -> Any:
        """What the step is made of: apply transforms to `input` and return the last result."""
        raise NotImplementedError(f"{type(self).__name__}.expand is missing")

    def default_label(self) -> str:
        """The automatic label, from names alone: never from line numbers."""
        return type(self).__name__

    def with_label(self, label: str) -> Self:
        """The same under another label."""
        _check_label(label)
        labelled = copy.copy(self)
        labelled.label = label
        return labelled

    def __rrshift__(self, label: str) -> Self:
        return self.with_label(label)

    def __or__(self, other: object) -> NoReturn:
        """Refuse `tg.Create(...) | tg.Map(f)`, which has nothing to apply to."""
        later = other.default_label() if isinstance(other, Transform) else shorten(other, 40)
        raise BuildError(
            f"{self.default_label()} has not been applied to anything, so {later} can't follow it: begin with the "
            "pipeline, `p | tg.Create(...) | ...`, or with a collection, `pcoll | tg.Map(...) | ...`"
        )

    def with_input_types(self, hint: Any) -> Self:
        """Say what elements the step takes; checked against what comes in."""
        typed = copy.copy(self)
        typed.input_type = hint
        return typed

    def with_output_types(self, hint: Any) -> Self:
        """Say what elements the step gives."""
        typed = copy.copy(self)
        typed.output_type = hint
        return typed

    def check_input(self, actual: Any, wanted: Any, what: str) -> None:
        """Raise TypeCheckError if elements of type `actual` can't be what `what` wants."""
        reason = compatibility.clash(actual, wanted)
        if reason:
            raise TypeCheckError(
                f"{what} takes {hints.type_name(wanted)}, but its input holds {hints.type_name(actual)}: {reason}. "
                "If the annotation is wrong, correct it, or say .with_input_types(...)"
            )


class PTransform(Transform, Generic[In, Out]):
    """A step, or several under one name. Subclass and override `expand`."""

    def expand(self, input: In) -> Out:
        """What the step is made of: apply transforms to `input` and return the last result."""
        raise NotImplementedError(f"{type(self).__name__}.expand is missing")

    def __ror__(self, inputs: tuple[Any, ...] | list[Any] | dict[str, Any]) -> Any:
        """`(a, b) | Join()`: a transform of several collections."""
        return pipeline_of(inputs, self).apply(self, inputs)


def pipeline_of(inputs: Any, transform: Transform) -> Pipeline:
    """The one pipeline that all of `inputs` belong to; BuildError if there is none, or more than one."""
    found: dict[int, Pipeline] = {}
    parts = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, (tuple, list)) else ()
    for part in parts:
        if isinstance(part, (PCollection, Pipeline)):
            pipeline = part if isinstance(part, Pipeline) else part.pipeline
            found[id(pipeline)] = pipeline
        else:
            raise BuildError(f"{transform.default_label()} takes PCollections, not {type(part).__name__}")
    if len(found) != 1:
        problem = "PCollections of two different pipelines" if found else f"no PCollection in {inputs!r}"
        raise BuildError(f"{transform.default_label()}: {problem}")
    return next(iter(found.values()))


def _inputs(input: Any) -> list[PCollection[Any]]:
    """The collections that a step is applied to, without iterating what may be iterated only once."""
    match input:
        case PCollection():
            return [input]
        case Mapping():
            return [part for part in input.values() if isinstance(part, PCollection)]
        case tuple() | list():
            return [part for part in input if isinstance(part, PCollection)]
        case _:
            return []


def _check_there(pcoll: PCollection[Any]) -> None:
    if pcoll.is_gone:
        raise BuildError(_gone(pcoll.id))


def _gone(id: str) -> str:
    return (
        f"PCollection({id!r}) is no longer in the pipeline: the step that made it, or one before that, has been "
        "deleted or applied anew. Apply its step again; in a notebook, run its cell again"
    )


def _step_of(steps: AppliedSteps, label: str) -> AppliedStep:
    """The step of that label, or the only one whose label path ends in it."""
    if not isinstance(label, str):
        raise BuildError(f"a pipeline's steps are found by their labels, as in p['count'], not by {shorten(label)}")
    paths = [label] if label in steps.by_path else [path for path in steps.by_path if path.endswith("/" + label)]
    if len(paths) > 1:
        raise BuildError(f"several steps end in {label!r}: write one of {', '.join(map(repr, paths))}")
    if not paths:
        raise BuildError(f"there is no step {label!r}{_near(label, steps.by_path)}")
    return steps.by_path[paths[0]]


def _output_of(results: Mapping[str, Any], label: str) -> PCollection[Any]:
    """The collection of that id, or the (main) output of the step of that label or end of a label path."""
    if not isinstance(label, str):
        raise BuildError(f"a pipeline's steps are found by their labels, as in p['count'], not by {shorten(label)}")
    paths = [label] if label in results else [path for path in results if path.endswith("/" + label)]
    if len(paths) > 1:
        raise BuildError(f"several steps end in {label!r}: write one of {', '.join(map(repr, paths))}")
    if not paths:
        made = {pcoll.id: pcoll for result in results.values() for pcoll in _collections_in(result)}
        ids = [label] if label in made else [id for id in made if id.endswith("/" + label)]
        if len(ids) == 1:
            return made[ids[0]]
        raise BuildError(f"there is no step {label!r}{_near(label, [*results, *made])}")
    found = _collections_in(results[paths[0]])
    main = [pcoll for pcoll in found if len(found) == 1 or pcoll.id == paths[0]]
    if main:
        return main[0]
    if not found:
        raise BuildError(f"the step {paths[0]!r} gives no collection")
    ids = list(dict.fromkeys(pcoll.id for pcoll in found))
    raise BuildError(f"the step {paths[0]!r} gives several collections: write one of {', '.join(map(repr, ids))}")


def _collections_in(result: Any) -> list[PCollection[Any]]:
    """The collections that a step has given: one, or those in a tuple, a mapping or several outputs."""
    match result:
        case PCollection():
            return [result]
        case str() | bytes() | Pipeline():
            return []
        case Mapping():
            return [pcoll for part in result.values() for pcoll in _collections_in(part)]
        case Iterable():
            return [pcoll for part in result for pcoll in _collections_in(part)]
        case _:
            return []


def _near(label: str, known: Iterable[str]) -> str:
    import difflib

    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(label, names, n=1)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; there are: {', '.join(map(repr, names))}" if names else ": nothing has been applied yet"


def _expand_error(error: Exception, scope: AppliedStep, advice: str) -> ExpandError:
    message = f"{type(error).__name__}: {said(error)}" + (advice and f". {advice}")
    raised = located(ExpandError(message), scope.path, scope.where)
    raised.args = (f"{raised}\n  while the pipeline was being built",)
    return raised


_OWN_FLAGS: Final = (
    "This pipeline takes its flags from the command line of its script. If the script reads that by itself, give the "
    "pipeline options, such as tg.Pipeline(options=[])"
)


def _script_flags(runner: object) -> ScriptFlags | None:
    """The flags of the script that the pipeline is made in; `runner` holds unless they name another."""
    tokens = script_flags()
    if not tokens:
        return None
    from tidegate.sdk.options.model import PipelineOptions, ScriptFlags

    name = runner.name if isinstance(runner, Runner) else runner
    known = isinstance(name, str) and (isinstance(runner, str) or name in runner_names())
    try:
        return ScriptFlags.read(tokens, PipelineOptions, {"runner": name} if known else {})
    except OptionsError as error:
        raise error.with_traceback(None) from None


def _named(runner: object) -> Runner:
    match runner:
        case str():
            return find_runner(runner)
        case type() if issubclass(runner, Runner):
            raise OptionsError(f"{runner.__name__} is a class: write {runner.__name__}()")
        case _:
            raise OptionsError(f"runner is a name or a Runner, not {runner!r}; there are: {', '.join(runner_names())}")


def _check_label(label: object) -> None:
    if not label or not isinstance(label, str):
        raise BuildError(f"a label is a string that says something, not {label!r}")


def _callable(transform: Any, where: Where) -> Callable[[Any], Any]:
    """What was applied, if it is a function; BuildError, saying what to write, if it is no step at all."""
    problem = _why_no_step(transform)
    if problem is not None:
        raise BuildError(f"{problem}\n  applied at {where}")
    return cast(Callable[[Any], Any], transform)


def _why_no_step(applied: Any) -> str | None:
    match applied:
        case type() if issubclass(applied, Transform):
            return f"{applied.__name__} is a class: write {applied.__name__}(...)"
        case _ if forms := _forms(applied if isinstance(applied, type) else type(applied)):
            return f"{forms[0].partition('.')[0]} is a family of steps: write {' or '.join(forms)}"
        case str():
            return f"{applied!r} is no step: a label goes before its step, as in {applied!r} >> tg.Map(f)"
    from tidegate.sdk.advice import instead_of_step

    instead = instead_of_step(applied)
    if instead is None and not callable(applied):
        return f"{applied!r} is not a transform: a step is a PTransform such as Map(f), or a function of a PCollection"
    return instead


def _forms(family: type) -> list[str]:
    """The steps of a class that only groups them, such as `Count.Globally()`; none for any other."""
    called = any("__call__" in vars(base) for base in family.__mro__)
    if called or not family.__module__.startswith("tidegate.transforms."):
        return []
    return [f"{family.__name__}.{name}(...)" for name, part in vars(family).items() if isinstance(part, staticmethod)]


class _Applied(PTransform[Any, Any]):
    """A plain function from PCollection to PCollection, as a step of its own name."""

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self.fn = fn

    def default_label(self) -> str:
        return name_of(self.fn)

    def expand(self, input: Any) -> Any:
        return self.fn(input)

    def check_meant(self, result: Any) -> None:
        """The function has applied no step. BuildError if it is one of an element; a warning if it gave nothing."""
        from tidegate.sdk.advice import per_element, wrong_result

        problem = wrong_result(self.fn, result)
        if problem is not None:
            raise BuildError(problem)
        if result is None:
            warn(f"{name_of(self.fn)} applied no step and gave nothing. {per_element(self.fn)}")

    def advice_on(self, error: Exception) -> str:
        """What to write if the function failed, before it applied a step, because it is one of an element."""
        from tidegate.sdk.advice import per_element

        return per_element(self.fn) if isinstance(error, (TypeError, AttributeError)) else ""


class _Composed(_Applied):
    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        super().__init__(fn)
        self.args = args
        self.kwargs = kwargs

    def expand(self, input: Any) -> Any:
        return self.fn(input, *self.args, **self.kwargs)


def ptransform_fn(fn: Callable[..., R]) -> Callable[..., PTransform[Any, R]]:
    """Make a function of a PCollection (and arguments) a transform: `pcoll | Count(3)` for `def Count(pcoll, n)`."""
    from functools import wraps

    @wraps(fn)
    def make(*args: Any, **kwargs: Any) -> PTransform[Any, R]:
        return _Composed(fn, args, kwargs)

    return make


def type_ref(hint: Any) -> nodes.TypeRef:
    """An element type as data."""
    return (
        nodes.TypeRef() if hint is Any else nodes.TypeRef(hints.type_name(hint), UserFn.of(hint, hints.type_name(hint)))
    )
