"""DoFn: element-wise code with a life cycle, and the parameters that can be injected into it.

A parameter is injected if its default is one of the markers on `DoFn` (with Beam's names); annotations have no effect.
Extra arguments of `Map` and the like may be the same markers, side inputs, or plain constants.

>>> def located(element, window=DoFn.WindowParam, unit="m"): ...
>>> bind(located, (), {"unit": "km"}).params
(Param(kind='element', keyword=None, ref=''), Param(kind='const', keyword='unit', ref='0'), \
Param(kind='window', keyword='window', ref=''))
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from tidegate.sdk import beam_names
from tidegate.sdk.authoring.side_inputs import SideInput
from tidegate.sdk.authoring.state import StateSpec, TimerSpec, describe_methods, methods_of, parameter_of, require_spec
from tidegate.sdk.errors import BuildError
from tidegate.sdk.user_code.user_fn import name_of

F = TypeVar("F", bound=Callable[..., Any])

ParamKind: TypeAlias = Literal[
    "element",
    "key",
    "timestamp",
    "window",
    "pane",
    "watermark",
    "clock",
    "const",
    "side",
    "state",
    "timer",
    "tag",
    "round",
]


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a call: the kind of value, and the keyword under which it is passed (None: the next position).

    `ref` is the name of the state cell or timer, or the number of the constant, side input or round.
    """

    kind: ParamKind
    keyword: str | None = None
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """A default value that requests injection."""

    kind: ParamKind
    spec: Any = None


class _DoFnMeta(ABCMeta):
    """The metaclass of `DoFn`: the error for a Beam marker that has another name here, or a misspelt one, suggests
    one."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if cls.__module__ == __name__ or name in beam_names.DOFN:
                known = (each for each in vars(DoFn) if not each.startswith("_"))
                raise beam_names.no_such("tg.DoFn", "tg.DoFn", name, beam_names.DOFN, known)
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)


class DoFn(metaclass=_DoFnMeta):
    """Subclass and override `process`, which may return an iterable, be a generator, or return None.

    `setup` and `teardown` run once per worker, `start_bundle` and `finish_bundle` once per bundle. `finish_bundle`
    emits `WindowedValue`s; it may emit plain values only in the global window.
    """

    __tidegate_calls__ = "process"

    ElementParam: Any = Marker("element")
    KeyParam: Any = Marker("key")
    TimestampParam: Any = Marker("timestamp")
    WindowParam: Any = Marker("window")
    PaneInfoParam: Any = Marker("pane")
    WatermarkParam: Any = Marker("watermark")
    ProcessingTimeParam: Any = Marker("clock")
    TimerTagParam: Any = Marker("tag")
    RoundParam: Any = Marker("round")

    @staticmethod
    def StateParam(spec: StateSpec) -> Any:
        """Inject the state cell declared by `spec`."""
        require_spec(spec, StateSpec, "tg.DoFn.StateParam")
        return Marker("state", spec)

    @staticmethod
    def TimerParam(spec: TimerSpec) -> Any:
        """Inject the timer declared by `spec`."""
        require_spec(spec, TimerSpec, "tg.DoFn.TimerParam")
        return Marker("timer", spec)

    def setup(self) -> None:
        """Called once, before the first bundle, to acquire resources."""

    def start_bundle(self) -> None:
        """Called before the first element of each bundle."""

    def process(self, element: Any, *args: Any, **kwargs: Any) -> Iterable[Any] | None:
        """Called for each element; emits the items of the result."""
        raise NotImplementedError(f"{type(self).__name__}.process is missing")

    def finish_bundle(self) -> Iterable[Any] | None:
        """Called after the last element of each bundle."""
        return None

    def teardown(self) -> None:
        """Called once, after the last bundle, even if a bundle failed."""


def on_timer(spec: TimerSpec) -> Callable[[F], F]:
    """Mark a DoFn method as the callback of the timer declared by `spec`."""
    require_spec(spec, TimerSpec, "tg.on_timer")

    def mark(method: F) -> F:
        method.__tidegate_timer__ = spec.name  # type: ignore[attr-defined]
        return method

    return mark


def on_window_expiration(method: F) -> F:
    """Mark a DoFn method that is called when a window expires, just before its state is deleted."""
    method.__tidegate_expiration__ = True  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True, slots=True)
class Call:
    """How a user function is called: its arguments, and the constants, side inputs, cells and timers they refer to."""

    params: tuple[Param, ...]
    consts: tuple[Any, ...] = ()
    sides: tuple[SideInput, ...] = ()
    states: tuple[StateSpec, ...] = ()
    timers: tuple[TimerSpec, ...] = ()

    def kinds(self) -> frozenset[str]:
        """The kinds of the call's parameters."""
        return frozenset(param.kind for param in self.params)


