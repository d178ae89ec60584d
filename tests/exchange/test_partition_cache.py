from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.runners.exchange import partition_cache as module
from tidegate.runners.exchange.partition_cache import PartitionCache
from tidegate.sdk.data.keys import partition_of
from tidegate.sdk.errors import KeyEncodingError

NAN = float("nan")


@given(
    key=st.one_of(st.integers(), st.text(), st.tuples(st.integers(), st.text())),
    n=st.integers(1, 1000),
)
def test_a_cache_returns_the_partition_of_a_key(key: Any, n: int) -> None:
    assert PartitionCache(n)[key] == partition_of(key, n)


def test_a_cache_computes_a_key_once_and_stays_within_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = PartitionCache(7, limit=10)
    assert [cache[1], cache[1.0], cache[True]] == [partition_of(1, 7)] * 3
    assert len(cache) == 1
    assert cache.partitions(range(1000)) == [partition_of(key, 7) for key in range(1000)]
    assert len(cache) <= 10
    cache[999]
    monkeypatch.setattr(module, "partition_of", None)
    assert cache[999] == partition_of(999, 7)


COLUMNS = st.lists(
    st.one_of(
        st.lists(st.integers(-(2**70), 2**70)),
        st.lists(st.integers(-(2**63), 2**63 - 1), min_size=8),
        st.lists(st.text(st.characters(), max_size=4)),
        st.lists(st.one_of(st.integers(), st.booleans(), st.text(max_size=4))),
    ),
    max_size=20,
)


@given(columns=COLUMNS, n=st.integers(1, 1000), limit=st.integers(1, 20))
def test_columns_of_cached_and_new_keys_have_the_same_partitions(columns: list[list[Any]], n: int, limit: int) -> None:
    cache = PartitionCache(n, limit=limit)
    for column in columns:
        assert cache.partitions(column) == [partition_of(key, n) for key in column]


@pytest.mark.parametrize("bad", [[1], NAN, {"a": 1}, ("a", [1])], ids=repr)
def test_a_cache_refuses_the_same_keys_as_the_encoding_and_caches_none_of_them(bad: Any) -> None:
    cache = PartitionCache(4)
    with pytest.raises(KeyEncodingError):
        cache.partitions(iter(["a", bad]))
    assert list(cache) == ["a"]


def test_a_cache_supports_numbers_that_a_dict_fails_to_compare() -> None:
    cache = PartitionCache(100)
    assert cache.partitions([Decimal(1), np.int8(1), 1]) == [partition_of(1, 100)] * 3


def test_a_cache_without_partitions_or_room_is_refused() -> None:
    with pytest.raises(ValueError, match="n=0"):
        PartitionCache(0)
    with pytest.raises(ValueError, match="limit=0"):
        PartitionCache(1, limit=0)
