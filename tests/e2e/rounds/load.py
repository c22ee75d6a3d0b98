"""Clients of a round, each in a thread. For the checks, they keep what brokers acknowledged and
returned.
"""

import itertools
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck

from tests.waiting import eventually

# Short enough that a request on a cut connection times out within a round.
CLIENT_CONFIG = {"socket.timeout.ms": 3000, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 5000}
RECORDS_PER_S = 400.0
DELIVERY_TIMEOUT_S = 60.0
READS_WITHIN_S = 30.0

TopicPartition = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """`offset`: None if librdkafka concludes from the ack of a later batch that this one was
    appended too.
    """

    value: bytes
    partition: TopicPartition
    offset: int | None
    at_s: float  # time.monotonic()


@dataclass
class Producer:
    """Sends numbered records to the partitions in turn, from `start` to `stop`."""

    name: str
    bootstrap: str
    topic: str
    partitions: int
    settings: dict[str, Any]
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    sent_count: int = 0
    idempotence_log: list[str] = field(default_factory=list)  # librdkafka's log of its idempotent producer
    _stop: threading.Event = field(default_factory=threading.Event)

    @property
    def idempotent(self) -> bool:
        return bool(self.settings.get("enable.idempotence"))

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Waits until each record was acknowledged or has failed."""
        self._stop.set()
        self._thread.join(DELIVERY_TIMEOUT_S + 30)
        if self._thread.is_alive():
            self.failures.append("its thread does not end")

    def longest_gap_s(self) -> float:
        """The longest time between two acknowledgements; 0 if there are fewer than two."""
        times = [ack.at_s for ack in self.acknowledgements]
        return max((after - before for before, after in itertools.pairwise(times)), default=0.0)

    def _run(self) -> None:
        timeout = {"acks": "all", "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1000), "request.timeout.ms": 3000}
        logging_settings = {"debug": "eos", "logger": self._logger()} if self.idempotent else {}
        producer = ck.Producer(
            {"bootstrap.servers": self.bootstrap} | CLIENT_CONFIG | timeout | logging_settings | self.settings
        )
        started = time.monotonic()
        while not self._stop.is_set():
            if self.sent_count > (time.monotonic() - started) * RECORDS_PER_S:
                producer.poll(0.005)
                continue
            try:
                value = b"%s/%d" % (self.name.encode(), self.sent_count)
                producer.produce(
                    self.topic, value, partition=self.sent_count % self.partitions, on_delivery=self._delivered
                )
                self.sent_count += 1
            except BufferError:
                producer.poll(0.1)
        pending = producer.flush(DELIVERY_TIMEOUT_S + 10)
        if pending:
            self.failures.append(f"{pending} records were neither acknowledged nor rejected")

    def _logger(self) -> logging.Logger:
        logger = logging.Logger(self.name)  # outside of the hierarchy: the root logger gets no records
        handler = logging.Handler()
        handler.emit = lambda record: self.idempotence_log.append(f"{time.monotonic():.3f} {record.getMessage()}")  # type: ignore[method-assign]
        logger.addHandler(handler)
        return logger

    def _delivered(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.failures.append(f"{message.value()!r}: {error.name()}: {error.str()}")
        else:
            place = (message.topic(), message.partition())
            self.acknowledgements.append(Acknowledgement(message.value(), place, message.offset(), time.monotonic()))


@dataclass
class GroupMember:
    """A consumer of a group, which commits synchronously after each batch of records."""

    name: str
    bootstrap: str
    topic: str
    group: str
    consumed: dict[TopicPartition, dict[int, bytes]] = field(default_factory=dict)
    # The highest offset whose commit was acknowledged.
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    recovered_errors: list[str] = field(default_factory=list)  # errors that it got and recovered from
    settings: dict[str, str] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(40)
        if self._thread.is_alive():
            self.failures.append("its thread does not end")

    def _run(self) -> None:
        consumer = ck.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 500,
            }
            | CLIENT_CONFIG
            | self.settings
        )
        consumer.subscribe([self.topic])
        try:
            while not self._stop.is_set():
                for message in consumer.consume(500, timeout=0.2):
                    self._record_message(message)
                self._commit(consumer)
        finally:
            consumer.close()

    def _record_message(self, message: ck.Message) -> None:
        error = message.error()
        if error is None:
            records = self.consumed.setdefault((message.topic(), message.partition()), {})
            before = records.setdefault(message.offset(), message.value())
            if before != message.value():
                place = f"{message.topic()}-{message.partition()} offset {message.offset()}"
                self.failures.append(f"read {before!r} and later {message.value()!r} at {place}")
        elif error.fatal():
            self.failures.append(error.str())
        else:
            self.recovered_errors.append(error.str())

    def _commit(self, consumer: ck.Consumer) -> None:
        try:
            for done in consumer.commit(asynchronous=False) or ():
                if done.error is None and done.offset >= 0:
                    place = (done.topic, done.partition)
                    self.committed[place] = max(self.committed.get(place, 0), done.offset)
        except ck.KafkaException as reason:
            error = reason.args[0]
            if error.code() != ck.KafkaError._NO_OFFSET:
                self.recovered_errors.append(f"commit: {error.str()}")


@dataclass
class Load:
    producers: list[Producer]
    members: list[GroupMember]

    @property
    def clients(self) -> list[Producer | GroupMember]:
        return [*self.producers, *self.members]

    def start(self) -> None:
        for client in self.clients:
            client.start()

    def count_acknowledged(self) -> int:
        return sum(len(producer.acknowledgements) for producer in self.producers)

    def stop_producers(self) -> None:
        for producer in self.producers:
            producer._stop.set()
        for producer in self.producers:
            producer.stop()

    def stop_members(self) -> None:
        for member in self.members:
            member._stop.set()
        for member in self.members:
            member.stop()

    def consumed(self) -> dict[TopicPartition, dict[int, bytes]]:
        """Records that all members together have read."""
        union: dict[TopicPartition, dict[int, bytes]] = {}
        for member in self.members:
            for place, records in member.consumed.items():
                union.setdefault(place, {}).update(records)
        return union


def read_all_records(bootstrap: str, topic: str, partitions: int) -> dict[TopicPartition, dict[int, bytes]]:
    """All records of a topic, read by a new consumer. Raises AssertionError if it has not reached
    the end of each partition after READS_WITHIN_S.
    """
    reader = ck.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "checks",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
        | CLIENT_CONFIG
    )
    found: dict[TopicPartition, dict[int, bytes]] = {(topic, number): {} for number in range(partitions)}
    ends: dict[int, int] = {}
    deadline = time.monotonic() + READS_WITHIN_S
    try:
        reader.assign([ck.TopicPartition(topic, number, 0) for number in range(partitions)])
        while len(ends) < partitions:
            assert time.monotonic() < deadline, (
                f"reached only the ends of partitions {sorted(ends)} within {READS_WITHIN_S} s"
            )
            for message in reader.consume(1000, timeout=0.5):
                error = message.error()
                if error is None:
                    found[topic, message.partition()][message.offset()] = message.value()
                elif error.code() == ck.KafkaError._PARTITION_EOF:
                    ends[message.partition()] = message.offset()
        return found
    finally:
        reader.close()


def committed_offsets(bootstrap: str, group: str, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Committed offsets of a group, of the partitions that have one. Tries again if the coordinator
    has just moved, because librdkafka itself gives up after 0.3 s.
    """
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": group} | CLIENT_CONFIG)

    def read() -> Any:
        try:
            return consumer.committed([ck.TopicPartition(*it) for it in partitions], timeout=30)
        except ck.KafkaException as reason:
            if reason.args[0].code() != ck.KafkaError.NOT_COORDINATOR:
                raise
            return None

    try:
        offsets = eventually(read, message="a coordinator of the group")
        return {(it.topic, it.partition): it.offset for it in offsets if it.offset >= 0}
    finally:
        consumer.close()
