"""The checks of a running pipeline, with fakes of Spark and the brokers."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest

from ottla_operator.resources.common import API_VERSION
from ottla_spark.definition import parse_pipeline
from ottla_spark.errors import PipelineError
from ottla_spark.progress import ProgressLog
from ottla_spark.runtime_environment import RuntimeEnvironment
from ottla_spark.streaming import query_runner
from ottla_spark.streaming.checkpoint import CheckpointMetadata

PIPELINE = parse_pipeline(
    {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": "p"},
        "spec": {
            "clusterRef": {"name": "c"},
            "sources": {"s": {"topic": "t", "format": {"type": "raw"}}},
            "sinks": [{"from": "s", "console": {}}],
        },
    },
    Path(),
)


class FakeAdmin:
    def __init__(self, topics: dict[str, str]) -> None:
        self.topics = topics

    def describe_topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if gone := set(topics) - self.topics.keys():
            raise PipelineError(f"the topic {', '.join(gone)} does not exist")
        return {topic: self.topics[topic] for topic in topics}


def check_topics(stored: dict[str, str], now: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_runner, "_TOPIC_CHECK_INTERVAL_S", 0)
    metadata, environment = CheckpointMetadata(stored, "rocksdb", 8), RuntimeEnvironment("", "")
    unused = cast(Any, None)
    runner = query_runner.QueryRunner(
        unused,
        PIPELINE,
        environment,
        cast(Any, FakeAdmin(now)),
        unused,
        metadata,
        ProgressLog(None, "p"),
        threading.Event(),
    )
    runner._check_topic_ids()


def test_topic_that_is_not_read_any_more_may_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    check_topics({"t": "1", "before": "2"}, {"t": "1"}, monkeypatch)


def test_topic_that_is_read_may_neither_be_deleted_nor_re_created(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(PipelineError, match=r"^the topic t does not exist$"):
        check_topics({"t": "1"}, {}, monkeypatch)
    with pytest.raises(PipelineError, match=r"^the topic t was re-created"):
        check_topics({"t": "1"}, {"t": "9"}, monkeypatch)
