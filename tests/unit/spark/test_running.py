"""What a running pipeline looks after, with stand-ins for Spark and the brokers."""

from __future__ import annotations

import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, cast

import pytest

from ottla_spark import run
from ottla_spark.checkpoint import Facts
from ottla_spark.progress import Report
from ottla_spark.spec import API_VERSION, of
from ottla_spark.trouble import Trouble

PIPELINE = of(
    {
        "apiVersion": API_VERSION,
        "kind": "Pipeline",
        "metadata": {"name": "p"},
        "spec": {"sources": {"s": {"topic": "t", "format": {"type": "raw"}}}, "sinks": [{"from": "s", "console": {}}]},
    },
    Path(),
)


class Brokers:
    def __init__(self, topics: dict[str, str]) -> None:
        self.topics = topics

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if gone := set(topics) - self.topics.keys():
            raise Trouble(f"the topic {', '.join(gone)} does not exist")
        return {topic: self.topics[topic] for topic in topics}


def look_at_topics(known: dict[str, str], now: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_IDENTITY_S", 0)
    facts, place, nothing = Facts(known, "rocksdb", 8), run.Place("", ""), cast(Any, None)
    running = run.Running(
        nothing, PIPELINE, place, cast(Any, Brokers(now)), nothing, facts, Report(None, "p"), threading.Event()
    )
    running._check_identity()


def test_a_topic_that_it_does_not_read_any_more_may_go(monkeypatch: pytest.MonkeyPatch) -> None:
    look_at_topics({"t": "1", "before": "2"}, {"t": "1"}, monkeypatch)


def test_one_that_it_reads_may_neither_go_nor_be_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Trouble, match=r"^the topic t does not exist$"):
        look_at_topics({"t": "1"}, {}, monkeypatch)
    with pytest.raises(Trouble, match=r"^the topic t was deleted and made anew"):
        look_at_topics({"t": "1"}, {"t": "9"}, monkeypatch)
