"""The flags of the streaming runner, and their translation into a run's `Settings`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidegate.runners.streaming.model.settings import (
    BLOCK_SIZE,
    HEARTBEAT,
    CheckpointSettings,
    RestartSettings,
    Settings,
)
from tidegate.sdk.errors import OptionsError
from tidegate.sdk.options.model import RunnerOptions
from tidegate.sdk.options.option_types import DurationOption, Period, SizeOption, Wait
from tidegate.sdk.time import Duration


class StreamingOptions(RunnerOptions):
    """Flags of `--runner streaming`."""

    runner: str = "streaming"
    workers: int = Field(0, ge=0, le=1024, description="worker processes (0: one for each processor)")
    exchange: Literal["auto", "pipelined", "blocking"] = Field(
        "auto",
        description="how bounded data goes from stage to stage: while it is produced, or stored on disk until it is "
        "complete; auto stores only data that must be complete, such as side inputs",
    )
    buffer_timeout: DurationOption = Field(
        Duration.of(0.1),
        description="how long elements may wait in a block that is not full; 0 sends at once, -1 full blocks only",
    )
    block_size: int = Field(
        BLOCK_SIZE,
        ge=1,
        le=1 << 20,
        description="most elements in a block: small blocks arrive sooner, large ones cost less per element",
    )
    max_parallelism: int = Field(
        128, ge=1, le=32768, description="key groups, the most workers that a job's state can ever be divided among"
    )
    state_backend: Literal["memory", "rocksdb"] = Field(
        "memory", description="where state is kept (rocksdb: on this machine's disk as far as it exceeds memory)"
    )
    watermark_drift: Period | None = Field(
        None,
        description="how far in event time a live source's split may get ahead of others; no limit if none",
    )
    checkpoint_dir: str | None = Field(
        None, description="folder or URL for checkpoints; a run resumes from the latest one there"
    )
    checkpoint_interval: Period = Field(Duration.of(10), description="how often a checkpoint is begun")
    checkpoint_min_pause: Wait = Field(Duration(0), description="minimum time between the end of one and the next")
    checkpoint_timeout: Period = Field(Duration.of(600), description="a checkpoint that takes longer is aborted")
    checkpoint_mode: Literal["aligned", "unaligned"] = Field(
        "aligned", description="unaligned: barriers overtake elements, which are stored with the checkpoint"
    )
    alignment_timeout: Wait | None = Field(
        None, description="an aligned checkpoint turns unaligned when a task has waited this long; never if none"
    )
    tolerated_failed_checkpoints: int = Field(0, ge=0, description="consecutive checkpoint failures tolerated")
    retained_checkpoints: int = Field(1, ge=1, description="how many completed checkpoints are retained")
    max_pending_commits: int = Field(
        10,
        ge=1,
        description="checkpoints whose output a sink may have yet to commit: sources pause while there are more",
    )
    max_pending_commit_bytes: SizeOption = Field(
        1 << 30, ge=1, description="bytes of such output that all sinks together may have"
    )
    restart_strategy: Literal["exponential", "fixed", "rate", "none"] = Field(
        "exponential",
        description="when a failed stream restarts: after growing delays, after a fixed delay, limited by rate, never",
    )
    restart_attempts: int = Field(
        3, ge=0, description="restarts without a completed checkpoint between them (rate: within the interval)"
    )
    restart_delay: Wait = Field(Duration.of(1), description="how long after a failure (exponential: the first)")
    restart_max_delay: Wait = Field(Duration.of(60), description="the longest delay of exponential")
    restart_interval: Period = Field(Duration.of(300), description="window in which rate counts restarts")
    from_savepoint: str | None = Field(None, description="begin with the state of this savepoint or checkpoint")
    allow_dropped_state: bool = Field(False, description="begin even if no step claims some of that state")
    begin_anew: bool = Field(False, description="run again in a --checkpoint_dir whose job has finished")
    discard_state: bool = Field(
        False, description="with --begin_anew: even if the job has not finished, discarding all its state there"
    )
    task_timeout: Period | None = Field(
        None, description="kill a worker that is silent this long, even within a call of user code; never if none"
    )
    detach: bool = Field(False, description="submit to a session (see `tidegate cluster`), and leave it running there")
    session: str = Field("default", description="the session to submit to")
    metrics_file: str | None = Field(None, description="append a JSON line about every task to this file")
    metrics_interval: Period = Field(Duration.of(1), description="how often metrics are written")


def settings_of(options: StreamingOptions, *, workers: int, memory: int, bounded: bool) -> Settings:
    """The settings of a run with these flags. `memory` is the budget (bytes) of one worker."""
    streaming = options.mode == "streaming"
    buffer = options.buffer_timeout.seconds()
    if buffer < 0 and buffer != -1:
        raise OptionsError("--buffer_timeout is a duration, or -1 for blocks that are sent when they are full")
    if options.discard_state and not options.begin_anew:
        raise OptionsError("--discard_state only has a meaning with --begin_anew: give both, or neither")
    return Settings(
        workers=workers,
        streaming=streaming,
        batch=bounded and not streaming,
        exchange=options.exchange,
        block_size=options.block_size,
        buffer_timeout=buffer,
        drift=None if options.watermark_drift is None else options.watermark_drift.micros,
        # With a drift, heartbeats carry the watermarks by which workers are aligned.
        heartbeat=HEARTBEAT if options.watermark_drift is None else HEARTBEAT / 10,
        max_parallelism=options.max_parallelism,
        memory_budget=memory,
        temp_dir=str(options.temp_dir) if options.temp_dir else None,
        state_backend=options.state_backend,
        runtime_types=options.type_check == "runtime",
        inline=options.inline,
        run_for=_seconds(options.run_for),
        max_end_timers=options.max_end_timers,
        task_timeout=_seconds(options.task_timeout),
        from_savepoint=options.from_savepoint,
        allow_dropped_state=options.allow_dropped_state,
        begin_anew=options.begin_anew,
        discard_state=options.discard_state,
        metrics_file=options.metrics_file,
        metrics_interval=options.metrics_interval.seconds(),
        checkpoints=CheckpointSettings(
            directory=options.checkpoint_dir,
            interval=options.checkpoint_interval.seconds(),
            min_pause=options.checkpoint_min_pause.seconds(),
            timeout=options.checkpoint_timeout.seconds(),
            tolerated_failures=options.tolerated_failed_checkpoints,
            retained=options.retained_checkpoints,
            mode=options.checkpoint_mode,
            alignment_timeout=_seconds(options.alignment_timeout),
            max_pending_commits=options.max_pending_commits,
            max_pending_commit_bytes=options.max_pending_commit_bytes,
        ),
        restart=RestartSettings(
            strategy=options.restart_strategy,
            attempts=options.restart_attempts,
            delay=options.restart_delay.seconds(),
            most_delay=options.restart_max_delay.seconds(),
            interval=options.restart_interval.seconds(),
        ),
    )


def _seconds(duration: Duration | None) -> float | None:
    return None if duration is None else duration.seconds()
