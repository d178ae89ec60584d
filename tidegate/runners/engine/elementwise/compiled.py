"""Compiles generated loops, and finds the line of a loop, and with it the step, that an error was raised in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from types import CodeType, TracebackType
from typing import Any, Final

from tidegate.runners.engine.elementwise.code_writer import Source
from tidegate.sdk.metrics import GENERATED, STEP_OF_LINE

_serial: Final = count()


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """Where in a loop an error was raised or passed: the link that the line runs, and the loop's locals by name."""

    link: int
    local: str
    """The name of the local that holds the link's input."""
    frame: dict[str, Any]
    raised_here: bool
    """True if the line itself raised, and not a function that it called."""

    @property
    def element(self) -> Any:
        return self.frame.get(self.local or f"v{self.link}")


class CompiledLoops:
    """The loops of one chain."""

    __slots__ = ("sources",)

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def compile(self, source: Source, labels: Sequence[str], env: dict[str, Any]) -> Callable[..., Iterator[Any]]:
        """The function `run` of a source. The steps' metrics are counted under `labels`, which are by link."""
        name = f"{GENERATED}{next(_serial)}>"
        self.sources[name] = source
        STEP_OF_LINE[name] = {line: labels[k] for line, (k, _) in source.lines.items()}
        exec(_named(_code(source.text), name), env)
        run: Callable[..., Iterator[Any]] = env["run"]
        return run

    def position(self, error: BaseException) -> LoopPosition | None:
        """The position in the innermost of these loops that an error passed; None if it passed none."""
        trace, found = error.__traceback__, None
        while trace is not None:
            source = self.sources.get(trace.tb_frame.f_code.co_filename)
            if source is not None:
                found = source, trace
            trace = trace.tb_next
        return None if found is None else _position(*found)

    @property
    def counted(self) -> tuple[int, ...]:
        """The links whose outputs the loops count themselves; they are the same in every loop."""
        source = next(iter(self.sources.values()), None)
        return () if source is None else source.counted

    def discard(self) -> None:
        """Forget the loops' lines; they will not run again."""
        for name in self.sources:
            STEP_OF_LINE.pop(name, None)


@lru_cache(maxsize=256)
def _code(text: str) -> CodeType:
    """The compiled module. Loops of the same shape have the same text, in all steps, tasks and runs of a process."""
    return compile(text, GENERATED, "exec")


def _named(code: CodeType, name: str) -> CodeType:
    """The code with another file name, by which a traceback shows the loop that it passed."""
    consts = tuple(_named(each, name) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=name, co_consts=consts)


def _position(source: Source, trace: TracebackType) -> LoopPosition:
    link, local = source.lines.get(trace.tb_lineno, (-1, ""))
    if link < 0:
        # A check belongs to the call it checks, which is the nearest line above that runs a link.
        above = [at for at in source.lines if at <= trace.tb_lineno]
        link = source.lines[max(above)][0] if above else 0
    return LoopPosition(link, local, trace.tb_frame.f_locals, trace.tb_next is None)
