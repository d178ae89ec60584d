"""The author's code as data: live while a pipeline is written, sealed when it is built.

A `UserFn` stands wherever a pipeline holds something of the author's: a function, a DoFn, a CombineFn, a source.
Sealing turns it into an import reference (functions of installed distributions) or a cloudpickle payload
(lambdas, closures, `__main__`, modules beside the script). Reading a sealed pipeline never unpickles; only `load` does.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any, Final

from tidegate.sdk import moved
from tidegate.sdk.errors import LoadError, PicklingError, shorten, visible
from tidegate.sdk.metrics import GENERATED
from tidegate.sdk.notebook import place_of, spoken
from tidegate.sdk.user_code.source_lines import line_of

_HOME: Final = __file__.rsplit("sdk", 1)[0]


@dataclass(frozen=True, slots=True)
class Where:
    """A place in the author's code."""

    file: str
    line: int

    def __str__(self) -> str:
        return spoken(visible(self.file), self.line)


@dataclass(frozen=True, slots=True)
class ImportRef:
    """Code found by import: `module:name`, of a distribution at a version (None for the standard library)."""

    module: str
    name: str
    distribution: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Payload:
    """Code that travels by value: a cloudpickle and its SHA-256."""

    data: bytes
    sha256: str


class UserFn:
    """Something of the author's. Live (`code` is None) or sealed (`code` says how to get it back)."""

    __slots__ = ("_live", "code", "name", "where")

    def __init__(self, name: str, where: Where | None, code: ImportRef | Payload | None, live: Any = None) -> None:
        self.name = name
        self.where = where
        self.code = code
        self._live = live

    @staticmethod
    def of(value: Any, name: str | None = None) -> UserFn:
        """Wrap a live function or object; a UserFn is returned as it is."""
        if isinstance(value, UserFn):
            return value
        return UserFn(name or name_of(value), defined_at(value), None, value)

    def load(self) -> Any:
        """The object itself; a sealed one is unpickled or imported at the first call and kept.

        Raises LoadError when what it is made of isn't here: an uninstalled package, or one that has lost the name.
        """
        if self._live is None and self.code is not None:
            try:
                match self.code:
                    case Payload(data=data):
                        self._live = moved.loads(data)
                    case ImportRef(module=module, name=name):
                        self._live = moved.MOVES.find(module, name)
            except Exception as error:
                place = f", defined at {self.where}," if self.where else ""
                raise LoadError(
                    f"{self.name!r}{place} can't be loaded here: {type(error).__name__}: {error}{_origin(self.code)}"
                ) from error
        return self._live

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UserFn):
            return NotImplemented
        if self.code is None or other.code is None:
            return self._live is other._live and self.code is other.code
        return (self.name, self.where, self.code) == (other.name, other.where, other.code)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"UserFn({self.name})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.code is None:  # inside something else of the author's that is being sealed
            return UserFn.of, (self._live, self.name)
        return UserFn, (self.name, self.where, self.code)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """How JSON holds one: an id into the table of functions, which travels as pydantic's context."""
        from pydantic_core import core_schema

        return core_schema.with_info_plain_validator_function(
            lambda value, info: info.context.by_id(value),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda fn, info: info.context.id_of(fn), info_arg=True
            ),
        )


def _origin(code: ImportRef | Payload) -> str:
    match code:
        case ImportRef(distribution=str(distribution), version=version):
            return f". It is of {distribution} {version}"
        case _:
            return ""


