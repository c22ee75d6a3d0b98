"""A program with one client, or with the two members of one group. It prints `partition offset` of
each record that is acknowledged to it or read by it; the client's own log goes to stderr.

`python -m tests.e2e.new_addresses.client KIND BOOTSTRAP TOPIC GROUP`
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
from kafka import KafkaConsumer
from kafka.errors import KafkaError

MEMBERS = 2
SENDS_PER_S = 20.0  # to each partition; more while acknowledgements arrive, because they end a poll
PARTITIONS = 3
# Settings of a user who wants the client to notice a silent broker soon. All others have their
# defaults.
QUICK: dict[str, object] = {
    "socket.timeout.ms": 3000,
    "socket.connection.setup.timeout.ms": 3000,
    "session.timeout.ms": 6000,
    "reconnect.backoff.max.ms": 500,
}
# librdkafka gives up a JoinGroup without a response after max.poll.interval.ms plus 3 s, whatever
# socket.timeout.ms is.
SHORT_POLLS: dict[str, object] = {"max.poll.interval.ms": 20_000, "session.timeout.ms": 6000}
DEBUG = {"debug": "cgrp,topic,metadata,broker"}


def report(partition: int, offset: int) -> None:
    """Writes one line in one call, because members are threads."""
    os.write(sys.stdout.fileno(), b"%d %d\n" % (partition, offset))


def produce(bootstrap: str, topic: str) -> None:
    """Sends numbered records forever. librdkafka retries each for up to ten minutes."""

    def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            report(message.partition(), message.offset())
        else:
            logging.warning("%s: %s", message.value(), error)

    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": 600_000, "socket.connection.setup.timeout.ms": 1000}
    )
    number = 0
    while True:
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition, on_delivery=delivered)
        number += 1
        producer.poll(1 / SENDS_PER_S)


def read_with_librdkafka(bootstrap: str, topic: str, group: str, settings: dict[str, object]) -> None:
    base = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = ck.Consumer(base | DEBUG | settings)
    consumer.subscribe([topic])
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if (error := message.error()) is None:
            report(message.partition(), message.offset())
        else:
            logging.warning("poll: %s", error)


def read_with_kafka_python(bootstrap: str, topic: str, group: str) -> None:
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=group, auto_offset_reset="earliest"
    )
    while True:
        try:
            for records in consumer.poll(1000).values():
                for record in records:
                    report(record.partition, record.offset)
        except KafkaError:
            logging.exception("poll")
            time.sleep(0.5)


def main(kind: str, bootstrap: str, topic: str, group: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(threadName)s %(name)s %(message)s")
    match kind:
        case "producer":
            produce(bootstrap, topic)
        case "librdkafka":
            run_members(read_with_librdkafka, bootstrap, topic, group, {})
        case "librdkafka-quick":
            run_members(read_with_librdkafka, bootstrap, topic, group, QUICK)
        case "librdkafka-short-polls":
            run_members(read_with_librdkafka, bootstrap, topic, group, SHORT_POLLS)
        case "kafka-python":
            run_members(read_with_kafka_python, bootstrap, topic, group)
        case _:
            raise SystemExit(f"unknown kind {kind!r}")


def run_members(read: Callable[..., None], *arguments: Any) -> None:
    """Runs `read` with these arguments in one thread per member of the group."""
    threads = [threading.Thread(target=read, args=arguments, name=f"member-{n}") for n in range(MEMBERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
