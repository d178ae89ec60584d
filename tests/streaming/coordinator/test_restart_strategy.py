"""Which failures a job survives, and how long it waits."""

from __future__ import annotations

from tidegate.runners.streaming.coordinator.restart_strategy import FailJob, Failure, Restart, RestartStrategy
from tidegate.runners.streaming.model.settings import RestartSettings
from tidegate.sdk.time import SECOND

LOST = Failure(b"lost", "worker 0 has gone")


def raised(element: str, error: bytes = b"error", stage: int = 0) -> Failure:
    return Failure(error, "task failed", from_user=True, stage=stage, element=element)


def delays(restarts: RestartStrategy, times: int, now: int = 0) -> list[float | None]:
    """The delay in seconds before the restart after each failure; None: the job fails."""
    verdicts = [restarts.failed(LOST, now) for _ in range(times)]
    return [verdict.delay / SECOND if isinstance(verdict, Restart) else None for verdict in verdicts]


def test_exponential_waits_twice_as_long_each_time_up_to_the_longest_and_gives_up() -> None:
    restarts = RestartStrategy(RestartSettings(attempts=5, delay=1.0, most_delay=5.0), retry_user_errors=True)
    assert delays(restarts, 6) == [1.0, 2.0, 4.0, 5.0, 5.0, None]


def test_a_completed_checkpoint_resets_the_count() -> None:
    restarts = RestartStrategy(RestartSettings(attempts=2), retry_user_errors=True)
    assert delays(restarts, 2) == [1.0, 2.0]
    restarts.progressed()
    assert delays(restarts, 3) == [1.0, 2.0, None]


def test_very_many_attempts_do_not_overflow_the_delay() -> None:
    restarts = RestartStrategy(RestartSettings(attempts=5_000, delay=1.0, most_delay=60.0), retry_user_errors=True)
    assert delays(restarts, 5_000)[-1] == 60.0


def test_fixed_always_waits_the_same() -> None:
    restarts = RestartStrategy(RestartSettings("fixed", attempts=2, delay=3.0), retry_user_errors=True)
    assert delays(restarts, 3) == [3.0, 3.0, None]


def test_none_gives_up_at_once() -> None:
    assert delays(RestartStrategy(RestartSettings("none"), retry_user_errors=True), 1) == [None]


def test_rate_gives_up_when_too_many_failures_fall_into_its_interval() -> None:
    restarts = RestartStrategy(RestartSettings("rate", attempts=2, delay=1.0, interval=10.0), retry_user_errors=True)
    assert delays(restarts, 1, 0) == [1.0]
    assert delays(restarts, 1, 5 * SECOND) == [1.0]
    assert delays(restarts, 1, 10 * SECOND) == [1.0]  # the first has left it
    restarts.progressed()
    assert delays(restarts, 1, 14 * SECOND) == [None]  # progress is of no account here


def test_two_consecutive_errors_of_one_kind_on_the_same_element_are_final() -> None:
    restarts = RestartStrategy(RestartSettings(attempts=100), retry_user_errors=True)
    assert isinstance(restarts.failed(raised("7"), 0), Restart)
    restarts.progressed()
    assert isinstance(restarts.failed(raised("7"), 0), FailJob)


def test_what_would_end_in_the_same_way_is_final_at_once() -> None:
    restarts = RestartStrategy(RestartSettings(attempts=100), retry_user_errors=True)
    strict = Failure(b"error", "task failed", from_user=True, final=True)
    assert restarts.failed(strict, 0) == FailJob("a restart would end in the same way")


def test_another_error_element_or_stage_is_not_the_same() -> None:
    restarts = RestartStrategy(RestartSettings(attempts=100), retry_user_errors=True)
    for failure in (raised("7"), raised("8"), raised("8", b"other"), raised("8", b"other", 1), LOST, raised("7")):
        assert isinstance(restarts.failed(failure, 0), Restart)


def test_an_error_on_no_element_is_judged_by_the_strategy_alone() -> None:
    restarts = RestartStrategy(RestartSettings(attempts=3), retry_user_errors=True)
    assert [isinstance(restarts.failed(raised(""), 0), Restart) for _ in range(4)] == [True, True, True, False]


def test_lost_workers_are_retried_even_if_errors_are_not() -> None:
    restarts = RestartStrategy(RestartSettings(), retry_user_errors=False)
    assert isinstance(restarts.failed(LOST, 0), Restart)
    assert isinstance(restarts.failed(raised("7"), 0), FailJob)


OUTAGE = Failure(b"away", "the store is away", from_user=True, outage=True)


def test_a_job_restarts_as_long_as_a_system_outside_is_away() -> None:
    for retries in (True, False):  # bounded jobs, too
        restarts = RestartStrategy(RestartSettings(attempts=1, delay=1.0), retry_user_errors=retries)
        found = [restarts.failed(OUTAGE, 0) for _ in range(8)]
        assert found == [Restart(seconds * SECOND) for seconds in (1, 2, 4, 8, 10, 10, 10, 10)]
        assert delays(restarts, 2) == [1.0, None]  # they don't count as attempts
    restarts.progressed()
    assert restarts.failed(OUTAGE, 0) == Restart(SECOND)


def test_no_outage_restarts_a_job_with_the_strategy_none() -> None:
    restarts = RestartStrategy(RestartSettings("none"), retry_user_errors=True)
    assert isinstance(restarts.failed(OUTAGE, 0), FailJob)
