"""DoFn: the author's element-wise code with a life cycle, and the parameters it may ask for.

A parameter is injected where its default is one of the markers on `DoFn` (Beam's names); annotations alone
never inject. Extra arguments of `Map` and its kin may be the same markers, side inputs, or plain constants.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

from tidegate.sdk import beam_names
from tidegate.sdk.authoring.side_inputs import SideInput
from tidegate.sdk.authoring.state import StateSpec, TimerSpec, methods_of, offers, parameter_of, require_spec
from tidegate.sdk.errors import BuildError
from tidegate.sdk.user_code.user_fn import name_of

F = TypeVar("F", bound=Callable[..., Any])

ParamKind: TypeAlias = Literal[
    "element", "key", "timestamp", "window", "pane", "watermark", "clock", "const", "side", "state", "timer", "tag"
]


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a call: where it comes from, and the keyword it goes to (None: the next position).

    `ref` names the state cell or timer, or the number of the constant or side input.
    """

    kind: ParamKind
    keyword: str | None = None
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Marker:
    """A default value that asks for injection."""

    kind: ParamKind
    spec: Any = None


class _Named(ABCMeta):
    """The class of `DoFn`: it answers to names that Beam has for a marker, and to those that are misspelt."""

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> Any:
            if cls.__module__ == __name__ or name in beam_names.DOFN:
                known = (each for each in vars(DoFn) if not each.startswith("_"))
                raise beam_names.no_such("tg.DoFn", "tg.DoFn", name, beam_names.DOFN, known)
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}", name=name, obj=cls)


class DoFn(metaclass=_Named):
    """Subclass and override `process`; it may return an iterable, be a generator, or return None.

    `setup` and `teardown` run once per worker, `start_bundle` and `finish_bundle` once per bundle;
    `finish_bundle` emits `WindowedValue`s (plain values only in the global window).
    """

    ElementParam: Any = Marker("element")
    KeyParam: Any = Marker("key")
    TimestampParam: Any = Marker("timestamp")
    WindowParam: Any = Marker("window")
    PaneInfoParam: Any = Marker("pane")
    WatermarkParam: Any = Marker("watermark")
    ProcessingTimeParam: Any = Marker("clock")
    TimerTagParam: Any = Marker("tag")

    @staticmethod
    def StateParam(spec: StateSpec) -> Any:
        """Inject the state cell `spec` declares."""
        require_spec(spec, StateSpec, "tg.DoFn.StateParam")
        return Marker("state", spec)

    @staticmethod
    def TimerParam(spec: TimerSpec) -> Any:
        """Inject the timer `spec` declares."""
        require_spec(spec, TimerSpec, "tg.DoFn.TimerParam")
        return Marker("timer", spec)

    def setup(self) -> None:
        """Once, before the first bundle: open what the work needs."""

    def start_bundle(self) -> None:
        """Before the first element of each bundle."""

    def process(self, element: Any, *args: Any, **kwargs: Any) -> Iterable[Any] | None:
        """For each element: what it becomes."""
        raise NotImplementedError(f"{type(self).__name__}.process is missing")

    def finish_bundle(self) -> Iterable[Any] | None:
        """After the last element of each bundle."""
        return None

    def teardown(self) -> None:
        """Once, after the last bundle, also when a bundle failed."""


def on_timer(spec: TimerSpec) -> Callable[[F], F]:
    """Mark a DoFn method as the callback of the timer `spec` declares."""
    require_spec(spec, TimerSpec, "tg.on_timer")

    def mark(method: F) -> F:
        method.__tidegate_timer__ = spec.name  # type: ignore[attr-defined]
        return method

    return mark


def on_window_expiration(method: F) -> F:
    """Mark a DoFn method to run when a window expires, just before its state is collected."""
    method.__tidegate_expiration__ = True  # type: ignore[attr-defined]
    return method


