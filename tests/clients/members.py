"""Members of a consumer group that poll in threads of their own, so that a test can watch several at once."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import confluent_kafka as ck

from tests.clients.librdkafka import dotted
from tests.waiting import eventually

SESSION_TIMEOUT_MS = 2000
# Kafka's default of 3 s between heartbeats would make every rebalance last that long.
QUICK = {"session.timeout.ms": SESSION_TIMEOUT_MS, "heartbeat.interval.ms": 100, "fetch.wait.max.ms": 50}


class Member:
    """A librdkafka consumer that polls until it is told to leave. `assigned`: its partitions' numbers; `revoked`: how
    often partitions were taken from it; `values`: what it received; `error`: a fatal error, which ends it."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings: object) -> None:
        self.assigned: frozenset[int] = frozenset()
        self.revoked = 0
        self.values: list[bytes] = []
        self.error: ck.KafkaError | None = None
        self._leaving = threading.Event()
        base = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", **QUICK}
        self._consumer = ck.Consumer(base | dotted(settings))
        self._consumer.subscribe([topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()

    def _on_assign(self, consumer: ck.Consumer, partitions: Sequence[ck.TopicPartition]) -> None:
        """Only its presence matters: without it, librdkafka would not call the other one."""

    def _on_revoke(self, consumer: ck.Consumer, partitions: Sequence[ck.TopicPartition]) -> None:
        self.revoked += 1

    def _poll(self) -> None:
        while not self._leaving.is_set() and self.error is None:
            message = self._consumer.poll(0.05)
            self.assigned = frozenset(partition.partition for partition in self._consumer.assignment())
            if message is None:
                continue
            if (error := message.error()) is None:
                self.values.append(message.value())
            elif error.code() == ck.KafkaError._FATAL:
                self.error = error
        self._consumer.close()
        self.assigned = frozenset()

    def leave(self) -> None:
        """Leaves the group (a static member only goes away), commits what it has."""
        self._leaving.set()
        self._thread.join(20)
        assert not self._thread.is_alive(), "the member does not end"


@contextmanager
def members(bootstrap: str, group: str, topic: str, each: Sequence[dict[str, object]]) -> Iterator[list[Member]]:
    with ExitStack() as stack:
        made = []
        for settings in each:
            made.append(Member(bootstrap, group, topic, **settings))
            stack.callback(made[-1].leave)
        yield made


def shared_fairly(those: Sequence[Member], partitions: int, within_s: float = 20.0) -> None:
    """Waits until every partition has one owner and nobody has two more than another."""

    def fair() -> bool:
        owned = [member.assigned for member in those]
        sizes = [len(part) for part in owned]
        all_of_it = frozenset().union(*owned) == frozenset(range(partitions))
        return all_of_it and sum(sizes) == partitions and max(sizes) - min(sizes) <= 1

    try:
        eventually(fair, within_s=within_s)
    except AssertionError:
        raise AssertionError(f"not shared fairly: {[sorted(member.assigned) for member in those]}") from None
