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


class Jobs:
    """A task that waits for a job, which ends when it is cancelled."""

    def __init__(self) -> None:
        self.begun, self.cancelled = threading.Event(), threading.Event()

    def run(self) -> None:
        self.begun.set()
        assert self.cancelled.wait(WAIT_S)
        raise PipelineError("the job was cancelled")


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


def test_tasks_run_beside_the_block_which_ends_after_the_last_of_them(jobs: Jobs) -> None:
    ran, planned, ended = threading.Event(), threading.Event(), threading.Event()

    def wait_for_plan() -> None:
        assert planned.wait(WAIT_S)
        ended.set()

    with run_beside([ran.set, wait_for_plan], jobs.cancelled.set, threading.Event()):
        assert ran.wait(WAIT_S)
        assert not ended.is_set()
        planned.set()
    assert ended.is_set()
    assert not jobs.cancelled.is_set()


def test_error_of_a_task_is_raised_at_the_end_of_the_block(jobs: Jobs) -> None:
    planned = False
    with (
        pytest.raises(PipelineError, match="the topic t does not exist"),
        run_beside([fail], jobs.cancelled.set, threading.Event()),
    ):
        planned = True
    assert planned


def test_error_of_the_block_cancels_jobs_and_what_has_not_begun(jobs: Jobs) -> None:
    last_ran = threading.Event()
    with (
        pytest.raises(PipelineError, match="there is no column"),
        run_beside([jobs.run, jobs.run, last_ran.set], jobs.cancelled.set, threading.Event()),
    ):
        assert jobs.begun.wait(WAIT_S)
        raise PipelineError("there is no column `x`")
    assert not last_ran.is_set()


def test_stop_cancels_jobs_and_is_no_error(jobs: Jobs) -> None:
    stop_requested = threading.Event()
    with run_beside([jobs.run], jobs.cancelled.set, stop_requested):
        assert jobs.begun.wait(WAIT_S)
        stop_requested.set()
    assert jobs.cancelled.is_set()


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