@dataclass(slots=True)
class _Binding:
    params: list[Param] = field(default_factory=list)
    consts: list[Any] = field(default_factory=list)
    sides: list[SideInput] = field(default_factory=list)
    states: dict[str, StateSpec] = field(default_factory=dict)
    timers: dict[str, TimerSpec] = field(default_factory=dict)

    def add(self, value: Any, keyword: str | None) -> None:
        match value:
            case Marker(kind="state", spec=StateSpec() as spec):
                if self.states.setdefault(spec.name, spec) != spec:
                    raise BuildError(f"two different state cells are named {spec.name!r}")
                self.params.append(Param("state", keyword, spec.name))
            case Marker(kind="timer", spec=TimerSpec() as spec):
                if self.timers.setdefault(spec.name, spec) != spec:
                    raise BuildError(f"two different timers are named {spec.name!r}")
                self.params.append(Param("timer", keyword, spec.name))
            case Marker(kind=kind):
                self.params.append(Param(kind, keyword))
            case SideInput():
                self.sides.append(value)
                self.params.append(Param("side", keyword, str(len(self.sides) - 1)))
            case _:
                self.consts.append(value)
                self.params.append(Param("const", keyword, str(len(self.consts) - 1)))

    def call(self) -> Call:
        return Call(
            tuple(self.params),
            tuple(self.consts),
            tuple(self.sides),
            tuple(self.states.values()),
            tuple(self.timers.values()),
        )


def bind(fn: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, elements: int = 1) -> Call:
    """Bind the element(s), extra arguments and marker defaults of `fn` to one `Call`.

    `elements` is the number of leading arguments that the element supplies (-1 for a `MapTuple` whose elements have an
    unknown length). Raises BuildError if the arguments don't fit the function's signature.
    """
    binding = _Binding()
    if elements == 1:
        binding.params.append(Param("element"))
    for value in args:
        binding.add(value, None)
    passed = set(kwargs)
    for keyword, value in kwargs.items():
        binding.add(value, keyword)
    signature = signature_or_none(fn)
    if signature is None:
        return binding.call()
    filled = max(elements, 0) + len(args)
    positional = 0
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional += 1
            if elements >= 0 and positional <= filled:
                continue
        _refuse_bare(fn, parameter)
        if isinstance(parameter.default, Marker) and parameter.name not in passed:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise BuildError(
                    f"{name_of(fn)}: parameter {parameter.name!r} is injected, so it can't be positional-only"
                )
            binding.add(parameter.default, parameter.name)
            passed.add(parameter.name)
    _check_fits(fn, signature, elements, args, passed)
    _refuse_unknown_methods(fn, signature)
    return binding.call()


def bind_method(method: Any) -> Call:
    """Bind a timer or expiration callback: every parameter must have a marker default."""
    binding = _Binding()
    signature = signature_or_none(method)
    absent = {"element": "element", "pane": "pane"}
    if getattr(method, "__tidegate_timer__", None) is None:
        absent["tag"] = "timer"
    for parameter in signature.parameters.values() if signature else ():
        _refuse_bare(method, parameter)
        if not isinstance(parameter.default, Marker):
            raise BuildError(
                f"{name_of(method)}: parameter {parameter.name!r} needs a marker as its default, "
                f"such as DoFn.KeyParam or DoFn.StateParam(SPEC)"
            )
        if parameter.default.kind in absent:
            raise BuildError(
                f"{name_of(method)}: parameter {parameter.name!r} asks for the {absent[parameter.default.kind]}, but "
                "this method is called without one"
            )
        binding.add(parameter.default, parameter.name)
    if signature is not None:
        _refuse_unknown_methods(method, signature)
    return binding.call()


def check_life_cycle(dofn: DoFn) -> None:
    """Raise BuildError for a method of a DoFn's life cycle that takes arguments: it is called without any."""
    for name, when in _LIFE_CYCLE.items():
        method = getattr(dofn, name)
        if getattr(type(dofn), name) is getattr(DoFn, name):
            continue
        refuse_injection(method, f"{name} is called {when}, for no element: ask for it in process")
        signature = signature_or_none(method)
        for parameter in signature.parameters.values() if signature else ():
            if parameter.default is parameter.empty and parameter.kind not in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                raise BuildError(
                    f"{name_of(method)}: nothing is passed to {name}, so parameter {parameter.name!r} would have no "
                    f"value: pass it to the constructor of {type(dofn).__name__}"
                )


def refuse_injection(fn: Any, why: str) -> None:
    """Raise BuildError, with the reason, for a function that asks for something to be injected, where nothing is."""
    plain = getattr(fn, "__func__", fn)
    if not (getattr(plain, "__defaults__", None) or getattr(plain, "__kwdefaults__", None)):
        return
    signature = signature_or_none(fn)
    for parameter in signature.parameters.values() if signature else ():
        _refuse_bare(fn, parameter)
        if isinstance(parameter.default, Marker):
            raise BuildError(
                f"{name_of(fn)}: parameter {parameter.name!r} asks for {_asked(parameter.default)}, and {why}"
            )


