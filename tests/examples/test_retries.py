"""The example of a loop in a stream: each message is delivered once, after as many attempts as by hand, or given up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.example_scripts import lines_of, load_example

retries = load_example("retries")

TEXT = [f"message {number}" for number in range(40)]


def attempts_by_hand(text: str, fails: float, most: int) -> int | None:
    """The attempt that delivers a message; None if none of `most` does."""
    for attempt in range(1, most + 1):
        try:
            retries.deliver((text, attempt), fails)
        except ConnectionError:
            continue
        return attempt
    return None


@pytest.mark.parametrize("runner", ["direct", "streaming"])
def test_messages_that_fail_come_round_until_they_are_given_up(runner: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(TEXT))
    options = retries.RetriesOptions(
        input=str(tmp_path / "text"), output=str(tmp_path / "out"), runner=runner, retries=2, pause=0.001
    )
    retries.pipeline(options).run().wait_until_finish()
    expected = {text: attempts_by_hand(text, 0.5, 3) for text in TEXT}
    given_up = sorted(lines_of(tmp_path / "out-given-up"))
    assert sorted(set(lines_of(tmp_path / "out")) - set(given_up)) == sorted(
        f"{attempts} attempts: {text}" for text, attempts in expected.items() if attempts
    )
    assert given_up == sorted(text for text in TEXT if not expected[text])
