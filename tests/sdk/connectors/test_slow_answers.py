"""A store that accepts connections and never answers: people are told what the pipeline waits for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tidegate as tg
from tests.support.streaming.coordinator_harness import count_words_to_text, make_job
from tidegate.io import files
from tidegate.io.file_source.listing import matching
from tidegate.runners.checkpoint.storage.local import LocalStorage
from tidegate.runners.streaming.checkpoint import epoch_fencing
from tidegate.runners.streaming.model.settings import CheckpointSettings
from tidegate.sdk.connectors import slow_answers

WORDS = (
    "{}: no answer within 0 s. The pipeline waits for it. If this goes on, check the address of the store (its host "
    "and port, its endpoint) and the network"
)


class Told(logging.Handler):
    """Keeps the messages. A store answers once there is one."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []
        self.any = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self.any.set()


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    monkeypatch.setattr(slow_answers, "SECONDS", 0.0)
    handler = Told()
    logger = logging.getLogger("tidegate")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_people_are_told_within_ten_seconds_and_no_thread_is_left(told: Told) -> None:
    before = threading.active_count()
    with slow_answers.told_if_slow("s3://bucket/x"):
        assert told.any.wait(60)
    assert told.messages == [WORDS.format("s3://bucket/x")]
    assert threading.active_count() == before


def test_nobody_is_told_of_a_quick_answer_or_a_local_path(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    with slow_answers.told_if_slow("/data/x"):
        assert threading.active_count() == before
    monkeypatch.setattr(slow_answers, "SECONDS", 3600.0)
    with slow_answers.told_if_slow("s3://bucket/x"):
        pass
    assert told.messages == []


def test_listing_files_while_a_pipeline_runs_tells(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    def match(*_: Any) -> list[files.FileInfo]:
        assert told.any.wait(60)
        return []

    monkeypatch.setattr(files, "match", match)
    assert matching(["memory://nowhere/*"], True, tg.ReadError) == []
    assert told.messages == [WORDS.format("memory://nowhere/*")]


@pytest.mark.parametrize("flag", ["directory", "savepoint"])
def test_opening_checkpoints_tells(told: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flag: str) -> None:
    class Slow(LocalStorage):
        def list(self, folder: str) -> list[str]:
            assert told.any.wait(60)
            raise OSError("it is too late")

    monkeypatch.setattr(epoch_fencing, "open_storage", lambda url: Slow(tmp_path))
    job = make_job(count_words_to_text())
    settings = (
        replace(job.settings, checkpoints=CheckpointSettings(directory="s3://bucket/it"))
        if flag == "directory"
        else replace(job.settings, from_savepoint="s3://bucket/it")
    )
    with pytest.raises(tg.RunError, match="it is too late"):
        epoch_fencing.open_job(replace(job, settings=settings), tmp_path / "run", "the test")
    assert told.messages == [WORDS.format("s3://bucket/it")]
