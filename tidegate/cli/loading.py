"""Finds the target of a command: executes a script or module until it tries to run the pipeline in question.

The command does its work at that point, within the script, while everything that the author has opened around the
pipeline is open: a temporary folder, a server, a connection. The rest of the script is not executed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import click

from tidegate.cli.scripts import FUNCTION, Script, Site
from tidegate.cli.target import Compiled, Object, Target, target_of
from tidegate.sdk.errors import BuildError, visible_lines
from tidegate.sdk.metrics import MetricCells
from tidegate.sdk.options.script import Unwound, loading, running
from tidegate.sdk.pipeline import Pipeline
from tidegate.sdk.runner import Finished, PipelineResult
from tidegate.sdk.typehints.hints import annotations_of


def with_target(text: str, flags: Sequence[str], act: Callable[[Target], None]) -> None:
    """Find the target that `text` names and pass it to `act`. The target's module sees the flags in `sys.argv`.

    Raises click.UsageError for a target that doesn't exist, LoadError for a corrupt compiled pipeline, and the
    exceptions of the module and of `act`.
    """
    place, name = _split(text)
    if place.endswith(".json"):
        if name is not None:
            raise click.UsageError(f"{place} contains one pipeline, without a name: leave out :{name}")
        act(_load(place))
    elif place.endswith(".py"):
        _with_file(_existing(place), place, name, flags, act)
    elif "/" in place or "\\" in place or place.startswith(".") or Path(place).is_file():
        _existing(place)
        raise click.UsageError(f"{place}: a target is a file.py, a package.module, or a compiled pipeline.json")
    else:
        _with_module(place, name, flags, act)


def _split(text: str) -> tuple[str, str | None]:
    place, colon, name = text.rpartition(":")
    return (place, name) if colon and name and len(place) > 1 and not {"/", "\\"} & {*name} else (text, None)


def _existing(place: str) -> Path:
    path = Path(place)
    if path.is_dir():
        raise click.UsageError(f"{place} is a folder: a target is a file.py, a package.module, or a pipeline.json")
    if not path.is_file():
        import difflib

        folder = path.parent if path.parent.is_dir() else Path()
        near = difflib.get_close_matches(path.name, [p.name for p in folder.iterdir()], n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise click.UsageError(f"there is no file {place}{hint}")
    return path


def _load(place: str) -> Target:
    from tidegate.sdk.portable.json import load

    return Compiled(place, load(_existing(place).read_bytes(), place))


def _with_file(path: Path, place: str, name: str | None, flags: Sequence[str], act: Callable[[Target], None]) -> None:
    """Execute a script by its path.

    Its module is named `__main__.stem`: not `__main__`, so that code under `if __name__ == "__main__"` does not run,
    but a submodule of it, so that functions are pickled by value even if a module of the same name is installed. A
    script that makes its pipeline only under that guard is executed as `__main__`.
    """
    script = Script(path.read_bytes())
    as_main = script.has_guard and not script.binds(name or FUNCTION)
    if as_main and name is not None:
        as_main = any(site.matches(name) for site in script.sites(guarded=True))
    module = "__main__" if as_main else f"__main__.{path.stem.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(module, path.resolve())
    assert spec is not None
    sys.argv = [str(path), *flags]
    sys.path.insert(0, str(path.resolve().parent))
    _Execution(place, name, script.sites(guarded=as_main), act).execute(spec)


def _with_module(place: str, name: str | None, flags: Sequence[str], act: Callable[[Target], None]) -> None:
    sys.argv = [place, *flags]
    sys.path.insert(0, str(Path.cwd()))
    _refuse_no_package(place)
    try:
        spec = importlib.util.find_spec(place)
    except ModuleNotFoundError as error:
        if not (error.name and place.startswith(error.name + ".")):
            raise
        raise click.UsageError(f"there is no module {error.name} here, and no file of that name") from None
    except ValueError:  # an empty name
        raise click.UsageError(
            f"{place!r} is not a target: name a file.py, a package.module, or a pipeline.json"
        ) from None
    if spec is None:
        raise click.UsageError(f"there is no module {place} here, and no file of that name")
    if spec.origin is None:  # a namespace package: a folder without `__init__.py`
        raise click.UsageError(f"{place} is a folder: a target is a file.py, a package.module, or a pipeline.json")
    origin = Path(spec.origin) if spec.has_location and spec.origin else None
    script = Script(origin.read_bytes() if origin is not None and origin.suffix == ".py" else b"")
    execution = _Execution(place, name, script.sites(guarded=False), act)
    if place in sys.modules:  # its package has imported it
        act(execution.pick(sys.modules[place]))
    else:
        execution.execute(spec)


def _refuse_no_package(place: str) -> None:
    """Raise click.UsageError for `script.txt` if `script` is a module and not a package. Looking for the submodule
    would execute `script`, which may be a pipeline's script."""
    top, dot, _ = place.partition(".")
    if not dot or not top:
        return
    spec = importlib.util.find_spec(top)
    if spec is not None and spec.submodule_search_locations is None:
        raise click.UsageError(
            f"there is no file {place}, and {top} is not a package with modules: a target is a file.py, a "
            "package.module, or a pipeline.json"
        )