class Sealer:
    """Seals many functions of one pipeline: equal objects once, and the classes that must travel by value noted."""

    def __init__(self) -> None:
        self._sealed: dict[int, UserFn] = {}
        self._classes: dict[tuple[str, str], type] = {}

    def seal(self, fn: UserFn) -> UserFn:
        """A sealed copy that no longer knows the live object.

        Raises PicklingError naming the variable and its type when something captured can't be pickled.
        """
        if fn.code is not None:
            return fn
        live = fn._live
        known = self._sealed.get(id(live))
        if known is None:
            code = import_ref(live) or self._payload(live, fn.name)
            known = self._sealed[id(live)] = UserFn(fn.name, fn.where, code)
        return known

    def seal_values(self, values: Any, name: str) -> bytes:
        """Elements (of `Create`) as bytes, their by-value classes noted; raises PicklingError."""
        return self._pickle(values, name)

    def classes(self) -> tuple[UserFn, ...]:
        """The by-value classes met so far, each sealed under `module:qualname`."""
        done: dict[tuple[str, str], UserFn] = {}
        while missing := [key for key in self._classes if key not in done]:
            for key in missing:
                cls = self._classes[key]
                done[key] = UserFn(f"{key[0]}:{key[1]}", None, self._payload(cls, key[1]))
        return tuple(done[key] for key in sorted(done))

    def _payload(self, live: Any, name: str) -> Payload:
        import hashlib

        data = self._pickle(live, name)
        return Payload(data, hashlib.sha256(data).hexdigest())

    def _pickle(self, live: Any, name: str) -> bytes:
        try:
            data, classes = pickle_by_value(live)
        except PicklingError as error:  # something of Tidegate's, which says itself what to do
            raise PicklingError(f"{name} can't be pickled: {error}") from None
        except Exception as error:
            raise PicklingError(explain_unpicklable(live, name) or f"{name} can't be pickled: {error}") from error
        for cls in classes:
            # Of a class that was defined again, or a slotted dataclass, which is made twice, the one that its name
            # gives is found by its name elsewhere. The others travel with their instances.
            if not is_superseded(cls):
                self._classes[cls.__module__, cls.__qualname__] = cls
        return data


def install_classes(classes: Iterable[UserFn]) -> None:
    """Make by-value classes findable under their own module's name, so that plain pickle finds them in a worker.

    What the module has itself is left alone. A class that an earlier pipeline brought to this process gives way to what
    this one brings: in a notebook, a class is defined again and again.
    """
    for fn in classes:
        module_name, _, qualname = fn.name.partition(":")
        if "." in qualname or "<locals>" in qualname:
            continue
        module = sys.modules.get(module_name)
        if module is None:
            _make_packages(module_name)
            module = sys.modules[module_name] = ModuleType(module_name)
        there = getattr(module, qualname, None)
        if there is None or there is _brought.get(fn.name):
            _brought[fn.name] = fn.load()
            setattr(module, qualname, _brought[fn.name])


_brought: Final[dict[str, Any]] = {}
"""The classes that `install_classes` has put into modules of this process, by the names of their entries."""


def _make_packages(module: str) -> None:
    """The packages that a module is in: pickle imports `a` before it looks into `a.b`."""
    parent = module.rpartition(".")[0]
    if not parent or parent in sys.modules:
        return
    _make_packages(parent)
    try:
        __import__(parent)
    except ImportError:
        sys.modules[parent] = ModuleType(parent)


def import_ref(value: Any) -> ImportRef | None:
    """The import reference of a function or class of an installed distribution, or None: it travels by value."""
    if not callable(value):
        return None
    owner = getattr(value, "__objclass__", None)
    module = getattr(value, "__module__", None) or getattr(owner, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or "<" in name or travels_by_value(module):
        return None
    try:
        if resolve(module, name) is not value:
            return None
    except (ImportError, AttributeError):
        return None
    distribution, version = _distribution(module.partition(".")[0])
    return ImportRef(module, name, distribution, version)


def is_superseded(cls: type) -> bool:
    """Whether a class of the author's has been defined again: its name leads to another class, or to nothing."""
    module, name = cls.__module__, cls.__qualname__
    return "<" not in name and travels_by_value(module) and module in sys.modules and not _is_found(cls)


def _is_found(cls: type) -> bool:
    """Whether the class's own name leads to it."""
    try:
        return resolve(cls.__module__, cls.__qualname__) is cls
    except (ImportError, AttributeError):
        return False


def resolve(module: str, name: str) -> Any:
    """Import `module` and follow `name`'s dots. ImportError or AttributeError when it isn't there."""
    __import__(module)
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part)
    return found


