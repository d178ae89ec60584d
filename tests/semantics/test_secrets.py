"""Secrets: the author's code finds their values on every runner, and no error shows them."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

import tidegate as tg
from tidegate.sdk.errors import UserCodeError
from tidegate.testing import TestPipeline, assert_that, equal_to


def test_a_step_finds_the_value_of_a_secret_that_it_captures(runner: str) -> None:
    secret = SecretStr("moon-and-sun-1")
    p = TestPipeline(runner)
    found = p | tg.Create([1, 2]) | tg.Map(lambda n: (n, secret.get_secret_value()))
    assert_that(found, equal_to([(1, "moon-and-sun-1"), (2, "moon-and-sun-1")]))
    p.run()


def test_an_error_does_not_show_the_secret_in_its_message_or_its_cause(runner: str) -> None:
    secret = SecretStr("moon-and-sun-2")

    def refuse(n: int) -> Any:
        raise ValueError(f"login with {secret.get_secret_value()} was refused")

    p = TestPipeline(runner)
    _ = p | tg.Create([1]) | tg.Map(refuse) | tg.Map(print)
    with pytest.raises(UserCodeError) as raised:
        p.run()
    shown = f"{raised.value} {raised.value.__cause__!r} {getattr(raised.value.__cause__, '__notes__', '')}"
    assert "login with *** was refused" in shown
    assert "moon-and-sun-2" not in shown