class _Execution:
    """Executes a module until it tries to run the target, or to its end if it only defines the target."""

    def __init__(self, place: str, name: str | None, sites: list[Site], act: Callable[[Target], None]) -> None:
        self._place = place
        self._name = name
        self._sites = sites
        self._act = act
        self._module = ""
        self._reached = False
        self._error: BaseException | None = None

    def execute(self, spec: ModuleSpec) -> None:
        """Execute the module, and call `act` with its pipeline."""
        assert spec.loader is not None
        self._module = spec.name
        module = importlib.util.module_from_spec(spec)
        with _in_sys_modules(module):
            try:
                # Not by an import, which would lock the module: other threads could not unpickle its functions.
                with loading(spec.name, self._intercept):
                    spec.loader.exec_module(module)
            except Unwound:
                pass
            except BaseException as error:
                if not self._reached:
                    raise
                self._warn(error)
            if self._error is not None:
                raise self._error
            if not self._reached:
                self._act(self.pick(module))

    def _intercept(self, pipeline: Pipeline) -> PipelineResult:
        """Called when the script runs a pipeline. Acts on it and ends the script if it is the target."""
        try:
            if not self._reached:  # it is set if the script has caught `Unwound` and runs another pipeline
                self._refuse_imported()
                if not self._is_target(pipeline):
                    return Finished(MetricCells())  # let the script go on to the next pipeline
                self._reached = True
                with running():
                    self._act(Object(f"{self._place}:{self._name}" if self._name else self._place, pipeline))
        except BaseException as error:  # raised only after the script has ended, so that the script can't catch it
            self._reached, self._error = True, error
        raise Unwound

    def _is_target(self, pipeline: Pipeline) -> bool:
        """Whether the pipeline is the only one, or has the target's name, or is in a variable of that name."""
        if self._name is None:
            self._refuse_several(self._sites)
            return True
        if pipeline.name == self._name != FUNCTION:  # FUNCTION is the default name, and identifies no pipeline
            return True
        in_module = [frame for frame in self._frames() if frame.f_globals.get("__name__") == self._module]
        if not any(frame.f_locals.get(self._name) is pipeline for frame in in_module):
            return False
        self._refuse_several([site for site in self._sites if site.matches(self._name)])
        return True

    def _refuse_several(self, sites: list[Site]) -> None:
        if len(sites) < 2 and not any(site.repeated for site in sites):
            return
        names = [site.name for site in sites if site.name and not site.repeated]
        unique = len(set(names)) == len(sites)
        advice = f"write {self._place}:{names[0]}" if unique else 'give them names with tg.Pipeline(name="…")'
        raise click.UsageError(f"{self._place} has several pipelines: {', '.join(map(str, sites))}; {advice}")

    def _refuse_imported(self) -> None:
        """Raise BuildError if a module runs a pipeline while it is imported: the import locks the module, so that no
        other thread could unpickle its functions."""
        for frame in self._frames():
            if frame.f_globals.get("__name__") != self._module and frame.f_code.co_name == "<module>":
                raise BuildError(
                    f"{frame.f_code.co_filename}:{frame.f_lineno} runs a pipeline when it is imported by "
                    f"{self._place}: move that into a function"
                )

    def _frames(self) -> Iterator[FrameType]:
        """The frames from here to that of the script's module."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            yield frame
            if frame.f_globals.get("__name__") == self._module and frame.f_code.co_name == "<module>":
                return
            frame = frame.f_back

    def _warn(self, error: BaseException) -> None:
        """Warn of an exception that the script raised when it was ended early, as in a `finally`."""
        click.echo(visible_lines(f"warning: {self._place} ended with {type(error).__name__}: {error}"), err=True)

    def pick(self, module: ModuleType) -> Target:
        """The pipeline or function of the target's name in an executed module."""
        name = self._name or FUNCTION
        full = f"{self._place}:{name}"
        found = getattr(module, name, None)
        match found:
            case Pipeline():
                return target_of(full, found)
            case _ if callable(found) and not isinstance(found, type):
                return target_of(full, found)
            case None:
                others = dict.fromkeys(key for key, value in vars(module).items() if _could_be_target(module, value))
                others |= dict.fromkeys(site.name for site in self._sites if site.name and site.name != name)
                match [getattr(module, other, None) for other in others]:
                    case [Pipeline() as only] if self._name is None:
                        return target_of(f"{self._place}:{next(iter(others))}", only)
                hint = f"; it has {', '.join(others)}: write {self._place}:{next(iter(others))}" if others else ""
                raise click.UsageError(
                    f"{self._place} has no {name!r}{hint}. A target is a Pipeline, or a function that returns one"
                )
        raise click.UsageError(f"{full} is {type(found).__name__}, not a Pipeline or a function that returns one")


@contextmanager
def _in_sys_modules(module: ModuleType) -> Iterator[None]:
    """Within this context, `sys.modules` has the module under its name. It stays there afterwards, unless its execution
    fails or it replaced another module, which is restored."""
    before = sys.modules.get(module.__name__)
    sys.modules[module.__name__] = module
    try:
        yield
    except BaseException:
        if before is None:
            sys.modules.pop(module.__name__, None)
        raise
    finally:
        if before is not None:
            sys.modules[module.__name__] = before


def _could_be_target(module: ModuleType, value: Any) -> bool:
    if isinstance(value, Pipeline):
        return True
    hints = None if isinstance(value, type) else annotations_of(value)
    returned = hints.get("return") if isinstance(hints, dict) else None
    text = returned if isinstance(returned, str) else getattr(returned, "__name__", "")
    return getattr(value, "__module__", None) == module.__name__ and text.rpartition(".")[2] == "Pipeline"
