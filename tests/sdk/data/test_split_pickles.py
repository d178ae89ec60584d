"""Checkpoints contain pickled splits, also from versions in which splits had fewer fields."""

from __future__ import annotations

import pickle

from tidegate.sdk.connectors.sources import Split

WITHOUT_BOUNDED = b"\x80\x05ctidegate.sdk.connectors.sources\nSplit\n)\x81]\x94(\x8c\x06part-1K\x07\x8c\x07payloadeb."


def test_a_split_pickled_without_the_field_bounded_can_be_read() -> None:
    assert pickle.loads(WITHOUT_BOUNDED) == Split("part-1", 7, "payload")


def test_a_split_survives_pickling() -> None:
    split = Split("part-1", 7, ("payload", 1), bounded=True)
    assert pickle.loads(pickle.dumps(split)) == split