def _asked(marker: Marker) -> str:
    """A marker as authors write it."""
    if marker.spec is not None:
        return f"tg.DoFn.{'StateParam' if marker.kind == 'state' else 'TimerParam'}({marker.spec.name!r})"
    return next(f"tg.DoFn.{name}" for name, each in vars(DoFn).items() if each == marker)


def _refuse_bare(fn: Any, parameter: Any) -> None:
    """Refuse a parameter whose default is a spec or a marker without one, or whose annotation is a marker."""
    name, default = parameter.name, parameter.default
    marker = parameter_of(default)
    if marker is not None:
        raise BuildError(
            f"{name_of(fn)}: the default of {name!r} is a spec, not the cell or timer itself: write {name}={marker}"
        )
    if default is DoFn.StateParam or default is DoFn.TimerParam:
        raise BuildError(
            f"{name_of(fn)}: the default of {name!r} names no spec: write {name}=tg.DoFn.{default.__name__}(SPEC)"
        )
    if isinstance(parameter.annotation, Marker) and default is parameter.empty:
        raise BuildError(f"{name_of(fn)}: injection is requested by a default: write `{name}=…`, not `{name}: …`")


def _refuse_unknown_methods(fn: Any, signature: Any) -> None:
    """Refuse a method that uses attributes which its state cells and timers don't have."""
    specs = {
        parameter.name: parameter.default.spec
        for parameter in signature.parameters.values()
        if isinstance(parameter.default, Marker) and parameter.default.spec is not None
    }
    if not specs:
        return
    from tidegate.sdk.user_code.bytecode import attributes_of

    for name, attribute, line in attributes_of(fn, specs):
        spec = specs[name]
        if attribute not in methods_of(spec) and not attribute.startswith("_"):
            raise BuildError(
                f"{name_of(fn)} uses {name}.{attribute} in line {line}, which does not exist: {describe_methods(spec)}"
            )


def signature_or_none(fn: Any) -> Any:
    """The function's `inspect.Signature`; None for built-ins that have none."""
    code = getattr(fn, "__code__", None)
    if code is not None and not (fn.__defaults__ or fn.__kwdefaults__) and not hasattr(fn, "__wrapped__"):
        if code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_flags & 0x0C:
            return _ONE_ARGUMENT
    import inspect

    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        return None


class _OneArgument:
    """The signature of the most common function, `lambda x: …`, which avoids importing `inspect`."""

    parameters: Final[dict[str, Any]] = {}

    def bind(self, *args: Any, **kwargs: Any) -> None:
        if len(args) != 1 or kwargs:
            raise TypeError("it takes one argument")

    def bind_partial(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1 or kwargs:
            raise TypeError("it takes one argument")


_ONE_ARGUMENT: Final = _OneArgument()


_LIFE_CYCLE: Final = {
    "setup": "once per worker",
    "start_bundle": "before the elements of a bundle",
    "finish_bundle": "after the elements of a bundle",
    "teardown": "once per worker",
}
"""The methods of a DoFn's life cycle, with when each is called."""

_INJECTED: Final = {
    "window": "WindowParam",
    "timestamp": "TimestampParam",
    "pane": "PaneInfoParam",
    "pane_info": "PaneInfoParam",
    "key": "KeyParam",
}
"""Usual names of parameters that are meant to be injected, with the markers they need as defaults."""


def _advice(fn: Any, signature: Any, elements: int) -> str:
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if elements != 1 or len(needed) < 2:
        return ""
    injected = [f"{name}=tg.DoFn.{_INJECTED[name]}" for name in needed[1:] if name in _INJECTED]
    if injected:
        return f". Injection is requested by a default: write {', '.join(injected)}"
    if isinstance(getattr(fn, "__self__", None), DoFn):
        return ""
    return ". An element is one argument: if it is a pair or another tuple, tg.MapTuple or tg.FlatMapTuple unpacks it"


def _check_fits(fn: Any, signature: Any, elements: int, args: tuple[Any, ...], keywords: set[str]) -> None:
    fill = signature.bind if elements >= 0 else signature.bind_partial
    try:
        fill(*([None] * (max(elements, 0) + len(args))), **dict.fromkeys(keywords))
    except TypeError as error:
        given = {-1: "the items of the element", 1: "the element"}.get(elements, f"the {elements} items of the element")
        raise BuildError(
            f"{called(fn, signature)} can't be called with {given}"
            + (
                f" and the extra arguments given ({len(args)} positional, {sorted(keywords)})"
                if args or keywords
                else ""
            )
            + f": {error}{_advice(fn, signature, elements)}"
        ) from None


def called(fn: Any, signature: Any) -> str:
    """A function with its parameters, for messages: `f(x, *rest, y=…)`."""
    if signature is _ONE_ARGUMENT:
        return name_of(fn)
    shown: list[str] = []
    for parameter in signature.parameters.values():
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in shown):
            shown.append("*")
        shown.append(f"{stars}{parameter.name}{'' if parameter.default is parameter.empty else '=…'}")
    return f"{name_of(fn)}({', '.join(shown)})"
