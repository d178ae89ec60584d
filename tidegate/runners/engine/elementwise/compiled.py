"""Compiled loops, and which line of a loop, and so which step, an error was raised in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType
from typing import Any, Final

from tidegate.runners.engine.elementwise.code_writer import Source
from tidegate.sdk.metrics import GENERATED, STEP_OF_LINE

_serial: Final = count()


@dataclass(frozen=True, slots=True)
class LoopPosition:
    """Where in a loop an error came through: the link its line runs, and the loop's locals by name."""

    link: int
    local: str
    """The name of the local that holds the link's input."""
    frame: dict[str, Any]
    in_loop: bool
    """Whether the line itself raised, and nothing it called."""

    @property
    def element(self) -> Any:
        return self.frame.get(self.local or f"v{self.link}")


class CompiledLoops:
    """The loops of one chain."""

    __slots__ = ("sources",)

    def __init__(self) -> None:
        self.sources: dict[str, Source] = {}

    def compile(self, source: Source, labels: Sequence[str], env: dict[str, Any]) -> Callable[..., Iterator[Any]]:
        """The function `run` of a source; `labels` are the steps' by link, for the metrics that their code counts."""
        name = f"{GENERATED}{next(_serial)}>"
        self.sources[name] = source
        STEP_OF_LINE[name] = {line: labels[k] for line, (k, _) in source.lines.items()}
        exec(compile(source.text, name, "exec"), env)
        run: Callable[..., Iterator[Any]] = env["run"]
        return run

    def place(self, error: BaseException) -> LoopPosition | None:
        """The innermost loop that an error came through; None if it came through none of these."""
        trace, found = error.__traceback__, None
        while trace is not None:
            source = self.sources.get(trace.tb_frame.f_code.co_filename)
            if source is not None:
                found = source, trace
            trace = trace.tb_next
        return None if found is None else _place(*found)

    @property
    def counted(self) -> tuple[int, ...]:
        """The links whose outputs the loops count themselves: the same ones in each."""
        source = next(iter(self.sources.values()), None)
        return () if source is None else source.counted

    def forget(self) -> None:
        """The loops will not run again."""
        for name in self.sources:
            STEP_OF_LINE.pop(name, None)


def _place(source: Source, trace: TracebackType) -> LoopPosition:
    link, local = source.lines.get(trace.tb_lineno, (-1, ""))
    if link < 0:
        # A check belongs to the call it checks, which is the nearest line above that runs a link.
        above = [at for at in source.lines if at <= trace.tb_lineno]
        link = source.lines[max(above)][0] if above else 0
    return LoopPosition(link, local, trace.tb_frame.f_locals, trace.tb_next is None)
