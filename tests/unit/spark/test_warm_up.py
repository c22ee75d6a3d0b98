"""Work beside the planning of a pipeline's queries."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla_operator.resources.sinks import Sink
from ottla_spark.errors import PipelineError
from ottla_spark.streaming.warm_up import run_beside, warm_up_tasks

WAIT_S = 20.0


def fail() -> None:
    raise PipelineError("the topic t does not exist")


def test_tasks_run_while_the_block_runs_and_end_before_it() -> None:
    ran, planned, ended = threading.Event(), threading.Event(), threading.Event()

    def wait_for_plan() -> None:
        assert planned.wait(WAIT_S)
        ended.set()

    with run_beside([ran.set, wait_for_plan]):
        assert ran.wait(WAIT_S)
        assert not ended.is_set()
        planned.set()
    assert ended.is_set()


def test_error_of_a_task_is_raised_at_the_end_of_the_block() -> None:
    planned = False
    with pytest.raises(PipelineError, match="the topic t does not exist"), run_beside([fail]):
        planned = True
    assert planned


def test_after_an_error_of_the_block_tasks_that_have_not_begun_do_not_run() -> None:
    begun, block_failed, last_ran = threading.Barrier(3), threading.Event(), threading.Event()

    def wait_for_failure() -> None:
        begun.wait(WAIT_S)
        assert block_failed.wait(WAIT_S)

    def plan() -> None:
        begun.wait(WAIT_S)
        threading.Timer(0.2, block_failed.set).start()
        raise PipelineError("there is no column `x`")

    with (
        pytest.raises(PipelineError, match="there is no column"),
        run_beside([wait_for_failure, wait_for_failure, last_ran.set]),
    ):
        plan()
    assert block_failed.is_set(), "tasks that had begun have ended"
    assert not last_ran.is_set()


def spark(master: str) -> Any:
    return SimpleNamespace(sparkContext=SimpleNamespace(master=master))


def sink(**target: object) -> Sink:
    return Sink.parse({"from": "rows", **target})


def test_python_process_starts_only_for_transactional_topics() -> None:
    tables = [cast(Any, SimpleNamespace(read_ahead=fail))]
    without = [sink(parquet={"path": "out"}), sink(topic="t", delivery="atLeastOnce")]
    assert list(warm_up_tasks(spark("local[*,4]"), without, tables)) == [fail]
    assert len(list(warm_up_tasks(spark("local[*,4]"), [*without, sink(topic="t")], tables))) == 2


def test_nothing_is_done_in_advance_on_a_cluster() -> None:
    tables = [cast(Any, SimpleNamespace(read_ahead=fail))]
    assert list(warm_up_tasks(spark("k8s://cluster"), [sink(topic="t")], tables)) == []
