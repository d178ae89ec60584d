"""Compiles generated loops, and finds the line of a loop, and with it the step, that an error was raised in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import TracebackType
from typing import Any, Final

from tidegate.runners.engine.loops.author_traceback import author_traceback, generator_error
from tidegate.runners.engine.loops.code_writer import Source
from tidegate.runners.engine.loops.loop_tree import PlacedLines, compile_loop, place_lines
from tidegate.sdk.metrics import GENERATED, STEP_OF_LINE

_serial: Final = count()


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """Where in a loop an error was raised or passed: the link that the line runs, and the loop's locals by name."""

    link: int
    local: str
    """The name of the local that holds the link's input, or of those that hold the items of a pair."""
    frame: dict[str, Any]
    raised_here: bool
    """True if the engine's part of the line raised, and not a function of the author's."""

    @property
    def element(self) -> Any:
        local = self.local or f"v{self.link}"
        if "," in local:  # a pair that was never made
            return tuple(self.frame.get(name) for name in local.split(", "))
        return self.frame.get(local)


class CompiledLoops:
    """The loops of one chain."""

    __slots__ = ("_placed", "sources")

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}
        self._placed: dict[str, tuple[PlacedLines, ...]] = {}

    def compile(self, source: Source, labels: Sequence[str], env: dict[str, Any]) -> Callable[..., Iterator[Any]]:
        """The function `run` of a source. The steps' metrics are counted under `labels`, which are by link."""
        name = f"{GENERATED}{next(_serial)}>"
        placed = place_lines(source)
        lines = dict(source.lines)
        for each in placed:
            lines |= dict.fromkeys(each.lines, (each.placed.step, each.placed.local))
        self.sources[name] = replace(source, lines=lines)
        self._placed[name] = placed
        STEP_OF_LINE[name] = {line: labels[k] for line, (k, _) in lines.items()}
        return compile_loop(source, placed, name, env)

    def position(self, error: BaseException) -> LoopPosition | None:
        """The position in the innermost of these loops that an error passed; None if it passed none."""
        trace, found = error.__traceback__, None
        while trace is not None:
            code = trace.tb_frame.f_code
            source = self.sources.get(code.co_filename)
            if source is not None and not self._is_inlined(code.co_filename, code.co_firstlineno):
                found = source, trace
            trace = trace.tb_next
        if found is None:
            return None
        source, trace = found
        return _position(source, trace, inlined=self._is_inlined(trace.tb_frame.f_code.co_filename, trace.tb_lineno))

    def _is_inlined(self, name: str, line: int) -> bool:
        """Whether a line of a loop is one of an inlined body. A comprehension in one begins in such a line."""
        return any(line in each.lines for each in self._placed[name])

    def author_traceback(self, error: BaseException) -> TracebackType | None:
        """An error's traceback, in which inlined bodies have the frames that calls would have."""
        return author_traceback(error.__traceback__, self._placed)

    def generator_error(self, stop: StopIteration) -> RuntimeError | None:
        """The error that a StopIteration becomes when it leaves a generator, if it has left an inlined generator."""
        return generator_error(stop, self._placed)

    @property
    def counted(self) -> tuple[int, ...]:
        """The links whose outputs the loops count themselves; they are the same in every loop."""
        source = next(iter(self.sources.values()), None)
        return () if source is None else source.counted

    def discard(self) -> None:
        """Forget the loops' lines; they will not run again."""
        for name in self.sources:
            STEP_OF_LINE.pop(name, None)


def _position(source: Source, trace: TracebackType, *, inlined: bool) -> LoopPosition:
    link, local = source.lines.get(trace.tb_lineno, (-1, ""))
    if link < 0:
        # A check belongs to the call it checks, which is the nearest line above that runs a link.
        above = [at for at in source.lines if at <= trace.tb_lineno]
        link = source.lines[max(above)][0] if above else 0
    return LoopPosition(link, local, trace.tb_frame.f_locals, trace.tb_next is None and not inlined)
