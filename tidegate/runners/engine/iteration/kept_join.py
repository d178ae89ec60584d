"""Join of what a round changes with what is the same in all rounds: each element meets the kept ones at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tidegate.runners.engine.checks.exchange import ExchangeCheck
from tidegate.runners.engine.errors.attribution import located, rethrow, user_error
from tidegate.runners.engine.grouping.batch_table import ONLY_PANE
from tidegate.runners.engine.iteration.solution import by_window
from tidegate.runners.engine.loop_tables import Groups, KeptTables
from tidegate.runners.engine.operator import Context, Emitted, Operator
from tidegate.sdk.data.block import Block, Same, keys_of
from tidegate.sdk.data.keys import check_keys
from tidegate.sdk.errors import KeyEncodingError
from tidegate.sdk.portable.model import CombinePerKey
from tidegate.sdk.windowing.window import window_end


def joins(node: CombinePerKey, kept: KeptTables) -> bool:
    """Whether the groups of a CoGroupByKey are only read for pairs of a changing value and a kept one, or none.

    Its reader is a Join then, which gets the same pairs if a key has a group for each of its changing values. It
    changes no list.
    """
    return kept.changing is not None and kept.changing in node.needs


class KeptJoin(Operator):
    """Emits a group for each element that has changed: its key, and the lists of its value and of the kept ones."""

    def __init__(self, node: CombinePerKey, context: Context, main: str, kept: KeptTables) -> None:
        assert kept.changing is not None
        self._node = node
        self._context = context
        self._main = main
        self._kept = kept
        self._first = kept.changing == 0
        self._inner = len(node.needs) == 2
        self._crossing = ExchangeCheck(node, context)

    def process(self, block: Block, collection: str) -> Iterator[Emitted]:
        self._crossing.check(block)
        for window, part in by_window(block):
            groups = self._groups(part.values, self._kept.by_window.get(window, {}))
            self._context.count(self._node.label, "elements_out", len(groups))
            yield self._main, Block(groups, window_end(window) - 1, Same((window,)), ONLY_PANE)

    def _groups(self, values: Sequence[Any], kept: Groups) -> list[tuple[Any, Any]]:
        """The groups of pairs of a key, and of the number of a collection and a value."""
        node, get = self._node, kept.get
        key = None
        try:
            check_keys(keys_of(values))
            if self._inner and self._first:
                return [(key, ([x], known[1])) for key, (_, x) in values if (known := get(key)) is not None]
            if self._inner:
                return [(key, (known[0], [x])) for key, (_, x) in values if (known := get(key)) is not None]
            if self._first:
                return [(key, ([x], get(key, _NONE)[1])) for key, (_, x) in values]
            return [(key, (get(key, _NONE)[0], [x])) for key, (_, x) in values]
        except KeyEncodingError as error:
            rethrow(located(error, node.label, node.where))
        except Exception as error:
            rethrow(user_error(error, step=node.label, where=node.where, key=key))


_NONE: tuple[list[Any], list[Any]] = ([], [])