@lru_cache(maxsize=4096)
def travels_by_value(module: str) -> bool:
    """Whether code of this module travels by value: `__main__` and whatever no installed distribution owns."""
    top = module.partition(".")[0]
    if top == "tidegate" or top in sys.stdlib_module_names:
        return False
    if top == "__main__":
        return True
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if file is None:
        return loaded is None or getattr(loaded, "__spec__", None) is None
    if is_installed(file):
        return False
    return _distribution(top)[0] is None


def is_installed(file: str) -> bool:
    """Whether a file is where packages are installed: a folder called `site-packages` alone may be the author's."""
    return _PACKAGES.search(file) is not None


_PACKAGES: Final = re.compile(r"[/\\](python[\d.]*|lib)[/\\](site|dist)-packages[/\\]", re.IGNORECASE)


@lru_cache(maxsize=1024)
def _distribution(top: str) -> tuple[str | None, str | None]:
    """Name and version of the distribution that installs the top-level module `top`."""
    if top in sys.stdlib_module_names or top == "__main__":
        return None, None
    from importlib import metadata

    try:
        found = metadata.distribution(top)
    except metadata.PackageNotFoundError:
        names = metadata.packages_distributions().get(top)
        if not names:
            return None, None
        found = metadata.distribution(names[0])
    return found.metadata["Name"], found.version


def pickle_by_value(value: Any) -> tuple[bytes, list[type]]:
    """Cloudpickle `value`, with modules beside the script by value too; also the by-value classes met on the way."""
    import io

    import cloudpickle

    buffer = io.BytesIO()
    pickler = _pickler_class()(buffer)
    try:
        pickler.dump(value)
    finally:
        for module in pickler.registered:
            cloudpickle.unregister_pickle_by_value(module)
    return buffer.getvalue(), pickler.classes


@lru_cache(maxsize=1)
def _pickler_class() -> Any:
    import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, file: Any) -> None:
            super().__init__(file, protocol=5)
            self.registered: list[ModuleType] = []
            self.classes: list[type] = []

        def reducer_override(self, obj: Any) -> Any:
            match obj:
                case type() | FunctionType():
                    name = obj.__module__
                case ModuleType():
                    name = obj.__name__
                case _:
                    return super().reducer_override(obj)
            if isinstance(name, str) and travels_by_value(name):
                module = sys.modules.get(name)
                if (
                    module is not None
                    and name != "__main__"
                    and name not in cloudpickle.list_registry_pickle_by_value()
                ):
                    cloudpickle.register_pickle_by_value(module)
                    self.registered.append(module)
                if isinstance(obj, type):
                    self.classes.append(obj)
            return super().reducer_override(obj)

    return Pickler


def explain_unpicklable(value: Any, name: str) -> str | None:
    """Which variable inside `value` can't be pickled, in words; None if all of it can."""
    path = _culprit(value, (), set())
    if path is None:
        return None
    if not path:
        return f"{name} can't be pickled: it is of type {_type_name(value)}"
    kind = path[-1].kind
    variables = [at for at, step in enumerate(path) if step.variable]
    advice = "Create it inside the function or in DoFn.setup()"
    if not variables:
        start = "self" if path[0].name.startswith(".") else "item "
        inside = start + "".join(step.name for step in path)
        return f"{name} can't be pickled: {inside} is of type {kind}. {advice}"
    last = variables[-1]
    variable = path[last].name
    within = "".join(step.name for step in path[last + 1 :])
    where = f", whose {variable}{within} is of type {kind}" if within else f" of type {kind}"
    through = [path[at].name for at in variables[:-1]]
    by = f" (through {', '.join(repr(owner) for owner in through)})" if through else ""
    return f"{name} can't be pickled: it captures variable {variable!r}{where}{by}. {advice}"


@dataclass(frozen=True, slots=True)
class _Inside:
    """A step into a value: a variable that a function captures, or a part of an object (`.attribute`, `[item]`)."""

    name: str
    kind: str
    variable: bool


def _culprit(value: Any, path: tuple[_Inside, ...], seen: set[int]) -> tuple[_Inside, ...] | None:
    if id(value) in seen or len(path) > 8:
        return None
    seen.add(id(value))
    try:
        pickle_by_value(value)
        return None
    except Exception:
        pass
    for name, part in _captured(value):
        step = _Inside(name, _type_name(part), variable=not name.startswith((".", "[")))
        found = _culprit(part, (*path, step), seen)
        if found is not None:
            return found
    return path


