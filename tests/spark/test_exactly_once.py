"""Topic sinks write each row once although processes are killed at any step of a batch."""

from __future__ import annotations

from typing import Any

import pytest

from ottla_operator.resources.sinks import Sink
from ottla_spark.errors import PipelineError
from ottla_spark.streaming import query_runner, transactional_writer
from ottla_spark.streaming.transactional_writer import TransactionalWriter
from tests.spark.conftest import Runner, Topics, events, ids
from tests.spark.dying_producer import STEPS, dying_producer_opener

ATTEMPTS = 2  # of a task, by the tests' master local[2,2]
ROWS = 40


def test_each_row_is_written_once_although_writers_are_killed_at_every_step(
    pipeline: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch fails at one step after the other, and runs again in the next run. Of its two
    writers, one commits in the first run.
    """
    topics.create("once-in", "once-out", partitions=2)
    topics.write("once-in", *({"id": number} for number in range(ROWS)))
    # Without the columns of the origin, rows are divided between the writers by their values.
    spec: dict[str, Any] = {
        "sources": {"events": events("once-in")},
        "transforms": [{"name": "ids", "sql": "SELECT id FROM events"}],
        "sinks": [{"from": "ids", "topic": "once-out"}],
    }
    *steps_before_commit, committed = STEPS
    for step in steps_before_commit:
        deaths = pipeline.folder / step
        monkeypatch.setattr(transactional_writer, "open_producer", dying_producer_opener(step, deaths, ATTEMPTS))
        with pytest.raises(PipelineError):
            pipeline(spec)
        assert len(list(deaths.iterdir())) == ATTEMPTS
        found = ids(topics, "once-out")
        assert 0 < len(found) < ROWS, f"{step}: one of the writers has committed"
        assert len(found) == len(set(found))

    deaths = pipeline.folder / committed
    monkeypatch.setattr(transactional_writer, "open_producer", dying_producer_opener(committed, deaths, 1))
    pipeline(spec)
    assert len(list(deaths.iterdir())) == 1, "the task has died after its commit, and was retried"
    assert ids(topics, "once-out") == list(range(ROWS))
    monkeypatch.undo()

    topics.write("once-in", {"id": ROWS})
    write = TransactionalWriter.__call__
    with monkeypatch.context() as patch:
        patch.setattr(TransactionalWriter, "__call__", lambda *them: (write(*them), 1 / 0))
        with pytest.raises(PipelineError, match="division by zero"):
            pipeline(spec)
    assert ids(topics, "once-out") == list(range(ROWS + 1)), "the batch is written, and not in the checkpoint"
    pipeline(spec)
    assert ids(topics, "once-out") == list(range(ROWS + 1))


def test_batch_that_can_have_other_rows_when_it_runs_again_has_one_writer(
    pipeline: Runner, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.create("alone-in", "alone-table", "alone-out", partitions=3)
    spec: dict[str, Any] = {
        "sources": {"events": events("alone-in"), "cities": events("alone-table", mode="table")},
        "transforms": [
            {"name": "each", "sql": "SELECT id, upper(city) AS city FROM events"},
            {"name": "joined", "sql": "SELECT events.id FROM events LEFT JOIN cities ON events.city = cities.city"},
            {"name": "random", "sql": "SELECT id, uuid() AS tag FROM events"},
            {"name": "counted", "sql": "SELECT city, count(*) AS n FROM events GROUP BY city"},
        ],
        "sinks": [
            {"from": "each", "topic": "alone-out"},
            {"from": "joined", "topic": "alone-out"},
            {"from": "random", "topic": "alone-out"},
            {"from": "counted", "topic": "alone-out", "outputMode": "update"},
        ],
    }
    planned: dict[str, int] = {}

    class RecordingWriter(TransactionalWriter):
        def __init__(self, sink: Sink, *others: Any) -> None:
            super().__init__(sink, *others)
            planned[sink.query_name] = self._planned

    monkeypatch.setattr(query_runner, "TransactionalWriter", RecordingWriter)
    pipeline(spec)
    assert planned == {"each": 3, "joined": 1, "random": 1, "counted": 1}
