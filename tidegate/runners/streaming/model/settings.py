"""What a run was told, as plain data, so that workers need no pydantic. Durations are in seconds, sizes in bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tidegate.sdk.options.defaults import DEFAULTS

HEARTBEAT: Final = 0.5
BLOCK_SIZE: Final = 3072
"""Elements. Larger blocks cost less for each of them, until they no longer fit the processor's caches."""
Restart: TypeAlias = Literal["exponential", "fixed", "rate", "none"]


@dataclass(frozen=True, slots=True)
class RestartSettings:
    """Which failures are survived. `attempts`: of exponential and fixed, restarts without a completed checkpoint
    between them; of rate, restarts within `interval`."""

    strategy: Restart = "exponential"
    attempts: int = 3
    delay: float = 1.0
    most_delay: float = 60.0
    interval: float = 300.0


@dataclass(frozen=True, slots=True)
class CheckpointSettings:
    """How checkpoints are taken. `directory` None: in the run's own, gone with it. `alignment_timeout` None: never
    turn unaligned by itself; 0 with mode "unaligned"."""

    directory: str | None = None
    interval: float = 10.0
    min_pause: float = 0.0
    timeout: float = 600.0
    tolerated_failures: int = 0
    retained: int = 1
    mode: Literal["aligned", "unaligned"] = "aligned"
    alignment_timeout: float | None = None
    full_every: int = 10


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything coordinator and workers go by. `streaming`: bounded input is treated as a stream. `batch`: all input
    is bounded and it is not: no watermarks before the end, no checkpoints, regions one after another."""

    workers: int
    streaming: bool
    batch: bool
    exchange: Literal["auto", "pipelined", "blocking"] = "auto"
    block_size: int = BLOCK_SIZE
    buffer_timeout: float = 0.1
    credit: int = 8
    """Blocks that may be under way in a channel."""
    drift: int | None = None
    """How far (µs of event time) a live split may be ahead of any other of the job; None: as far as it gets."""
    max_parallelism: int = 128
    memory_budget: int = 256 << 20
    """Of one worker."""
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
