"""The head of a feedback loop: what it takes from outside, and what comes round, it emits to the loop's body."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from tidegate.runners.engine.errors.attribution import located
from tidegate.runners.engine.iteration.backlog import least
from tidegate.runners.engine.iteration.block_store import BlockStore
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.data.block import Block
from tidegate.sdk.errors import RunError, TidegateError
from tidegate.sdk.portable.model import Feedback
from tidegate.sdk.time import MAX_MICROS, MIN_MICROS, Timestamp

FED_BACK: Final = "fed_back"
FED_BACK_LATE: Final = "fed_back_late"
TOO_FAR: Final = "too_far"
"""The counters of elements that were fed back; of those behind the loop's watermark; and of those that had gone round
`max_hops` times."""


class FeedbackHead(Operator):
    """Emits what enters a loop, and, each time that `again` is called, what has been fed back since.

    The elements of such a turn have all gone round equally often, since the runner lets nothing enter before all of
    it has been handled. The loop's watermark is that of the input, held by what is under way: fed back elements, and
    those that steps of the `body` will emit without being told by a watermark.
    """

    def __init__(self, node: Feedback, fed_back: Collection[str], context: Context) -> None:
        self.node = node
        self.context = context
        self.label = node.label.removesuffix("~head")
        self.body: Sequence[Operator] = ()
        """The operators between the head and what is fed back, in the order of the steps."""
        self.keeps_elements = False
        """Whether a step of the body may emit what is made of elements from before: it groups, or has state."""
        self.over = False
        """Whether the input has ended, and nothing is under way."""
        self._fed_back = fed_back
        """The collections that come back, all others come from outside."""
        self._back, self._turn = self._store(), self._store()
        self._low = MAX_MICROS
        """The least timestamp of what has been fed back and not been emitted yet."""
        self._hops = 0
        """How often the elements have gone round that the body has taken last."""
        self._taken: int | None = None
        """The least timestamp of what the body has taken since nothing was under way; None while a watermark or the
        clock may cause what it emits."""
        self._watermark = self._published = MIN_MICROS

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        if collection in self._fed_back:
            self._feed_back(block)
        else:
            yield self._entering(block)

    def finish_bundle(self) -> Iterator[Emitted]:
        """End the bundles in the body, so that what is in them holds the watermark."""
        for operator in self.body:
            yield from operator.finish_bundle()

    def on_watermark(self, micros: int) -> Iterator[Emitted]:
        self._watermark = micros
        self._taken = None
        return iter(())

    def hold(self) -> int:
        low = min(self._low, self.under_way())
        self._published = max(self._published, min(self._watermark, low))
        return low

    def under_way(self) -> int:
        return min((operator.under_way() for operator in self.body), default=MAX_MICROS)

    @property
    def pending(self) -> bool:
        if self.backlog or self.under_way() < MAX_MICROS:
            return True
        return self._watermark >= MAX_MICROS and not self.over

    @property
    def backlog(self) -> int:
        """How many elements have been fed back and not been emitted yet."""
        return self._back.elements

    def again(self) -> Iterator[Emitted]:
        """Emit what has been fed back: a turn of the loop."""
        self._back, self._turn = self._turn, self._back
        self._hops += 1
        low, self._low = self._low, MAX_MICROS
        limit = self.node.max_hops
        if limit is not None and self._hops > limit:
            self.context.count(self.label, TOO_FAR, self._turn.elements)
            for block in self._turn:
                yield self.node.outputs[1].collection, block
        else:
            for block in self._turn:
                # Elements of this turn that are still in the store hold the watermark, should one be propagated.
                self._low = min(self._low, low)
                yield self._entering(block)
        self._turn.clear()
        self._low = MAX_MICROS if not self.backlog else self._low

    def rest(self) -> None:
        """Nothing is under way: what the body emits from now on, a watermark, a timer or new input has caused."""
        self._hops = 0
        self._taken = None

    def close(self) -> None:
        self._back.clear()
        self._turn.clear()

    def _entering(self, block: Block) -> Emitted:
        low = least(block)
        self._taken = low if self._taken is None else min(self._taken, low)
        return self.node.outputs[0].collection, block

    def _feed_back(self, block: Block) -> None:
        low = least(block)
        if low < self._published:
            if self._taken is not None and low < self._taken and not self.keeps_elements:
                raise self._located(made_earlier(low))
            late = sum(micros < self._published for micros in block.timestamp_column())
            self.context.count(self.label, FED_BACK_LATE, late)
        self._low = min(self._low, low)
        self.context.count(self.label, FED_BACK, len(block))
        try:
            self._back.add(block)
        except RunError as error:
            raise self._located(multiplies(error, self.backlog)) from error

    def _located(self, error: RunError) -> TidegateError:
        return located(error, self.label, self.node.where)

    def _store(self) -> BlockStore:
        """A store with an eighth of the memory budget; there are two."""
        return BlockStore(max(1, self.context.memory_budget // 8), lambda: self.context.temp_dir())


def multiplies(error: RunError, elements: int) -> RunError:
    """The error of a loop whose backlog of so many elements can't go to disk, which has raised `error`."""
    return RunError(
        f"{error}. The loop holds {elements:,} elements that were fed back and wait for their turn: if it multiplies "
        "what goes round, filter what it feeds back, or give it max_hops"
    )


def made_earlier(micros: int) -> RunError:
    """The error of a loop that feeds back an element with that timestamp, which the watermark has passed."""
    return RunError(
        f"an element with the timestamp {Timestamp.of_micros(micros)} was fed back, which is earlier than that of "
        "every element it can be made of. Windows in the loop have ended by then: feed back elements with the "
        "timestamps that they had, or later ones"
    )
