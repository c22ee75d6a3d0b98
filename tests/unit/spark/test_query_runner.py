"""The checks of a running pipeline, with fakes of Spark and the brokers."""

from __future__ import annotations

import json
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest

from ottla_spark.errors import BrokersUnavailable, PipelineError
from ottla_spark.progress import (
    BatchProgress,
    Offsets,
    ProgressLog,
    TopicPartition,
    parse_progress_event,
)
from ottla_spark.runtime_environment import RuntimeEnvironment
from ottla_spark.streaming import query_runner
from ottla_spark.streaming.checkpoint import CheckpointMetadata
from tests.progress_log import read_progress_log
from tests.unit.spark.small_pipeline import small_pipeline

PIPELINE = small_pipeline()


class FakeAdmin:
    def __init__(self, topics: dict[str, str]) -> None:
        self.topics = topics

    def describe_topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if gone := set(topics) - self.topics.keys():
            raise PipelineError(f"the topic {', '.join(gone)} does not exist")
        return {topic: self.topics[topic] for topic in topics}


def make_runner(
    admin: object, stored: dict[str, str] | None = None, log: Path | None = None
) -> query_runner.QueryRunner:
    """`stored`: topic ids of the checkpoint. `log`: file of the progress log."""
    metadata, environment = CheckpointMetadata(stored or {}, "rocksdb", 8), RuntimeEnvironment("", "")
    unused = cast(Any, None)
    return query_runner.QueryRunner(
        unused,
        PIPELINE,
        environment,
        cast(Any, admin),
        unused,
        metadata,
        ProgressLog(log, "p"),
        threading.Event(),
    )


def check_topics(stored: dict[str, str], current: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_runner, "_TOPIC_CHECK_INTERVAL_S", 0)
    make_runner(FakeAdmin(current), stored)._check_topic_ids()


def test_topic_that_is_not_read_any_more_may_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    check_topics({"t": "1", "before": "2"}, {"t": "1"}, monkeypatch)


def test_topic_that_is_read_may_neither_be_deleted_nor_re_created(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match=r"^the topic t does not exist$"):
        check_topics({"t": "1"}, {}, monkeypatch)
    with pytest.raises(PipelineError, match=r"^the topic t was re-created"):
        check_topics({"t": "1"}, {"t": "9"}, monkeypatch)


class HangingAdmin(FakeAdmin):
    """An admin client to which no broker responds when it commits offsets while `hangs`."""

    def __init__(self) -> None:
        super().__init__({"t": "1"})
        self.hangs = False
        self.committed: list[Offsets] = []

    def commit_offsets(self, group: str, offsets: Offsets) -> None:
        if self.hangs:
            raise BrokersUnavailable("the brokers at x do not respond")
        self.committed.append(dict(offsets))

    def list_end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 10)

    def read_timestamps(self, offsets: Offsets, timeout_s: float) -> dict[TopicPartition, int]:
        return {}


def test_brokers_that_do_not_respond_for_a_while_fail_no_pipeline(tmp_path: Path) -> None:
    admin, log = HangingAdmin(), tmp_path / "progress.jsonl"
    runner = make_runner(admin, {"t": "1"}, log)
    runner._offsets.add_query("s", frozenset({"t"}), {})
    for number, end in enumerate((4, 7, 9)):
        admin.hangs = number == 1
        runner._process_batch(batch_until(number, end))
    assert admin.committed == [{("t", 0): 4}, {("t", 0): 9}]
    assert [line["lag"]["records"] for line in read_progress_log(log)] == [6, 6, 1]


def batch_until(number: int, end: int) -> BatchProgress:
    progress = {
        "name": "s",
        "batchId": number,
        "numInputRows": 1,
        "sources": [{"endOffset": json.dumps({"t": {"0": end}})}],
    }
    return parse_progress_event(json.dumps(progress))