def _captured(value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case MethodType():
            yield ".__self__", value.__self__
        case FunctionType():
            for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
                try:
                    yield variable, cell.cell_contents
                except ValueError:
                    continue
            for variable in _global_names(value.__code__):
                if variable in value.__globals__:
                    yield variable, value.__globals__[variable]
            positional = value.__code__.co_varnames[: value.__code__.co_argcount]
            defaults = value.__defaults__ or ()
            yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
            yield from (value.__kwdefaults__ or {}).items()
        case dict():
            for key, part in value.items():
                yield f"[{key!r}]", part
        case list() | tuple():
            for index, part in enumerate(value):
                yield f"[{index}]", part
        case set() | frozenset():
            for part in value:
                yield f"[{shorten(part, 40)}]", part
        case type():
            for attribute, part in vars(value).items():
                if isinstance(part, FunctionType):
                    yield f".{attribute}", part
        case _:
            for attribute, part in getattr(value, "__dict__", {}).items():
                yield f".{attribute}", part
            if type(value).__name__ == "partial" and hasattr(value, "func"):
                yield ".func", value.func
                yield ".args", value.args
                yield ".keywords", value.keywords
            for attribute in _slots(type(value)):
                if hasattr(value, attribute):
                    yield f".{attribute}", getattr(value, attribute)
            if not isinstance(value, ModuleType):
                yield ".__class__", type(value)


def _slots(kind: type) -> Iterator[str]:
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        yield from (slots,) if isinstance(slots, str) else slots


def _global_names(code: CodeType) -> list[str]:
    names = list(code.co_names)
    for const in code.co_consts:
        if isinstance(const, CodeType):
            names += _global_names(const)
    return names


def _type_name(value: Any) -> str:
    kind = type(value)
    return (
        kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    )


def name_of(value: Any) -> str:
    """A short readable name: `parse`, `<lambda>`, `str.split`, `WordLength`, `partial(f)`."""
    match value:
        case MethodType():
            return f"{type(value.__self__).__name__}.{value.__name__}"
        case FunctionType():
            return value.__qualname__.rpartition("<locals>.")[2]
        case BuiltinFunctionType():
            return value.__qualname__
        case type():
            return value.__name__
    if getattr(value, "__objclass__", None) is not None and hasattr(value, "__qualname__"):
        return str(value.__qualname__)
    if type(value).__name__ == "partial" and hasattr(value, "func"):
        return f"partial({name_of(value.func)})"
    return type(value).__name__


def defined_at(value: Any) -> Where | None:
    """Where the author's function (or a DoFn's `process`) is defined; None for builtins."""
    function: Any = value
    if not isinstance(function, (FunctionType, MethodType)):
        function = getattr(type(value), "process", None) or getattr(type(value), "__call__", None)  # noqa: B004
    code = getattr(function, "__code__", None)
    return Where(place_of(code.co_filename), code.co_firstlineno) if isinstance(code, CodeType) else None


def caller() -> Where:
    """The nearest line on the stack outside Tidegate: where the author applied a step."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_HOME) and not file.startswith("<frozen"):
            return Where(place_of(file), line_of(frame))
        frame = frame.f_back
    return Where("<unknown>", 0)


def author_frames(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without Tidegate's frames; None if no code of the author's was on the stack."""
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_HOME, GENERATED)):
            kept.append(trace)
        trace = trace.tb_next
    result: TracebackType | None = None
    for part in reversed(kept):
        result = TracebackType(result, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return result


def is_builtin_callable(value: Any) -> bool:
    """Whether `value` is a function or method that comes with Python itself, written in C."""
    if isinstance(value, BuiltinFunctionType):
        return value.__module__ in ("builtins", "math", "operator")
    return getattr(value, "__objclass__", None) in _BUILTIN_TYPES


_BUILTIN_TYPES: Final[frozenset[Any]] = frozenset(t for t in vars(builtins).values() if isinstance(t, type))
