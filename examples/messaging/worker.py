"""Does the jobs of the topic `jobs`, as a member of the share group `workers` (KIP-932).

    python examples/messaging/worker.py [BOOTSTRAP]

Start as many as you like, also more than the topic has partitions. The broker locks a job for the
worker that has received it. A job that fails is released, and the broker delivers it again, to any
worker; after three attempts the worker writes it to `failed-jobs` and rejects it. The jobs of a
killed worker are delivered again when their locks expire, after 30 s; those of a partition that no
other worker reads, when the group has removed the worker, after 45 s.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Final

import msgspec
from confluent_kafka import AcknowledgeType, Message, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

BOOTSTRAP: Final = "127.0.0.1:9092"
GROUP: Final = "workers"
ATTEMPTS: Final = 3
WORK_S: Final = 0.01


class Job(msgspec.Struct):
    """Work to do. `failures`: number of attempts that fail before one succeeds."""

    number: int
    failures: int


def start_at_first_job(bootstrap: str) -> None:
    """Lets the group begin with the oldest job. By default, share groups skip the records that a
    topic has when they begin.
    """
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for change in admin.incremental_alter_configs([group]).values():
        change.result()


def do(job: Job, attempt: int) -> None:
    """Stands for the work. Raises RuntimeError for the job's first `failures` attempts."""
    time.sleep(WORK_S)
    if attempt <= job.failures:
        raise RuntimeError(f"attempt {attempt} of job {job.number} failed")


def handle(message: Message, failed_jobs: Producer) -> AcknowledgeType:
    """Does one job, and writes a dead letter at the last failed attempt. Returns the
    acknowledgement.
    """
    attempt = message.delivery_count()
    try:
        do(msgspec.json.decode(message.value(), type=Job), attempt)
    except (RuntimeError, msgspec.MsgspecError) as error:
        print(f"{error} at {os.getpid()}")
        if attempt < ATTEMPTS:
            return AcknowledgeType.RELEASE
        failed_jobs.produce("failed-jobs", message.value(), message.key(), headers={"error": str(error).encode()})
        if failed_jobs.flush(30):
            return AcknowledgeType.RELEASE
        return AcknowledgeType.REJECT
    print(f"job {message.key().decode()} done by {os.getpid()}")
    return AcknowledgeType.ACCEPT


def main(bootstrap: str = BOOTSTRAP, *, idle_s: float | None = None) -> None:
    """Works until Ctrl-C, or until no job has come for `idle_s` seconds."""
    start_at_first_job(bootstrap)
    failed_jobs = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer(settings) as jobs:
        jobs.subscribe(["jobs"])
        while True:
            messages = jobs.poll(1.0 if idle_s is None else idle_s)
            for message in messages:
                if message.error():
                    print(message.error(), file=sys.stderr)
                else:
                    jobs.acknowledge(message, handle(message, failed_jobs))
            if len(messages):
                jobs.commit_sync()
            elif idle_s is not None:
                return


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
