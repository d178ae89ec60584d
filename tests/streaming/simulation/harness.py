"""Runs simulations of many seeds for tests, with and without a deliberate fault in the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import pytest

from tests.streaming.simulation.checking import InvariantViolation
from tests.streaming.simulation.world import Simulation

MUTATION_SEEDS = 200
"""The number of seeds within which each mutation is detected."""

Mutation = Callable[[pytest.MonkeyPatch], None]


class Simulate(Protocol):
    """Runs the simulation of a seed. `history` receives its log. Raises InvariantViolation."""

    def __call__(self, seed: int, history: list[str] | None = None) -> object: ...


def failures(seeds: Iterable[int], simulate: Simulate, command: str) -> list[str]:
    """The errors of the seeds that fail, each with the command that repeats it."""
    messages = []
    for seed in seeds:
        try:
            simulate(seed)
        except Exception as error:
            messages.append(f"python -m {command} --seed {seed} -v  # {type(error).__name__}: {error}")
    return messages


def first_violation(simulate: Simulate) -> int | None:
    """The first seed for which an invariant is violated."""
    for seed in range(MUTATION_SEEDS):
        try:
            simulate(seed)
        except InvariantViolation:
            return seed
    return None


def as_seeded(simulation: Simulation) -> None:
    """Leave the settings as the seed determines them."""
