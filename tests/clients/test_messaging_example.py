"""The example of a work queue: librdkafka's share consumer, retries, dead letters and a worker that
is killed.
"""

import re
import subprocess
import sys
from collections import Counter

import msgspec
import pytest

from examples.messaging import load, worker
from tests.clients import librdkafka as rd
from tests.clients.conftest import NewBroker
from tests.clients.sample_messages import Message

JOBS = 200
QUICK = {
    "group_share_record_lock_duration_ms": 1000,
    "group_share_session_timeout_ms": 1500,
    "group_share_min_session_timeout_ms": 1500,
    "group_share_heartbeat_interval_ms": 500,
    "group_share_min_heartbeat_interval_ms": 500,
}
"""Settings with which a killed worker loses its locks and its partitions in two seconds."""


def count_done_jobs(printed: str) -> Counter[int]:
    return Counter(int(number) for number in re.findall(r"^job (\d+) done", printed, re.M))


def test_each_job_is_done_or_becomes_a_dead_letter(
    new_broker: NewBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "WORK_S", 0)  # all jobs take less time than a lock lasts here
    with new_broker(**QUICK) as broker:
        rd.create_topic(broker.bootstrap, "jobs", 2)
        rd.create_topic(broker.bootstrap, "failed-jobs")
        for partition in (0, 1):
            jobs = [job for job in load.jobs(JOBS) if job.number % 2 == partition]
            records = [Message(b"%d" % job.number, msgspec.json.encode(job), 1_000) for job in jobs]
            rd.produce(broker.bootstrap, "jobs", records, partition=partition)

        command = [sys.executable, "-u", worker.__file__, broker.bootstrap]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed:
            assert killed.stdout is not None
            first = killed.stdout.readline()
            killed.kill()
            by_killed = count_done_jobs(first + killed.stdout.read())
        worker.main(broker.bootstrap, idle_s=4)
        printed = capsys.readouterr().out
        by_other = count_done_jobs(printed)

        succeed = {job.number for job in load.jobs(JOBS) if job.failures < worker.ATTEMPTS}
        assert by_killed
        assert (by_killed + by_other).keys() == succeed
        assert set(by_other.values()) == {1}
        dead = rd.consume(broker.bootstrap, "failed-jobs", 2)
        assert {msgspec.json.decode(message.value(), type=load.Job).number for message in dead} == {100, 200}
        assert all(dict(message.headers())["error"].startswith(b"attempt 3 of job") for message in dead)