@dataclass(frozen=True, slots=True)
class Call:
    """How a user function is called: its arguments after binding, constants and side inputs set apart."""

    params: tuple[Param, ...]
    consts: tuple[Any, ...] = ()
    sides: tuple[SideInput, ...] = ()
    states: tuple[StateSpec, ...] = ()
    timers: tuple[TimerSpec, ...] = ()

    def kinds(self) -> frozenset[str]:
        """Which kinds of parameter the call asks for."""
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

    `elements` is how many leading arguments the element fills (a `MapTuple` fills several: -1, known only when it
    runs). Raises BuildError when the arguments can't fit the function's signature.
    """
    binding = _Binding()
    if elements == 1:
        binding.params.append(Param("element"))
    for value in args:
        binding.add(value, None)
    taken = set(kwargs)
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
        if isinstance(parameter.default, Marker) and parameter.name not in taken:
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise BuildError(
                    f"{name_of(fn)}: parameter {parameter.name!r} is injected, so it can't be positional-only"
                )
            binding.add(parameter.default, parameter.name)
            taken.add(parameter.name)
    _fits(fn, signature, elements, args, taken)
    _refuse_strangers(fn, signature)
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
                f"{name_of(method)}: parameter {parameter.name!r} asks for the {absent[parameter.default.kind]}, and "
                "there is none when this method is called"
            )
        binding.add(parameter.default, parameter.name)
    if signature is not None:
        _refuse_strangers(method, signature)
    return binding.call()


def _refuse_bare(fn: Any, parameter: Any) -> None:
    """Refuse a default, or an annotation, that declares a cell or timer, or would ask for one, and does not."""
    name, default = parameter.name, parameter.default
    asked = parameter_of(default)
    if asked is not None:
        raise BuildError(
            f"{name_of(fn)}: the default of {name!r} is a spec, not what it declares: write {name}={asked}"
        )
    if default is DoFn.StateParam or default is DoFn.TimerParam:
        raise BuildError(
            f"{name_of(fn)}: {name!r} asks for none in particular: write {name}=tg.DoFn.{default.__name__}(SPEC)"
        )
    if isinstance(parameter.annotation, Marker) and default is parameter.empty:
        raise BuildError(
            f"{name_of(fn)}: what is injected is asked for by a default: write `{name}=…`, not `{name}: …`"
        )


def _refuse_strangers(fn: Any, signature: Any) -> None:
    """Refuse a method that calls what its cells and timers surely don't have."""
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
                f"{name_of(fn)} uses {name}.{attribute} in line {line}, and {name} has none: {offers(spec)}"
            )


def signature_or_none(fn: Any) -> Any:
    """The function's `inspect.Signature`; None for builtins that don't tell theirs."""
    code = getattr(fn, "__code__", None)
    if code is not None and not (fn.__defaults__ or fn.__kwdefaults__) and not hasattr(fn, "__wrapped__"):
        if code.co_argcount == 1 and not code.co_kwonlyargcount and not code.co_flags & 0x0C:
            return _ONE
    import inspect

    try:
        return inspect.signature(fn)
    except (ValueError, TypeError):
        return None


class _OneArgument:
    """The signature of the most common function, `lambda x: …`, without importing `inspect` for it."""

    parameters: Final[dict[str, Any]] = {}

    def bind(self, *args: Any, **kwargs: Any) -> None:
        if len(args) != 1 or kwargs:
            raise TypeError("it takes one argument")

    def bind_partial(self, *args: Any, **kwargs: Any) -> None:
        if len(args) > 1 or kwargs:
            raise TypeError("it takes one argument")


_ONE: Final = _OneArgument()


_INJECTED: Final = {
    "window": "WindowParam",
    "timestamp": "TimestampParam",
    "pane": "PaneInfoParam",
    "pane_info": "PaneInfoParam",
    "key": "KeyParam",
}
"""Names that parameters often have whose values are injected, if they are asked for by a default."""


def _cure(fn: Any, signature: Any, elements: int) -> str:
    needed = [
        parameter.name
        for parameter in signature.parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    if elements != 1 or len(needed) < 2:
        return ""
    asked = [f"{name}=tg.DoFn.{_INJECTED[name]}" for name in needed[1:] if name in _INJECTED]
    if asked:
        return f". What is injected is asked for by a default: write {', '.join(asked)}"
    if isinstance(getattr(fn, "__self__", None), DoFn):
        return ""
    return ". An element is one argument: if it is a pair or another tuple, tg.MapTuple or tg.FlatMapTuple unpacks it"


def _fits(fn: Any, signature: Any, elements: int, args: tuple[Any, ...], keywords: set[str]) -> None:
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
            + f": {error}{_cure(fn, signature, elements)}"
        ) from None


def called(fn: Any, signature: Any) -> str:
    """A function and what it takes, for messages: `f(x, *rest, y=…)`."""
    if signature is _ONE:
        return name_of(fn)
    shown: list[str] = []
    for parameter in signature.parameters.values():
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not any(each.startswith("*") for each in shown):
            shown.append("*")
        shown.append(f"{stars}{parameter.name}{'' if parameter.default is parameter.empty else '=…'}")
    return f"{name_of(fn)}({', '.join(shown)})"
