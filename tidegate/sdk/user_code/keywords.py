"""The keyword arguments of constructors: errors for misspelt ones, and signatures that name those of a TypedDict."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from tidegate.sdk.user_code.frames import caller


class _Signature:
    """The signature of a class for `help` and notebooks, if the keywords of its constructor are in a TypedDict."""

    def __get__(self, instance: Any, owner: type) -> inspect.Signature | None:
        if instance is not None:
            raise AttributeError("__signature__")
        return _with_options(owner)


class Keywords:
    """Base of the classes that authors construct: the TypeError for an unknown keyword suggests the one meant.

    Subclasses, including the author's, inherit this. A metaclass would do the same, but prevent authors from deriving
    from a class with another metaclass as well.
    """

    __slots__ = ()

    if not TYPE_CHECKING:  # otherwise it would hide the signature of `__init__` from type checkers

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            if cls.__init__ is object.__init__ and (args or kwargs):
                raise TypeError(f"{cls.__name__}() takes no arguments (at {caller()})")
            if kwargs:
                _refuse_unknown(cls, kwargs)
            return super().__new__(cls)

        # The signature of a class without `__init__`, for `help` and code completion.
        __new__.__signature__ = inspect.Signature([inspect.Parameter("cls", inspect.Parameter.POSITIONAL_ONLY)])
        __signature__ = _Signature()


def _refuse_unknown(cls: type, given: Iterable[str]) -> None:
    parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for parameter in parameters:
        if parameter.kind is parameter.VAR_KEYWORD:
            options = _unpacked(cls, parameter)
            if options is None:
                return
            known += options.__annotations__
    for name in given:
        if name not in known:
            keywords = [each for each in known[1:] if each != "kind"]
            meant = near(name, keywords)
            advice = f"did you mean {meant!r}?" if meant else f"it has {', '.join(map(repr, keywords))}"
            raise TypeError(f"{cls.__name__}() has no argument {name!r}; {advice} (at {caller()})")


def _with_options(cls: type) -> inspect.Signature | None:
    """The signature of a class with the keywords of a TypedDict in the place of `**options: Unpack[…]`; None if its
    constructor has none. A TypedDict has no defaults: they are in `DEFAULTS` of its module, or are those of the
    constructor of a base class."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    shown: list[inspect.Parameter] = []
    expanded = False
    for parameter in list(signature.parameters.values())[1:]:
        options = _unpacked(cls, parameter) if parameter.kind is parameter.VAR_KEYWORD else None
        if options is None:
            shown.append(parameter)
            continue
        expanded = True
        defaults: dict[str, Any] = {}
        for base in reversed(cls.__mro__[1:-1]):
            known = inspect.signature(base.__init__).parameters  # type: ignore[misc]
            defaults.update({name: each.default for name, each in known.items()})
        defaults.update(getattr(sys.modules[options.__module__], "DEFAULTS", {}))
        shown += [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=defaults.get(name, inspect.Parameter.empty if name in options.__required_keys__ else ...),
                annotation=getattr(hint, "__forward_arg__", hint),
            )
            for name, hint in options.__annotations__.items()
        ]
    return signature.replace(parameters=shown) if expanded else None


def _unpacked(cls: type, parameter: inspect.Parameter) -> Any:
    """The TypedDict of `**options: Unpack[SomeTypedDict]`; None if any keyword is accepted."""
    hint = parameter.annotation
    if isinstance(hint, str):
        namespace = getattr(cls.__init__, "__globals__", {})  # type: ignore[misc]
        hint = namespace.get(hint.removeprefix("Unpack[").removesuffix("]")) if hint.startswith("Unpack[") else None
    else:
        hint = next(iter(getattr(hint, "__args__", ())), None)
    return hint if hasattr(hint, "__total__") else None


def near(name: str, known: Iterable[str]) -> str | None:
    """The known name most similar to `name`, as a whole or in one of its words (`prefx` is near `file_path_prefix`)."""
    from difflib import get_close_matches

    names = list(known)
    parts = {part: each for each in reversed(names) for part in (*each.split("_"), each)}
    found = get_close_matches(name, names, n=1) or [parts[part] for part in get_close_matches(name, parts, n=1)]
    return found[0] if found else None
