"""The settings of a run as plain data, so that workers need no pydantic. Durations are in seconds, sizes in bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from tidegate.sdk import moved
from tidegate.sdk.options.defaults import DEFAULTS

HEARTBEAT: Final = 0.5
BLOCK_SIZE: Final = 3072
"""Elements per block. Larger blocks cost less per element, until they no longer fit the processor's caches."""
Restart: TypeAlias = Literal["exponential", "fixed", "rate", "none"]


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """The restart strategy. `attempts`: with exponential and fixed, how many consecutive restarts may happen without a
    completed checkpoint between them; with rate, how many within `interval`."""

    strategy: Restart = "exponential"
    attempts: int = 3
    delay: float = 1.0
    most_delay: float = 60.0
    interval: float = 300.0


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """How checkpoints are taken. `directory` None: in the run's directory, which is deleted when the run ends.
    `alignment_timeout` None: an aligned checkpoint never becomes unaligned. `max_pending_commits`: the sources pause
    while a sink has outstanding commits of more checkpoints than this, or all sinks together more bytes than
    `max_pending_commit_bytes`."""

    directory: str | None = None
    interval: float = 10.0
    min_pause: float = 0.0
    timeout: float = 600.0
    tolerated_failures: int = 0
    retained: int = 1
    mode: Literal["aligned", "unaligned"] = "aligned"
    alignment_timeout: float | None = None
    full_every: int = 10
    max_pending_commits: int = 10
    max_pending_commit_bytes: int = 1 << 30

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of coordinator and workers. `streaming`: bounded input is processed as a stream. `batch`: all input
    is bounded and processed as such: no watermarks before the end, no checkpoints, regions one after another."""

    workers: int
    streaming: bool
    batch: bool
    exchange: Literal["auto", "pipelined", "blocking"] = "auto"
    block_size: int = BLOCK_SIZE
    buffer_timeout: float = 0.1
    credit: int = 8
    """The number of blocks that may be in flight in a channel."""
    drift: int | None = None
    """How far (µs of event time) a live split may be ahead of any other split of the job; None: no limit."""
    max_parallelism: int = 128
    memory_budget: int = 256 << 20
    """The memory budget of one worker."""
    temp_dir: str | None = None
    state_backend: Literal["memory", "rocksdb"] = "memory"
    runtime_types: bool = False
    run_for: float | None = None
    max_end_timers: int = DEFAULTS.max_end_timers
    task_timeout: float | None = None
    heartbeat: float = HEARTBEAT
    from_savepoint: str | None = None
    allow_dropped_state: bool = False
    begin_anew: bool = False
    discard_state: bool = False
    metrics_file: str | None = None
    metrics_interval: float = 1.0
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    restart: RestartSettings = field(default_factory=RestartSettings)
    inline: Literal["on", "off", "always"] = DEFAULTS.inline

    def __setstate__(self, state: Sequence[Any]) -> None:
        moved.set_fields(self, state)
